"""Links: one direction of messages between two nodes, within a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.delivery_states import AmqpError, Outcome
from tandembus.amqp.encoding.descriptors import SOURCE, TARGET, TRANSACTIONAL_STATE
from tandembus.amqp.encoding.frames import AttachFrame
from tandembus.amqp.encoding.performatives import Attach, Flow, Transfer
from tandembus.amqp.encoding.terminus import Terminus
from tandembus.amqp.engine.conditions import (
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    ProtocolViolation,
)
from tandembus.amqp.engine.events import DeliveryReceived, DeliveryTooLarge, Event, LinkDetached, LinkFlow, WorkDropped
from tandembus.amqp.engine.serial import distance, following
from tandembus.amqp.engine.settings import MAX_TAG_BYTES, MAX_TRANSFERS_BEYOND_CREDIT, PART_OVERHEAD_BYTES
from tandembus.amqp.engine.states import LinkState
from tandembus.amqp.engine.unsettled import OutgoingDelivery
from tandembus.errors import InvalidArgument
from tandembus.large_messages import LARGE_BYTES

if TYPE_CHECKING:
    from tandembus.amqp.engine.amqp_session import AmqpSession

__all__ = ["IncomingLink", "Link", "OutgoingDelivery", "OutgoingLink", "tell_dropped"]


class Link:
    """What both directions share. The application keeps its own object in `context`."""

    __slots__ = (
        "context",
        "handle",
        "initial_delivery_count",
        "is_attached",
        "is_receiver",
        "max_message_size",
        "name",
        "peer_handle",
        "properties",
        "rcv_settle_mode",
        "session",
        "snd_settle_mode",
        "source",
        "state",
        "target",
        "was_reported",
    )

    def __init__(self, session: AmqpSession, name: str, handle: int, is_receiver: bool) -> None:
        self.session: Final = session
        self.name: Final = name
        self.handle: i64 = handle
        self.is_receiver: Final = is_receiver
        self.peer_handle: i64 = -1
        self.state: LinkState = LinkState.ATTACHING
        self.is_attached: bool = False
        self.was_reported: bool = False
        self.source: Terminus | None = None
        self.target: Terminus | None = None
        self.snd_settle_mode: int = 2
        self.rcv_settle_mode: int = 0
        self.properties: dict[str, object] | None = None
        self.initial_delivery_count: i64 = 0
        self.max_message_size: i64 = 0
        self.context: object = None

    @property
    def peer_is_receiver(self) -> bool:
        return not self.is_receiver

    def take_attach(self, attach: Attach) -> None:
        """What the peer said about the link, when it asked for it or answered us."""
        self.peer_handle = attach.handle
        self.source = attach.source
        self.target = attach.target
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.properties = attach.properties
        self.initial_delivery_count = attach.initial_delivery_count
        self.max_message_size = attach.max_message_size

    def accept(
        self,
        max_message_size: int = 0,
        properties: dict[str, object] | None = None,
        source: Terminus | None = None,
        target: Terminus | None = None,
    ) -> None:
        """Answer the peer's attach. Source and target are echoed as they came, unless others are given.

        Does nothing when the peer has given up meanwhile.
        """
        if self.state is not LinkState.ATTACHING or not self.session.is_usable():
            return
        answer = AttachFrame(self.name, int(self.handle), self.is_receiver)
        answer.snd_settle_mode = self.snd_settle_mode
        answer.rcv_settle_mode = self.rcv_settle_mode
        answer.source = source or self.source or Terminus(SOURCE)
        answer.target = target or self.target or Terminus(TARGET)
        answer.max_message_size = max_message_size
        answer.properties = properties
        self._begin_counting(max_message_size)
        self.state = LinkState.ATTACHED
        self.is_attached = True
        self.session.write_attach(answer)

    def _begin_counting(self, max_message_size: int) -> None:
        """Set what an accepted link starts with."""

    def refuse(self, error: AmqpError) -> None:
        """Attach without source and target, then detach: a detach alone makes clients drop the connection."""
        if self.state is not LinkState.ATTACHING or not self.session.is_usable():
            return
        self.session.write_attach(AttachFrame(self.name, int(self.handle), self.is_receiver))
        self._send_detach(error)

    def detach(self, error: AmqpError | None = None) -> None:
        if not self.session.is_usable():
            return
        if self.state is LinkState.ATTACHING:
            self.refuse(error if error is not None else AmqpError(NOT_ALLOWED, "The link was not accepted."))
        elif self.state is LinkState.ATTACHED or self.state is LinkState.REQUESTED:
            self._send_detach(error)

    def _send_detach(self, error: AmqpError | None) -> None:
        self.session.writer.release_all()
        self.state = LinkState.DETACH_SENT
        self.stop()
        self.session.write_detach(self, error)

    def take_flow(self, flow: Flow, events: list[Event]) -> None:
        """What the peer says about this link's flow."""

    def stop(self) -> None:
        """Nothing is sent or taken on this link any more."""
        self.is_attached = False


@final
class OutgoingLink(Link):
    """A link on which we send."""

    __slots__ = ("credit", "delivery_count", "drain", "unsettled_count")

    def __init__(self, session: AmqpSession, name: str, handle: int) -> None:
        super().__init__(session, name, handle, False)
        self.credit: i64 = 0
        self.delivery_count: i64 = 0
        self.drain: bool = False
        self.unsettled_count: i64 = 0

    def window_is_open(self) -> bool:
        """Whether what is sent now goes out now. Sending anyway is safe, but it waits in memory, or goes nowhere."""
        return self.is_attached and self.session.can_send()

    def send(self, tag: bytes, payload: bytes, settled: bool, context: object, message_format: int = 0) -> int:
        """Send one delivery in as many frames as it needs; returns its delivery-id.

        Consumes credit but does not ask for it: the caller looked. Returns -1, and sends nothing, when the link
        is no longer attached.
        """
        if not self.is_attached:
            return -1
        if len(tag) > MAX_TAG_BYTES:
            raise InvalidArgument("a delivery tag has at most 32 bytes")
        session = self.session
        delivery_id: i64 = session.writer.write(self.handle, tag, payload, settled, message_format)
        self.delivery_count = following(self.delivery_count)
        if self.credit > 0:
            self.credit -= 1
        if not settled:
            session.unsettled.add(OutgoingDelivery(self, delivery_id, tag, context))
        return int(delivery_id)

    def drained(self) -> None:
        """Nothing more to send: use up the credit and say so, which is what a draining receiver waits for."""
        if not self.is_attached:
            return
        self.delivery_count = (self.delivery_count + self.credit) & 0xFFFFFFFF
        self.credit = 0
        self.drain = False
        self.session.writer.release_all()
        self.session.write_link_flow(self.handle, self.delivery_count, 0, True)

    def take_flow(self, flow: Flow, events: list[Event]) -> None:
        """Each flow replaces the credit. A receiver that has not seen any delivery may leave its count out."""
        if flow.link_credit >= 0:
            count: i64 = flow.delivery_count if flow.delivery_count >= 0 else self.initial_delivery_count
            self.credit = max(distance(count, self.delivery_count) + flow.link_credit, 0)
        self.drain = flow.drain
        if self.is_attached or self.state is LinkState.ATTACHING:
            events.append(LinkFlow(self))
        if flow.echo and self.is_attached and not flow.drain:
            self.session.write_link_flow(self.handle, self.delivery_count, self.credit, False)

    def _begin_counting(self, max_message_size: int) -> None:
        self.initial_delivery_count = 0

    def stop(self) -> None:
        super().stop()
        self.session.unsettled.forget_link(self)


@final
class IncomingLink(Link):
    """A link on which we receive. `credit` is what the peer has left."""

    __slots__ = (
        "_beyond_credit",
        "_delivery_id",
        "_format",
        "_is_discarding",
        "_is_draining",
        "_is_in_delivery",
        "_lacks_room",
        "_limit",
        "_parts",
        "_reserved",
        "_settled",
        "_size",
        "_state",
        "_tag",
        "_weight",
        "credit",
        "delivery_count",
    )

    def __init__(self, session: AmqpSession, name: str, handle: int) -> None:
        super().__init__(session, name, handle, True)
        self.credit: i64 = 0
        self.delivery_count: i64 = 0
        self._beyond_credit: i64 = 0
        self._limit: i64 = session.connection.settings.max_message_size
        self._is_draining: bool = False
        self._is_in_delivery: bool = False
        self._is_discarding: bool = False
        self._delivery_id: i64 = 0
        self._tag: bytes = b""
        self._format: i64 = 0
        self._settled: bool = False
        self._state: Outcome | None = None
        self._parts: list[bytes] = []
        self._size: i64 = 0
        self._weight: i64 = 0
        self._reserved: i64 = 0
        """For a delivery of more than 1 MiB, whose size is not known before its end."""
        self._lacks_room: bool = False

    def grant(self, credit: int) -> None:
        """Let the peer send `credit` more deliveries from now on."""
        if not self.is_attached:
            return
        self.credit = credit
        self._beyond_credit = 0
        self.session.write_link_flow(self.handle, self.delivery_count, self.credit, False)

    def drain(self) -> None:
        """Ask the peer to send what it has and give back the rest of the credit; `LinkFlow` tells when it has."""
        if not self.is_attached:
            return
        self._is_draining = True
        self.session.write_link_flow(self.handle, self.delivery_count, self.credit, True)

    def set_limit(self, max_message_size: int) -> None:
        """Deliveries above this become `DeliveryTooLarge`; 0 leaves only the engine's own limit."""
        self._limit = self.session.connection.settings.max_message_size
        if 0 < max_message_size < self._limit:
            self._limit = max_message_size

    def _begin_counting(self, max_message_size: int) -> None:
        self.set_limit(max_message_size)

    def take_attach(self, attach: Attach) -> None:
        super().take_attach(attach)
        self.delivery_count = attach.initial_delivery_count

    def take_flow(self, flow: Flow, events: list[Event]) -> None:
        """The peer is the sender: its credit field means nothing, except that draining is done at zero."""
        if self._is_draining and flow.drain:
            if flow.delivery_count >= 0:
                self.delivery_count = flow.delivery_count
            self.credit = 0
            self._is_draining = False
            events.append(LinkFlow(self))
        elif flow.echo and self.is_attached:
            self.session.write_link_flow(self.handle, self.delivery_count, self.credit, False)

    def stop(self) -> None:
        super().stop()
        self._drop_parts()
        self._is_in_delivery = False

    def take_transfer(self, transfer: Transfer, data: bytes, end: i64, events: list[Event]) -> None:
        """One frame of a delivery. Most deliveries have only one."""
        if not self._is_in_delivery:
            if transfer.delivery_id < 0:
                raise ProtocolViolation(NOT_ALLOWED, "The first transfer of a delivery needs a delivery-id.")
            if not self._count_delivery(events):
                tell_dropped(transfer.state, events)
                return
            if not transfer.more and not transfer.aborted:
                self._take_whole(transfer, data, end, events)
                return
            self._begin_delivery(transfer)
        elif transfer.delivery_id >= 0 and transfer.delivery_id != self._delivery_id and transfer.tag != self._tag:
            # Under the same tag it is the same delivery: fe2o3-amqp gives the last frame of one an id of its own.
            raise ProtocolViolation(NOT_ALLOWED, "A delivery began before the one before it ended.")
        self._take_part(transfer, data, end, events)

    def _count_delivery(self, events: list[Event]) -> bool:
        self.delivery_count = following(self.delivery_count)
        if self.credit > 0:
            self.credit -= 1
            return True
        self._beyond_credit += 1
        if self._beyond_credit <= MAX_TRANSFERS_BEYOND_CREDIT:
            return True
        error = AmqpError(TRANSFER_LIMIT_EXCEEDED, "Far more transfers than the link has credit for.")
        self._send_detach(error)
        self.was_reported = True
        events.append(LinkDetached(self, error, True, False))
        return False

    def _take_whole(self, transfer: Transfer, data: bytes, end: i64, events: list[Event]) -> None:
        start: i64 = transfer.payload_at
        if end - start > self._limit:
            events.append(DeliveryTooLarge(self, transfer.delivery_id, transfer.settled, transfer.state, end - start))
            return
        tag = transfer.tag
        events.append(
            DeliveryReceived(
                self,
                transfer.delivery_id,
                tag if tag is not None else b"",
                transfer.message_format,
                transfer.settled,
                data[start:end],
                transfer.state,
            )
        )

    def _begin_delivery(self, transfer: Transfer) -> None:
        self._is_in_delivery = True
        self._is_discarding = False
        self._lacks_room = False
        self._delivery_id = transfer.delivery_id
        self._tag = transfer.tag or b""
        self._format = transfer.message_format
        self._settled = False
        self._state = None

    def _take_part(self, transfer: Transfer, data: bytes, end: i64, events: list[Event]) -> None:
        if transfer.settled:
            self._settled = True
        if transfer.state is not None:
            self._state = transfer.state
        if transfer.aborted:
            self._drop_parts()
            self._is_in_delivery = False
            return
        if self._is_discarding:
            self._size += end - transfer.payload_at
        else:
            self._keep_part(data, transfer.payload_at, end)
        if not transfer.more:
            self._end_delivery(events)

    def _keep_part(self, data: bytes, start: i64, end: i64) -> None:
        if start >= end:
            return
        self._size += end - start
        if self._size > self._limit:
            self._discard()
            return
        if self._size > LARGE_BYTES:
            connection = self.session.connection
            if self._reserved == 0:
                if not connection.begin_large(self._limit):
                    self._lacks_room = True
                    self._discard()
                    return
                self._reserved = self._limit
            connection.large_heard += end - start
        weight: i64 = end - start + PART_OVERHEAD_BYTES
        self._weight += weight
        if not self.session.connection.hold_unfinished(weight):
            raise ProtocolViolation(RESOURCE_LIMIT_EXCEEDED, "Too many unfinished deliveries on this connection.")
        self._parts.append(data[start:end])

    def _discard(self) -> None:
        self._is_discarding = True
        size = self._size
        self._drop_parts()
        self._size = size  # whoever sent it learns how large it is

    def _drop_parts(self) -> None:
        connection = self.session.connection
        connection.hold_unfinished(-self._weight)
        if self._reserved > 0:
            connection.end_large(self._reserved)
            self._reserved = 0
        self._parts = []
        self._size = 0
        self._weight = 0

    def _end_delivery(self, events: list[Event]) -> None:
        self._is_in_delivery = False
        if self._is_discarding:
            events.append(
                DeliveryTooLarge(self, self._delivery_id, self._settled, self._state, self._size, self._lacks_room)
            )
            self._drop_parts()
            return
        payload = b"".join(self._parts)
        self._drop_parts()
        events.append(
            DeliveryReceived(self, self._delivery_id, self._tag, self._format, self._settled, payload, self._state)
        )


def tell_dropped(state: Outcome | None, events: list[Event]) -> None:
    """What has this state is not taken; where it was a part of a transaction, somebody must know."""
    if state is not None and state.code == TRANSACTIONAL_STATE:
        events.append(WorkDropped(state))
