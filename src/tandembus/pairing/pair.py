"""Pairs two namespaces (N1): when it returns, pairing is complete."""

from __future__ import annotations

import random
from typing import Final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from tandembus.client import ClientFailure
from tandembus.clock import SystemClock
from tandembus.pairing.backlog_queues import BacklogQueues, advice_on, create_backlog_queues, name_of_secondary
from tandembus.pairing.errors import PairingFailed
from tandembus.pairing.links import Link
from tandembus.pairing.options import SendAvailabilityPairedNamespaceOptions, check_kind
from tandembus.pairing.paired_client import PairedServiceBusClient
from tandembus.pairing.primary_name import chosen_name, is_same_machine
from tandembus.pairing.rotation import Rotation
from tandembus.pairing.runtime import Runtime
from tandembus.pairing.sdk import UnknownSdk, endpoint_of
from tandembus.pairing.sdk_connection import connect

AT_ONCE_S: Final = 0.0
"""Whoever could not pair need not wait for links to be closed: that ends by itself."""


async def pair_namespace(
    primary_client: ServiceBusClient,
    options: SendAvailabilityPairedNamespaceOptions,
    *,
    primary_name: str | None = None,
) -> PairedServiceBusClient:
    """Makes the backlog queues where they are missing and makes sure that they can be sent to. Whatever prevents that
    is raised as `PairingFailed`; the primary may be away. `primary_name` stands in the paths of the backlog queues; by
    default it is the first label of the primary's host."""
    _check_clients(primary_client, options)
    name = _name(primary_client, primary_name)
    runtime = Runtime(SystemClock())
    try:
        return await _pair(primary_client, name, options, runtime)
    except BaseException:
        await runtime.close(AT_ONCE_S)
        raise


async def _pair(
    primary_client: ServiceBusClient, name: str, options: SendAvailabilityPairedNamespaceOptions, runtime: Runtime
) -> PairedServiceBusClient:
    limit_s = options.operation_timeout.total_seconds()
    await _check_are_two(primary_client, name, options, limit_s, runtime)
    paths = await create_backlog_queues(options.secondary_admin, name, options.backlog_queue_count, limit_s, runtime)
    dice = random.Random()
    await _make_sure(options.secondary_client, dice.choice(paths), limit_s, runtime)
    if options.enable_syphon:
        await _make_sure_of_syphon(options.secondary_client, dice.choice(paths), limit_s)
    readmission_s = options.ping_primary_interval.total_seconds()
    rotation = Rotation(paths, readmission_s, runtime.clock, dice)
    queues = BacklogQueues(rotation, options.backlog_queue_by_key, runtime, options.listeners)
    syphoned = paths if options.enable_syphon else ()
    return PairedServiceBusClient(primary_client, name, options, queues, runtime, syphoned)


def _name(primary_client: ServiceBusClient, given: str | None) -> str:
    host = primary_client.fully_qualified_namespace
    name = chosen_name(given, None, host)
    if name is None:
        raise ValueError(f"{host} does not tell the name of the primary namespace: give primary_name to pair_namespace")
    return name


async def _check_are_two(
    primary: ServiceBusClient,
    name: str,
    options: SendAvailabilityPairedNamespaceOptions,
    limit_s: float,
    runtime: Runtime,
) -> None:
    """One namespace has several ports, and a machine several names. The secondary tells its own name; it is asked only
    where both are on one machine: elsewhere two may have the same one."""
    primary_host, secondary_host = (client.fully_qualified_namespace for client in (primary, options.secondary_client))
    if not is_same_machine(primary_host, secondary_host):
        return
    own_name = await name_of_secondary(options.secondary_admin, limit_s, runtime)
    if own_name.lower() == name.lower():
        raise ValueError(
            f"secondary_admin is of {options.secondary_admin.fully_qualified_namespace}, which calls itself {own_name} "
            "as the primary does: that cannot be its own secondary"
        )


def _check_clients(primary_client: ServiceBusClient, options: SendAvailabilityPairedNamespaceOptions) -> None:
    check_kind("options", options, SendAvailabilityPairedNamespaceOptions)
    check_kind("primary_client", primary_client, ServiceBusClient)
    check_kind("secondary_client", options.secondary_client, ServiceBusClient)
    endpoint = endpoint_of(primary_client)
    if endpoint == endpoint_of(options.secondary_client):
        raise ValueError(
            f"{endpoint} cannot be its own secondary: the backlog must be in another namespace. Over TLS the SDK drops "
            "the ports of connection strings: two on one machine need a custom_endpoint_address each"
        )


async def _make_sure(secondary: ServiceBusClient, queue: str, limit_s: float, runtime: Runtime) -> None:
    """That this client may send there: found out now rather than in the hour of need."""
    link = Link(secondary.get_queue_sender(queue), runtime)
    try:
        await link.call(lambda: link.sdk.__aenter__(), limit_s)
    except (ServiceBusError, OSError) as error:
        raise PairingFailed(
            f"the secondary client cannot send to the backlog queue {queue}: {error!r}{advice_on(error)}"
        ) from error
    finally:
        link.retire()


async def _make_sure_of_syphon(secondary: ServiceBusClient, queue: str, limit_s: float) -> None:
    """That it can work: in the background nobody would hear that it cannot, and the backlog would only grow."""
    try:
        async with await connect(secondary, limit_s) as bus:
            await bus.receiver(queue)
    except UnknownSdk as error:
        raise PairingFailed(str(error)) from error
    except ClientFailure as error:
        raise PairingFailed(
            f"the secondary client cannot receive from the backlog queue {queue}, as a syphon must: {error!r}"
        ) from error
