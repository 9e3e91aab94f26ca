"""How a namespace is to be paired (N1): checked once, when it is said."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from azure.servicebus import ServiceBusClient, aio
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES
from tandembus.pairing.events import Listeners, ListenerType
from tandembus.pairing.sdk import described

ZERO: Final = timedelta(0)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
MAX_FAILOVER_INTERVAL: Final = timedelta(minutes=60)
MAX_PING_INTERVAL: Final = timedelta(minutes=30)
MAX_SYPHON_RETRY_INTERVAL: Final = timedelta(minutes=2)
MAX_OPERATION_TIMEOUT: Final = timedelta(hours=1)


class SendAvailabilityPairedNamespaceOptions:
    """Where the backlog is, and when it is used.

    `failover_interval`: how long sends to an entity must have failed, without an answer of it, before its messages go
    to the backlog. `ping_primary_interval`: how often it is then asked whether the entity is back. `operation_timeout`:
    how long a send may take where the caller gives no time-out. `backlog_queue_by_key`: messages with the same session
    id or partition key go to the same backlog queue, which keeps their order. `enable_syphon`: move messages home in
    this process, too, trying again after `syphon_retry_interval` what the primary does not take.
    """

    def __init__(
        self,
        secondary_admin: AsyncAdministrationClient | ServiceBusAdministrationClient,
        secondary_client: aio.ServiceBusClient | ServiceBusClient,
        backlog_queue_count: int = 10,
        failover_interval: timedelta = MINUTE,
        enable_syphon: bool = False,
        ping_primary_interval: timedelta = MINUTE,
        *,
        syphon_retry_interval: timedelta = SECOND,
        operation_timeout: timedelta = MINUTE,
        backlog_queue_by_key: bool = False,
    ) -> None:
        check_kind("secondary_admin", secondary_admin, AsyncAdministrationClient, ServiceBusAdministrationClient)
        is_async = isinstance(secondary_admin, AsyncAdministrationClient)
        check_kind("secondary_client", secondary_client, aio.ServiceBusClient if is_async else ServiceBusClient)
        self.secondary_admin: Final[Any] = secondary_admin
        self.secondary_client: Final[Any] = secondary_client
        self.backlog_queue_count: Final = _checked_count(backlog_queue_count)
        """After pairing: how many there really are. One that cannot be made fails it."""
        self.failover_interval: Final = _checked("failover_interval", failover_interval, ZERO, MAX_FAILOVER_INTERVAL)
        self.enable_syphon: Final = _checked_flag("enable_syphon", enable_syphon)
        self.ping_primary_interval: Final = _checked(
            "ping_primary_interval", ping_primary_interval, SECOND, MAX_PING_INTERVAL
        )
        self.syphon_retry_interval: Final = _checked(
            "syphon_retry_interval", syphon_retry_interval, SECOND, MAX_SYPHON_RETRY_INTERVAL
        )
        self.operation_timeout: Final = _checked("operation_timeout", operation_timeout, SECOND, MAX_OPERATION_TIMEOUT)
        self.backlog_queue_by_key: Final = _checked_flag("backlog_queue_by_key", backlog_queue_by_key)
        self.listeners: Final = Listeners()

    def __setattr__(self, name: str, value: object) -> None:
        """Pairs are made of what was checked; `listeners` comes last."""
        if "listeners" in vars(self):
            raise AttributeError(
                f"{name} cannot be set any more: options are checked when they are made, make new ones"
            )
        super().__setattr__(name, value)

    def on_event(self, listener: ListenerType) -> ListenerType:
        """Have `listener` called with every event of pairing (N16), where it happens: it must be quick. Also a
        decorator."""
        if not callable(listener):
            raise TypeError(f"a listener is called with events; {type(listener).__name__} cannot be called")
        self.listeners.add(listener)
        return listener


def check_kind(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        raise TypeError(
            f"{name} must be {' or '.join(map(described, kinds))}, not {described(type(value))}: "
            "tandembus.pairing takes the SDK's asyncio clients, tandembus.pairing.sync its blocking ones"
        )


def _checked_flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def _checked_count(count: int) -> int:
    if not isinstance(count, int) or isinstance(count, bool):
        raise TypeError(f"backlog_queue_count must be a number, not {count!r}")
    if not 1 <= count <= MAX_BACKLOG_QUEUES:
        raise ValueError(f"backlog_queue_count must be 1 to {MAX_BACKLOG_QUEUES}, not {count}")
    return count


def _checked(name: str, value: timedelta, least: timedelta, most: timedelta) -> timedelta:
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a timedelta, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {value}")
    return value
