"""Sends the messages of one paired sender to backlog queues on the secondary, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, final

from azure.servicebus import ServiceBusMessageBatch

from tandembus.client.errors import ConnectionLost
from tandembus.errors import InvalidArgument, InvalidOperation, MalformedData, MessageTooLarge, OperationTimeout
from tandembus.pairing.backlog_queues import BacklogQueues
from tandembus.pairing.batch import PairedMessageBatch
from tandembus.pairing.closing import Gate
from tandembus.pairing.errors import BacklogMessageTooLarge, PairingError, SendAvailabilityBacklogError
from tandembus.pairing.payloads import to_backlog
from tandembus.pairing.runtime import Attempt, Ending, GivenUp, Runtime
from tandembus.pairing.sdk import BATCH_OVERHEAD_BYTES, Outgoing

T = TypeVar("T")
LEAST_LIMIT_S: Final = 0.001
MAX_BATCH_BYTES: Final = 1_048_576
"""However large single messages may be."""
NOTHING: Final[Mapping[str, BaseException]] = {}
THE_MESSAGES_FAULT: Final = (InvalidArgument, InvalidOperation, MalformedData, MessageTooLarge)
"""No other backlog queue would take the message either."""


class BacklogLinks(Protocol):
    """Links to the backlog queues. They open when they are used, and again after they were lost."""

    def is_open(self, path: str) -> bool: ...

    async def max_message_bytes(self, path: str) -> int: ...

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        """Sends all of them, in this order, or none."""

    async def close(self) -> None: ...


@final
class Diverted:
    """A caller's message, and its form for the backlog."""

    __slots__ = ("form", "given", "key", "size_bytes")

    def __init__(self, message: Outgoing, path: str) -> None:
        read = message.read()
        self.given: Final = message.given
        self.key: Final = read.session_id or read.partition_key
        """Messages with one key keep their order."""
        self.form: Final = to_backlog(message.payload, path)
        self.size_bytes: Final = len(self.form) + BATCH_OVERHEAD_BYTES


Pack: TypeAlias = list[Diverted]


@final
class Divert:
    """One call's messages on their way into the backlog: those that no queue has taken yet, and the time left."""

    def __init__(self, path: str, messages: Sequence[Outgoing], give_up_at: float | None) -> None:
        self.path = path
        self.unsent: Pack = [Diverted(message, path) for message in messages]
        self.causes: dict[str, BaseException] = {}
        self.reconnected: set[str] = set()
        """Queues that this call has tried again on a new connection."""
        self.is_partly_done = False
        self._give_up_at = give_up_at

    def accepted(self, pack: Pack) -> None:
        taken = {id(one) for one in pack}
        self.unsent = [one for one in self.unsent if id(one) not in taken]
        self.is_partly_done = True

    def left_s(self, now: float, otherwise_s: float) -> float:
        """Seconds that are left of the caller's time-out, which bounds the whole call."""
        return otherwise_s if self._give_up_at is None else max(self._give_up_at - now, LEAST_LIMIT_S)

    def is_late(self, now: float) -> bool:
        return self._give_up_at is not None and now >= self._give_up_at

    def to_check(self, group: Pack) -> Pack:
        """Messages whose size is checked before `group` is sent: all of them, until something is sent (N9)."""
        return list(group if self.is_partly_done else self.unsent)

    def error(self, known: Mapping[str, BaseException] = NOTHING) -> SendAvailabilityBacklogError:
        """`known`: why queues were out of use already."""
        return SendAvailabilityBacklogError(self.path, [one.given for one in self.unsent], {**known, **self.causes})

    def failed(self, queue: str, error: Exception) -> Exception:
        """What the caller gets for a failure that ends the call. Once some messages are in the backlog it says which
        are not: a caller who sends all of them again sends the others twice."""
        if isinstance(error, PairingError) and not self.is_partly_done:
            return error
        self.causes[queue] = error
        return self.error()


@final
class BacklogSender:
    """Tries one backlog queue after the other until one takes the messages (N7). Its own queue is chosen by chance, and
    kept as long as it takes what is sent (N6)."""

    def __init__(
        self,
        path: str,
        links: BacklogLinks,
        queues: BacklogQueues,
        timeout_s: float,
        runtime: Runtime,
        gate: Gate,
    ) -> None:
        self._path = path
        self._links = links
        self._queues = queues
        self._timeout_s = timeout_s
        self._runtime = runtime
        self._gate = gate
        self._is_stopped = False
        self._own_queue: str | None = None
        self._attempts: set[Attempt] = set()

    async def send(self, messages: Sequence[Outgoing], timeout_s: float | None) -> None:
        """Returns when all are in the backlog."""
        divert = Divert(self._path, messages, None if timeout_s is None else self._now() + timeout_s)
        for key, group in self._grouped(divert.unsent):
            await self._send_group(key, group, divert)

    async def create_message_batch(self, max_size_in_bytes: int | None) -> PairedMessageBatch:
        """As large as a backlog queue allows; the primary may be back when it is sent."""
        causes: dict[str, BaseException] = {}
        while (queue := self._pick(None)) is not None and queue not in causes:
            try:
                limit_bytes = await self._batch_bytes(queue, self._timeout_s)
            except PairingError:
                raise
            except Exception as error:
                self._queues.drop(queue, error)
                causes[queue] = error
                continue
            if max_size_in_bytes is not None and max_size_in_bytes > limit_bytes:
                raise ValueError(
                    f"Max message size: {max_size_in_bytes} is too large, acceptable max batch size is: "
                    f"{limit_bytes} bytes."
                )
            return PairedMessageBatch(ServiceBusMessageBatch(max_size_in_bytes or limit_bytes))
        raise SendAvailabilityBacklogError(self._path, (), {**self._queues.errors, **causes})

    def stop(self) -> None:
        """Gives up what is under way. It and all that follows is answered with what the gate says."""
        self._is_stopped = True
        for attempt in tuple(self._attempts):
            attempt.give_up(Ending.STOPPED)

    def _grouped(self, diverted: Pack) -> list[tuple[str | None, Pack]]:
        """Messages for the same queue together, in their order."""
        if not self._queues.is_by_key:
            return [(None, list(diverted))]
        groups: dict[str | None, Pack] = {}
        for one in diverted:
            groups.setdefault(one.key, []).append(one)
        return list(groups.items())

    async def _send_group(self, key: str | None, group: Pack, divert: Divert) -> None:
        while group:
            queue = self._pick(key)
            if queue is None or queue in divert.causes:
                raise divert.error(self._queues.errors)
            was_open = self._links.is_open(queue)
            try:
                await self._send_on(queue, group, divert)
            except Exception as error:
                self._refused(queue, was_open, error, divert)

    async def _send_on(self, queue: str, group: Pack, divert: Divert) -> None:
        # All of them, before anything is sent: a message that does not fit must not leave half of a list behind (N9).
        to_check = divert.to_check(group)
        limit_bytes = await self._call(lambda: self._links.max_message_bytes(queue), self._limit_s(divert), queue)
        for one in to_check:
            if one.size_bytes > limit_bytes:
                raise BacklogMessageTooLarge(one.size_bytes, limit_bytes)
        while group:
            pack = _fitting(group, min(limit_bytes, MAX_BATCH_BYTES))
            await self._send_pack(queue, [one.form for one in pack], self._limit_s(divert))
            divert.accepted(pack)
            del group[: len(pack)]

    async def _send_pack(self, queue: str, payloads: list[bytes], limit_s: float) -> None:
        await self._call(lambda: self._links.send(queue, payloads), limit_s, queue)

    async def _call(self, call: Callable[[], Coroutine[Any, Any, T]], limit_s: float, queue: str) -> T:
        if self._is_stopped:
            raise self._gate.gone()
        attempt = Attempt(self._runtime)
        self._attempts.add(attempt)
        try:
            return await attempt.run(call, limit_s)
        except GivenUp as given_up:
            if given_up.ending is Ending.STOPPED:
                raise self._gate.gone() from None
            raise OperationTimeout(f"{queue} did not answer within {limit_s:g} s") from None
        finally:
            self._attempts.discard(attempt)

    def _refused(self, queue: str, was_open: bool, error: Exception, divert: Divert) -> None:
        """Raises, unless another queue is to be tried, or this one again."""
        if isinstance(error, (PairingError, *THE_MESSAGES_FAULT)):
            raise divert.failed(queue, error)
        if was_open and isinstance(error, ConnectionLost) and queue not in divert.reconnected:
            # An old connection says nothing about the queue: the secondary may have been restarted since the last time.
            divert.reconnected.add(queue)
        else:
            self._queues.drop(queue, error)
            divert.causes[queue] = error
        if divert.is_late(self._now()):
            raise divert.failed(queue, error) from error

    async def _batch_bytes(self, queue: str, limit_s: float) -> int:
        limit_bytes = await self._call(lambda: self._links.max_message_bytes(queue), limit_s, queue)
        return min(limit_bytes, MAX_BATCH_BYTES)

    def _pick(self, key: str | None) -> str | None:
        queue = self._queues.pick(key, self._own_queue)
        if key is None:
            self._own_queue = queue
        return queue

    def _limit_s(self, divert: Divert) -> float:
        """Of one attempt."""
        return divert.left_s(self._now(), self._timeout_s)

    def _now(self) -> float:
        return self._runtime.clock.monotonic()


def _fitting(waiting: Pack, room_bytes: int) -> Pack:
    """The first messages that fit into a batch. One that is larger than a batch goes by itself."""
    count, used_bytes = 1, waiting[0].size_bytes
    while count < len(waiting) and used_bytes + waiting[count].size_bytes <= room_bytes:
        used_bytes += waiting[count].size_bytes
        count += 1
    return waiting[:count]
