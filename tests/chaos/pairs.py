"""Two namespaces as an application pairs them, with intervals that a test has the time for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from tandembus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespace

PRIMARY = "contoso"
BACKLOG_QUEUES = 2
FAILOVER_INTERVAL_S = 2.0
PING_INTERVAL_S = 1.0
OPERATION_TIMEOUT_S = 10.0
"""Of a machine that has much else to do, connections have to be made within it: such a one may stand still for seconds,
and what is late then looks like an outage that nobody caused."""


class Ends(NamedTuple):
    """The connection strings of a pair, and what certifies the secondary."""

    primary: str
    secondary: str
    ca_path: str


@asynccontextmanager
async def paired(ends: Ends, enable_syphon: bool = False) -> AsyncIterator[PairedServiceBusClient]:
    """The SDK tries once: how often it does is not what is to be seen."""
    async with (
        ServiceBusClient.from_connection_string(ends.primary, retry_total=0) as primary,
        ServiceBusClient.from_connection_string(ends.secondary, retry_total=0) as secondary,
        ServiceBusAdministrationClient.from_connection_string(ends.secondary, connection_verify=ends.ca_path) as admin,
    ):
        options = SendAvailabilityPairedNamespaceOptions(
            admin,
            secondary,
            backlog_queue_count=BACKLOG_QUEUES,
            failover_interval=timedelta(seconds=FAILOVER_INTERVAL_S),
            enable_syphon=enable_syphon,
            ping_primary_interval=timedelta(seconds=PING_INTERVAL_S),
            operation_timeout=timedelta(seconds=OPERATION_TIMEOUT_S),
        )
        async with await pair_namespace(primary, options, primary_name=PRIMARY) as client:
            yield client
