"""A connection that is made when it is needed and made again when it was lost, with what is open on it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

from tandembus.client import Management, Receiver, Sender, ServiceBus, connect
from tandembus.client.reservations import Reservations
from tandembus.clock import Clock, SystemClock
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, Unauthorized
from tandembus.security.sas import ConnectionString, is_sas_token, parse_token
from tandembus.spark.source.options import SourceOptions

T = TypeVar("T")
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 60.0


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: the connection was lost, or the service cannot answer at the moment."""
    if "certificate verify failed" in str(error).lower() or isinstance(error, (FileNotFoundError, PermissionError)):
        return False
    return isinstance(error, OSError) or bool(getattr(error, "retryable", False))


class Link:
    """One process's way to the namespace."""

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self.options: Final = options
        self._clock: Final = clock or SystemClock()
        self._bus: ServiceBus | None = None
        self._nodes: dict[str, Management] = {}
        self._senders: dict[str, Sender] = {}
        self._receivers: dict[str, Receiver] = {}
        self._reservations: dict[str, Reservations] = {}

    async def bus(self) -> ServiceBus:
        if self._bus is None or self._bus.connection.failure is not None:
            await self.drop()
            _check_authority(self.options)
            self._bus = await connect(
                self.options.connection_string(), ca_path=self.options.ca_path, timeout_s=ANSWER_TIMEOUT_S
            )
        return self._bus

    async def management(self, entity: str) -> Management:
        bus = await self.bus()
        node = self._nodes.get(entity)
        if node is None or node.is_lost:
            node = self._nodes[entity] = await bus.management(entity)
        return node

    async def reservations(self, entity: str) -> Reservations:
        bus = await self.bus()
        reservations = self._reservations.get(entity)
        if reservations is None or reservations.is_lost:
            reservations = self._reservations[entity] = await bus.reservations(entity)
        return reservations

    async def receiver(self, entity: str) -> Receiver:
        bus = await self.bus()
        receiver = self._receivers.get(entity)
        if receiver is None or receiver.failure is not None:
            receiver = self._receivers[entity] = await bus.receiver(entity)
        return receiver

    async def sender(self, entity: str) -> Sender:
        bus = await self.bus()
        sender = self._senders.get(entity)
        if sender is None or sender.failure is not None:
            sender = self._senders[entity] = await bus.sender(entity)
        return sender

    async def drop(self) -> None:
        """Whatever was open is made anew when it is asked for next."""
        bus, self._bus = self._bus, None
        self._nodes, self._senders, self._receivers, self._reservations = {}, {}, {}, {}
        if bus is not None:
            try:
                await bus.close()
            except OSError:
                pass  # it is gone already

    async def patiently(self, work: Callable[[], Awaitable[T]], *, is_brief: bool = False) -> T:
        """Do it again, with growing pauses, while trying again may help and the time for that is not over. `is_brief`:
        once, and no more."""
        begun = self._clock.monotonic()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await work()
            except Exception as error:
                is_late = self._clock.monotonic() - begun + pause_s > self.options.retry_for_s
                if not is_transient(error) or is_late or is_brief:
                    raise _explained(error, self.options, self._clock.now()) from None
                await self.drop()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _check_authority(options: SourceOptions) -> None:
    """A wrong path is no outage: to try again does not help."""
    if options.ca_path is None or options.parsed_connection().use_emulator:
        return
    try:
        ssl.create_default_context(cafile=options.ca_path)
    except OSError as error:
        raise InvalidArgument(
            f"the option ca names {options.ca_path}, which is no certificate that this process can read: "
            f"{error.strerror or error}. `tandembus ca` writes one; it has to be at this path on every machine"
        ) from None


def expired_token(connection: ConnectionString, now: float) -> Unauthorized | None:
    """A service forgets a token that expires, and then says only that a right is missing."""
    token = connection.signature or ""
    if not is_sas_token(token) or (end := parse_token(token).expires_at) > now:
        return None
    when = datetime.fromtimestamp(end, UTC).isoformat(sep=" ", timespec="seconds")
    return Unauthorized(f"The token of the connection string (SharedAccessSignature) expired at {when}: give a new one")


def _explained(error: Exception, options: SourceOptions, now: float) -> Exception:
    """The same kind of error, with what to do next."""
    if isinstance(error, EntityNotFound):
        return EntityNotFound(
            f"{error} A subscription is TOPIC/subscriptions/NAME; `tandembus queue list` and `tandembus topic list` "
            "show what there is"
        )
    if isinstance(error, Unauthorized):
        expired = expired_token(options.parsed_connection(), now)
        if expired is not None:
            return expired
        return Unauthorized(f"{error} Reading needs the right Listen, writing the right Send")
    if isinstance(error, BusError):
        return error
    if isinstance(error, OSError):
        return ConnectionError(f"{error} (tried for {options.retry_for_s:g} s; the option retryFor changes that)")
    return error
