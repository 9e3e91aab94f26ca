"""What happens to one client of a pair when the other is gone (N14).

The clients are the application's. Pairing only observes that they are closed; and where this process runs a syphon,
which needs both, it closes the one that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeAlias, final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from tandembus.client.errors import TokenRefused
from tandembus.clock import Clock
from tandembus.pairing.errors import PairClosed, PairFaulted, PairingError
from tandembus.pairing.events import ClientFaulted, Listeners
from tandembus.pairing.runtime import Runtime, Timer, together
from tandembus.pairing.sdk import not_found_in

Side: TypeAlias = Literal["primary", "secondary"]
PARTNER: Final[dict[Side, Side]] = {"primary": "secondary", "secondary": "primary"}
PARTNER_PATIENCE_S: Final = 5.0
CLOSE_TRIES: Final = 10
REFUSALS_FOR_GOOD: Final = 3
REFUSALS_APART_S: Final = 1.0
REFUSED_FOR_S: Final = 60.0
"""While a key is replaced, or nobody gives tokens, it is refused as well: what passes by itself is not for good."""
SPELL_ENDS_AFTER_S: Final = 300.0
"""Without a refusal. An idle syphon is told nothing else by which a key that is good again could be known."""


@final
class PartnerRule:
    """Which client went first, and when the other has to follow: the pure decision."""

    def __init__(self, clock: Clock, patience_s: float = PARTNER_PATIENCE_S) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._gone: set[Side] = set()
        self._first_gone_at = 0.0
        self.first: Side | None = None
        self.is_faulted = False

    def gone(self, side: Side) -> bool:
        """A client was closed or has faulted. Whether it is the first: then ask `to_fault` in `due_in_s`."""
        self._gone.add(side)
        if self.first is not None:
            return False
        self.first = side
        self._first_gone_at = self._clock.monotonic()
        return True

    def due_in_s(self) -> float | None:
        """When the partner's time is up; None if nobody is gone, or both are."""
        if self.first is None or len(self._gone) > 1:
            return None
        return max(self._first_gone_at + self._patience_s - self._clock.monotonic(), 0.0)

    def to_fault(self) -> Side | None:
        """The client that is to be closed now, because its partner is gone and it did not follow."""
        if self.first is None or self.due_in_s() != 0.0:
            return None
        self.is_faulted = True
        return PARTNER[self.first]


@final
class Gate:
    """Whether anything can be sent at all. Asked by every send, so that it is one look at a field."""

    def __init__(self) -> None:
        self.refusal: Callable[[], PairingError | None] | None = None

    def check(self) -> None:
        if self.refusal is not None and (error := self.refusal()) is not None:
            raise error

    def gone(self) -> PairingError:
        """What a sender answers that is closed: with the whole pair, or by itself."""
        error = None if self.refusal is None else self.refusal()
        return error or PairClosed("this sender was closed: ask the paired client for a new one")


@final
class Refusals:
    """When a key is refused for good (N14): several times, over a minute at least. The pure decision, by the names of
    those who refuse it. What is refused together is refused once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused_at: dict[str, list[float]] = {}

    def add(self, name: str) -> None:
        now, refused_at = self._clock.monotonic(), self._refused_at.setdefault(name, [])
        if not self._is_going_on(refused_at):
            refused_at.clear()
        if not refused_at or now >= refused_at[-1] + REFUSALS_APART_S:
            # The first one is kept, and the last ones: a key may be refused for years.
            del refused_at[1 : 2 - REFUSALS_FOR_GOOD]
            refused_at.append(now)

    def forget(self, name: str) -> None:
        """It says that the key is good, or nothing."""
        self._refused_at.pop(name, None)

    def clear(self) -> None:
        self._refused_at.clear()

    def names_for_good(self) -> list[str]:
        going_on = (each for each in self._refused_at.items() if self._is_going_on(each[1]))
        return [name for name, refused_at in going_on if _is_for_good(refused_at)]

    def _is_going_on(self, refused_at: list[float]) -> bool:
        return bool(refused_at) and self._clock.monotonic() <= refused_at[-1] + SPELL_ENDS_AFTER_S


def _is_for_good(refused_at: list[float]) -> bool:
    return len(refused_at) >= REFUSALS_FOR_GOOD and refused_at[-1] >= refused_at[0] + REFUSED_FOR_S


@final
class PrimaryKey:
    """Notices that the primary's key is refused for good (N14): for one entity again and again, with nothing taken by
    any other in between, since a key may be good for some entities only."""

    def __init__(self, clock: Clock, refused_for_good: Callable[[BaseException], None]) -> None:
        self.is_suspect = False
        """It was refused, and nothing was taken since: the next success is news."""
        self._refused_for_good = refused_for_good
        self._refusals = Refusals(clock)

    def taken(self) -> None:
        self._refusals.clear()
        self.is_suspect = False

    def not_taken(self, path: str, error: BaseException) -> None:
        """An error other than a refusal of the key says that it is good, or nothing."""
        path = path.lower()
        is_refused = isinstance(error, (ServiceBusAuthenticationError, TokenRefused))
        if not is_refused or not_found_in(error) is not None:
            self._refusals.forget(path)
            return
        self.is_suspect = True
        self._refusals.add(path)
        if path not in self._refusals.names_for_good():
            return
        self._refusals.clear()
        self._refused_for_good(error)


@final
class CloseObservers:
    """Stands in for the `close` of a client, which leaving its `with` block calls, too. One for each client, however
    many pairs it is part of. The client is closed when all of them have let go of it."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._close = client.close
        self._listeners: list[Callable[[], Coroutine[Any, Any, None]]] = []

    async def close(self) -> None:
        await together(list(self._listeners))
        for tries_left in reversed(range(CLOSE_TRIES)):
            try:
                await self._close()
                return
            except RuntimeError as error:
                # Somebody was given a sender or receiver while the SDK went over those to be closed.
                if tries_left == 0 or "changed size during iteration" not in str(error):
                    raise

    def add(self, listener: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The last one leaves the client as it was."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners and getattr(self._client.close, "__self__", None) is self:
            delattr(self._client, "close")


def observe(client: ServiceBusClient, listener: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have it called when the client is about to be closed. Several pairs may be made, and end, at the same time."""
    _observers_of(client).add(listener)


def observe_no_longer(client: ServiceBusClient, listener: Callable[[], Coroutine[Any, Any, None]]) -> None:
    _observers_of(client).remove(listener)


def _observers_of(client: ServiceBusClient) -> CloseObservers:
    standing_in: object = getattr(client.close, "__self__", None)
    if isinstance(standing_in, CloseObservers):
        return standing_in
    observers = CloseObservers(client)
    setattr(client, "close", observers.close)  # noqa: B010 - a method cannot be assigned to under strict types
    return observers


@final
class Partners:
    """Watches both clients of a pair. Acts only where a syphon needs both (`is_strict`): elsewhere an application may
    close one and keep the other, which may serve other pairs.

    The syphon ends before a client that it works on: under its hands the SDK's receivers end with tracebacks.
    """

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        is_strict: bool,
        runtime: Runtime,
        listeners: Listeners,
        faulted: Callable[[], None],
        end_syphon: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._clients: dict[Side, ServiceBusClient] = {"primary": primary, "secondary": secondary}
        self._is_strict = is_strict
        self._runtime = runtime
        self._listeners = listeners
        self._faulted = faulted
        self._end_syphon = end_syphon
        self._rule = PartnerRule(runtime.clock)
        self._reason = "was closed"
        self._timer: Timer | None = None
        observe(primary, self._primary_closed)
        observe(secondary, self._secondary_closed)

    def error(self) -> PairFaulted | None:
        """What every call is answered with from now on, if a client was closed because of the other."""
        if not self._rule.is_faulted or self._rule.first is None:
            return None
        return PairFaulted(self._rule.first, self._reason)

    def client_faulted(self, side: Side, error: BaseException) -> None:
        """A client is of no use any more: its key was refused for good."""
        if self._rule.first is None:
            self._reason = f"has faulted ({error!r})"
        self._gone(side)
        if self._is_strict:
            self._runtime.start(self._end_syphon)

    def stop(self) -> None:
        """Watch no longer. The clients are as they were."""
        if self._timer is not None:
            self._timer.cancel()
        observe_no_longer(self._clients["primary"], self._primary_closed)
        observe_no_longer(self._clients["secondary"], self._secondary_closed)

    async def _primary_closed(self) -> None:
        await self._closed("primary")

    async def _secondary_closed(self) -> None:
        await self._closed("secondary")

    async def _closed(self, side: Side) -> None:
        self._gone(side)
        if self._is_strict:
            await self._end_syphon()

    def _gone(self, side: Side) -> None:
        if self._rule.gone(side) and self._is_strict:
            self._wait()

    def _wait(self) -> None:
        left_s = self._rule.due_in_s()
        if left_s is not None:
            self._timer = self._runtime.call_later(left_s, self._time_is_up)

    def _time_is_up(self) -> None:
        side, first = self._rule.to_fault(), self._rule.first
        if side is None or first is None:
            self._wait()
            return
        self._listeners.tell(ClientFaulted(self._runtime.clock.now(), side, first))
        self._faulted()
        self._runtime.start(self._clients[side].close)
