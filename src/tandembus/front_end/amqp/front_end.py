"""Everything the AMQP connections of a namespace share, and the second hand that moves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tandembus.amqp.engine import AmqpError
from tandembus.clock import Clock
from tandembus.front_end.amqp.driver import AmqpConnection
from tandembus.front_end.amqp.link_host import Flusher, PingTally
from tandembus.front_end.amqp.transactions import TransactionLimits, TransactionMemory
from tandembus.front_end.refusals import Refusals
from tandembus.interconnect.traced_traffic import TracedTraffic
from tandembus.interconnect.traffic import Traffic
from tandembus.metering.meter import Meter
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Authorizer
from tandembus.tasks import WhenBroken, carry_on, essential

TICK_S = 1.0


class AmqpFrontEnd:
    def __init__(self, namespace: Namespace, authorizer: Authorizer, meter: Meter, clock: Clock) -> None:
        self.namespace = namespace
        self.authorizer = authorizer
        self.meter = meter
        self.clock = clock
        self.limits = namespace.limits
        self.has_reservations = True
        """Whether the management nodes know of reservations, which other services have not."""
        self.traced: Callable[[str, Traffic], TracedTraffic] | None = None
        """Stands between links and the entity of this path, where tracing is on."""
        self.flusher = Flusher(_soon)
        self.transaction_limits = TransactionLimits(
            self.limits.max_transaction_messages,
            self.limits.max_transaction_bytes,
            self.limits.max_transactions_per_connection,
            self.limits.transaction_timeout_s,
        )
        self.pings = PingTally()
        self.refusals = Refusals(clock)
        self.transaction_memory = TransactionMemory(self.limits.open_transaction_bytes, namespace.large_messages)
        self._connections: set[AmqpConnection] = set()
        self._connection_count = 0
        self._ticker: asyncio.Task[None] | None = None
        self.when_broken: WhenBroken = carry_on
        namespace.on_turn_end = self.flusher.flush
        namespace.faults.listen(self._look_at_faults)

    def start(self) -> None:
        self._ticker = essential(self._tick(), "AMQP ticks", self.when_broken)

    def next_connection_id(self) -> str:
        self._connection_count += 1
        return f"amqp-{self._connection_count}"

    def connection(self, when_claimed: Callable[[], None]) -> AmqpConnection:
        return AmqpConnection(self, when_claimed)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections(self) -> list[AmqpConnection]:
        return list(self._connections)

    def add(self, connection: AmqpConnection) -> None:
        self._connections.add(connection)
        if self._is_out():
            connection.abort()

    def _is_out(self) -> bool:
        """A fault says that the whole namespace is gone: nobody gets an answer."""
        return self.namespace.faults.namespace_outage() is not None

    def _look_at_faults(self) -> None:
        if self._is_out():
            for connection in list(self._connections):
                connection.abort()

    def remove(self, connection: AmqpConnection) -> None:
        self._connections.discard(connection)

    async def _tick(self) -> None:
        checked_at = self.clock.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = self.clock.monotonic()
            is_checking = now - checked_at >= self.limits.token_check_interval_s
            if is_checking:
                checked_at = now
            self._move_all(now, is_checking)

    def _move_all(self, now: float, is_checking: bool) -> None:
        """In a call of its own: between ticks nothing here refers to a connection, which may end meanwhile."""
        for connection in list(self._connections):
            connection.tick(now)
        if is_checking:
            for connection in list(self._connections):
                connection.check_claims()

    def stop_reading(self) -> None:
        """Nothing more is taken from anybody, so that what is staged has an end."""
        for connection in self._connections:
            connection.stop_reading()

    async def stop(self) -> None:
        """Close every connection with an error that clients retry on."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        for connection in list(self._connections):
            connection.close(AmqpError("amqp:connection:forced", "The broker is shutting down.", None))


def _soon(flush: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(flush)
