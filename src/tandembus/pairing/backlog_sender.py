"""Sends the messages of one paired sender to backlog queues on the secondary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusCommunicationError, ServiceBusConnectionError

from tandembus.pairing.backlog_queues import BacklogQueues
from tandembus.pairing.batch import PairedMessageBatch
from tandembus.pairing.closing import Gate
from tandembus.pairing.errors import BacklogMessageTooLarge, SendAvailabilityBacklogError
from tandembus.pairing.failures import is_the_messages_fault
from tandembus.pairing.links import Link
from tandembus.pairing.payloads import to_backlog as encoded_to_backlog
from tandembus.pairing.runtime import Retired, Runtime, Stopped, together
from tandembus.pairing.sdk import BATCH_OVERHEAD_BYTES, Outgoing, can_be_encoded, fill, max_message_bytes
from tandembus.pairing.transfer import encoded_size, to_backlog

LEAST_LIMIT_S: Final = 0.001
NOTHING: Final[Mapping[str, BaseException]] = {}
CUT_OFF: Final = (ServiceBusConnectionError, ServiceBusCommunicationError, ConnectionError)
"""How the SDK tells that a connection is gone."""


@final
class Diverted:
    """A caller's message, and its form for the backlog: encoded where the SDK has encoded it already."""

    __slots__ = ("_message", "form", "given", "size_bytes")

    def __init__(self, message: Outgoing, path: str) -> None:
        self.given: Final = message.given
        self._message: Final = message
        self.form: Final[ServiceBusMessage | bytes] = (
            to_backlog(message.given, path) if message.payload is None else encoded_to_backlog(message.payload, path)
        )
        self.size_bytes: Final = (
            len(self.form) + BATCH_OVERHEAD_BYTES if isinstance(self.form, bytes) else encoded_size(self.form)
        )

    def key(self) -> str | None:
        """What the order is kept by: session id, else partition key."""
        message = self._message.read()
        return message.session_id or message.partition_key


Pack: TypeAlias = list[Diverted]


@final
class Divert:
    """One call's messages on their way into the backlog: what no queue has taken yet, and how long there is for it."""

    def __init__(self, path: str, messages: Sequence[Outgoing], give_up_at: float | None) -> None:
        self.path = path
        self.unsent: Pack = [Diverted(message, path) for message in messages]
        self.causes: dict[str, BaseException] = {}
        self.reconnected: set[str] = set()
        """Queues that this call has tried again on a new connection."""
        self._message_count = len(self.unsent)
        self._give_up_at = give_up_at

    def accepted(self, taken: Pack) -> None:
        gone = {id(one) for one in taken}
        self.unsent = [one for one in self.unsent if id(one) not in gone]

    def left_s(self, now: float) -> float | None:
        """Of the caller's time-out, which bounds all of it; None if there is none."""
        return None if self._give_up_at is None else max(self._give_up_at - now, LEAST_LIMIT_S)

    def is_late(self, now: float) -> bool:
        return self._give_up_at is not None and now >= self._give_up_at

    def is_partly_done(self) -> bool:
        return len(self.unsent) < self._message_count

    def to_check(self, group: Pack) -> Pack:
        """What must fit before the messages of `group` are sent: everything, as long as nothing is sent (N9)."""
        return list(group if self.is_partly_done() else self.unsent)

    def error(self, known: Mapping[str, BaseException] = NOTHING) -> SendAvailabilityBacklogError:
        """`known`: why queues were out of use already."""
        return SendAvailabilityBacklogError(self.path, [one.given for one in self.unsent], {**known, **self.causes})

    def late(self, queue: str, error: Exception) -> SendAvailabilityBacklogError:
        """The caller's time is up, and this is what the last queue answered."""
        self.causes[queue] = error
        return self.error()

    def failed(self, queue: str, error: Exception) -> Exception:
        """What to raise for an error that ends it. Once some of the messages are in the backlog, the caller must be
        told which: whoever sends all of them again sends those twice."""
        if not self.is_partly_done():
            return error
        self.causes[queue] = error
        return self.error()


@final
class BacklogSender:
    """Tries one backlog queue after the other until one takes the messages (N7). Its own queue is chosen by chance, and
    kept as long as that takes what is sent (N6). Sends on one queue take turns: the SDK's senders are not made for
    being shared, and at a failover many sends arrive here together."""

    def __init__(
        self,
        path: str,
        secondary: ServiceBusClient,
        queues: BacklogQueues,
        timeout_s: float,
        runtime: Runtime,
        gate: Gate,
    ) -> None:
        self._path = path
        self._secondary = secondary
        self._queues = queues
        self._timeout_s = timeout_s
        self._runtime = runtime
        self._gate = gate
        self._is_stopped = False
        self._own_queue: str | None = None
        self._links: dict[str, Link] = {}

    async def send(self, messages: Sequence[Outgoing], timeout_s: float | None) -> None:
        """Returns when all are in the backlog."""
        give_up_at = None if timeout_s is None else self._runtime.clock.monotonic() + timeout_s
        divert = Divert(self._path, messages, give_up_at)
        for key, group in self._grouped(divert.unsent):
            await self._send_group(key, group, divert)

    async def create_message_batch(self, max_size_in_bytes: int | None) -> PairedMessageBatch:
        """As large as a backlog queue allows; the primary may be back when it is sent."""
        causes: dict[str, BaseException] = {}
        while (queue := self._pick(None)) is not None and queue not in causes:
            link = self._link_to(queue)
            if link is None:
                raise self._gate.gone()
            if not await link.turns.take(self._timeout_s):
                raise _busy(queue)
            try:
                return await link.call(partial(_new_batch, link.sdk, max_size_in_bytes), self._timeout_s)
            except Retired:
                # Somebody else's call on it was given up while this one waited for its turn.
                self._forget(queue, link)
            except Stopped:
                raise self._gate.gone() from None
            except Exception as error:
                if not self._give_up(queue, link, error, ()):
                    raise
                causes[queue] = error
            finally:
                link.turns.give_back()
        raise SendAvailabilityBacklogError(self._path, (), {**self._queues.errors, **causes})

    def stop(self) -> None:
        """Gives up what is under way. It and all that follows is answered with what the gate says."""
        for link in self._stopped_links():
            link.stop()

    async def close(self) -> None:
        await together([link.close for link in self._stopped_links()])

    def _stopped_links(self) -> list[Link]:
        self._is_stopped = True
        return list(self._links.values())

    def _grouped(self, diverted: Pack) -> list[tuple[str | None, Pack]]:
        """What goes to one queue together, in its order."""
        if not self._queues.is_by_key:
            return [(None, list(diverted))]
        groups: dict[str | None, Pack] = {}
        for one in diverted:
            groups.setdefault(one.key(), []).append(one)
        return list(groups.items())

    async def _send_group(self, key: str | None, group: Pack, divert: Divert) -> None:
        while group:
            queue = self._pick(key)
            if queue is None or queue in divert.causes:
                raise divert.error(self._queues.errors)
            link = self._link_to(queue)
            if link is None:
                raise divert.failed(queue, self._gate.gone())
            # Whoever is at it is bounded; so waiting takes its end, and only a caller's own time-out ends it sooner.
            if not await link.turns.take(divert.left_s(self._runtime.clock.monotonic())):
                raise divert.late(queue, _busy(queue))
            try:
                await self._send_on(link, group, divert)
            except Retired:
                # Somebody else's call on it was given up while this one waited for its turn.
                self._forget(queue, link)
            except Exception as error:
                self._refused(queue, link, error, group, divert)
            finally:
                link.turns.give_back()

    async def _send_on(self, link: Link, group: Pack, divert: Divert) -> None:
        # All of them, before anything is sent: what does not fit must not leave half of a list in the backlog (N9).
        to_check = divert.to_check(group)
        await link.call(lambda: _check_sizes(link.sdk, to_check), self._limit_s(divert))
        while group:
            limit_s, waiting = self._limit_s(divert), list(group)
            count = await self._send_pack(link, waiting, limit_s)
            link.has_worked = True
            divert.accepted(group[:count])
            del group[:count]

    async def _send_pack(self, link: Link, waiting: Pack, limit_s: float) -> int:
        return await link.call(lambda: _send_pack(link.sdk, waiting, limit_s), limit_s)

    def _refused(self, queue: str, link: Link, error: Exception, group: Pack, divert: Divert) -> None:
        """Raises, unless another queue is to be tried, or this one again."""
        if isinstance(error, Stopped):
            raise divert.failed(queue, self._gate.gone()) from None
        if link.has_worked and isinstance(error, CUT_OFF) and queue not in divert.reconnected:
            # An old connection says nothing about the queue: the secondary may have been restarted since the last time.
            divert.reconnected.add(queue)
            self._forget(queue, link)
        elif not self._give_up(queue, link, error, [one.form for one in group]):
            raise divert.failed(queue, error)
        else:
            divert.causes[queue] = error
        if divert.is_late(self._runtime.clock.monotonic()):
            raise divert.late(queue, error) from error

    def _give_up(self, queue: str, link: Link, error: Exception, forms: Sequence[ServiceBusMessage | bytes]) -> bool:
        """Takes the queue out of use, if it is to blame."""
        is_the_messages = is_the_messages_fault(error)
        written = [form for form in forms if isinstance(form, ServiceBusMessage)]
        if is_the_messages or (is_the_messages is None and not can_be_encoded(written)):
            return False
        self._forget(queue, link)
        self._queues.drop(queue, error)
        return True

    def _forget(self, queue: str, link: Link) -> None:
        if self._links.get(queue) is link:
            del self._links[queue]
        link.retire()

    def _pick(self, key: str | None) -> str | None:
        queue = self._queues.pick(key, self._own_queue)
        if key is None:
            self._own_queue = queue
        return queue

    def _link_to(self, queue: str) -> Link | None:
        """None once it is stopped."""
        if self._is_stopped:
            return None
        link = self._links.get(queue)
        if link is None or link.is_retired:
            link = Link(self._secondary.get_queue_sender(queue), self._runtime)
            self._links[queue] = link
        return link

    def _limit_s(self, divert: Divert) -> float:
        """Of one attempt."""
        left_s = divert.left_s(self._runtime.clock.monotonic())
        return self._timeout_s if left_s is None else left_s


def _busy(queue: str) -> OperationTimeoutError:
    return OperationTimeoutError(message=f"{queue} was busy with other sends for too long.")


async def _new_batch(sdk: ServiceBusSender, max_size_in_bytes: int | None) -> PairedMessageBatch:
    return PairedMessageBatch(await sdk.create_message_batch(max_size_in_bytes))


async def _check_sizes(sdk: ServiceBusSender, waiting: Pack) -> None:
    limit_bytes = max_message_bytes(sdk, await sdk.create_message_batch())
    for one in waiting:
        if one.size_bytes > limit_bytes:
            raise BacklogMessageTooLarge(one.size_bytes, limit_bytes)


async def _send_pack(sdk: ServiceBusSender, waiting: Pack, limit_s: float) -> int:
    """As many of them as fit into one batch; how many those were. One that is larger than a batch goes by itself."""
    batch = await sdk.create_message_batch()
    pack = _fitting(waiting, batch.max_size_in_bytes - batch.size_in_bytes)
    first = pack[0].form
    if len(pack) == 1 and isinstance(first, ServiceBusMessage):
        await sdk.send_messages(first, timeout=limit_s)
        return 1
    payloads = [one.form for one in pack if isinstance(one.form, bytes)]
    if payloads:
        fill(batch, payloads)
    for one in pack:
        if isinstance(one.form, ServiceBusMessage):
            batch.add_message(one.form)
    await sdk.send_messages(batch, timeout=limit_s)
    return len(pack)


def _fitting(waiting: Pack, room_bytes: int) -> Pack:
    """At least one. All of a call are encoded, or none is."""
    count, used_bytes = 1, waiting[0].size_bytes
    while count < len(waiting) and used_bytes + waiting[count].size_bytes <= room_bytes:
        used_bytes += waiting[count].size_bytes
        count += 1
    return waiting[:count]
