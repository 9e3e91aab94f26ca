"""The protocol's own session: a pair of windows, and the links that share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.delivery_states import AmqpError
from tandembus.amqp.encoding.frames import (
    AttachFrame,
    write_begin,
    write_detach,
    write_disposition,
    write_end,
    write_link_flow,
    write_session_flow,
)
from tandembus.amqp.encoding.performatives import Attach, Begin, Detach, Disposition, Flow, Transfer
from tandembus.amqp.encoding.terminus import Terminus
from tandembus.amqp.encoding.terminus import source as source_of
from tandembus.amqp.encoding.terminus import target as target_of
from tandembus.amqp.engine.conditions import (
    ERRANT_LINK,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    LINK_STOLEN,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    ProtocolViolation,
)
from tandembus.amqp.engine.delivery_writer import DeliveryWriter
from tandembus.amqp.engine.events import (
    DispositionReceived,
    Event,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    SessionEnded,
    SettlementConfirmed,
)
from tandembus.amqp.engine.link import IncomingLink, Link, OutgoingLink, tell_dropped
from tandembus.amqp.engine.serial import distance, following
from tandembus.amqp.engine.settings import WINDOW_REFRESH_TRANSFERS
from tandembus.amqp.engine.states import LinkState, SessionState
from tandembus.amqp.engine.unsettled import UnsettledDeliveries
from tandembus.errors import InvalidOperation

if TYPE_CHECKING:
    from tandembus.amqp.engine.connection import Connection


NO_HANDLE: Final = -1


@final
class AmqpSession:
    """Delivery-ids are consecutive within it, over all its links. `links` is by our handles."""

    __slots__ = (
        "_by_name",
        "_by_peer_handle",
        "_handle_max",
        "_last_link",
        "_last_peer_handle",
        "_next_incoming_id",
        "_received_since_flow",
        "_window",
        "channel",
        "connection",
        "context",
        "links",
        "peer_channel",
        "state",
        "unsettled",
        "was_reported",
        "writer",
    )

    def __init__(self, connection: Connection, channel: int, peer_channel: int) -> None:
        self.connection: Final = connection
        self.channel: i64 = channel
        self.peer_channel: i64 = peer_channel
        self.state: SessionState = SessionState.REQUESTED
        self.was_reported: bool = False
        self.context: object = None
        self.links: Final[dict[int, Link]] = {}
        self.unsettled: Final = UnsettledDeliveries()
        self.writer: Final = DeliveryWriter(connection, channel)
        self._by_peer_handle: Final[dict[int, Link]] = {}
        self._by_name: Final[dict[tuple[str, bool], Link]] = {}
        self._last_peer_handle: i64 = -1
        self._last_link: Link | None = None
        self._handle_max: i64 = 0xFFFFFFFF
        self._window: i64 = connection.settings.session_window
        self._next_incoming_id: i64 = 0
        self._received_since_flow: i64 = 0

    def is_usable(self) -> bool:
        """Whether frames may still be written for it."""
        if self.connection.is_closed:
            return False
        return self.state is SessionState.MAPPED or self.state is SessionState.REQUESTED

    # What the application does

    def settle(self, first: int, last: int, outcome: bytes, settled: bool = True, role_receiver: bool = True) -> None:
        """Say what became of deliveries: those we received, or (`role_receiver` False) those we sent.

        `outcome` is an encoded delivery state.
        """
        if not self.is_usable():
            return
        write_disposition(self.connection.out, self.channel, role_receiver, first, last, settled, outcome)
        if settled and not role_receiver:
            self.unsettled.take(first, last, True)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session and with it every link; the answer brings `SessionEnded`."""
        if not self.is_usable():
            return
        self.stop()
        self.state = SessionState.END_SENT
        write_end(self.connection.out, self.channel, error)

    def attach_sender(
        self,
        name: str,
        target: str | Terminus,
        source: str | Terminus | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: dict[str, object] | None = None,
        max_message_size: int = 0,
    ) -> OutgoingLink:
        """Ask for a link on which we send; `LinkAttached` or `LinkDetached` follows."""
        link = OutgoingLink(self, name, self._free_handle(-1))
        link.source = _source(source)
        link.target = target_of(target) if isinstance(target, str) else target
        self._request(link, snd_settle_mode, rcv_settle_mode, properties, max_message_size)
        return link

    def attach_receiver(
        self,
        name: str,
        source: str | Terminus,
        target: str | Terminus | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        properties: dict[str, object] | None = None,
        max_message_size: int = 0,
    ) -> IncomingLink:
        """Ask for a link on which we receive; `LinkAttached` or `LinkDetached` follows. Then grant credit."""
        link = IncomingLink(self, name, self._free_handle(-1))
        link.set_limit(max_message_size)
        link.source = _source(source)
        link.target = target_of(target) if target is None or isinstance(target, str) else target
        self._request(link, snd_settle_mode, rcv_settle_mode, properties, max_message_size)
        return link

    def _request(
        self,
        link: Link,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        properties: dict[str, object] | None,
        max_message_size: int,
    ) -> None:
        if not self.is_usable():
            raise InvalidOperation("the session has ended")
        if link.handle < 0:
            raise InvalidOperation("the peer allows no more links in this session")
        frame = AttachFrame(link.name, int(link.handle), link.is_receiver)
        frame.snd_settle_mode = snd_settle_mode
        frame.rcv_settle_mode = rcv_settle_mode
        frame.source = link.source
        frame.target = link.target
        frame.max_message_size = max_message_size
        frame.properties = properties
        link.state = LinkState.REQUESTED
        self._keep(link)
        self.write_attach(frame)

    def _keep(self, link: Link) -> None:
        self.connection.link_count += 1
        self.links[int(link.handle)] = link
        self._by_name[(link.name, link.is_receiver)] = link

    def _free_handle(self, preferred: int) -> int:
        if preferred >= 0 and preferred not in self.links and preferred <= self._handle_max:
            return preferred
        handle = 0
        while handle in self.links:
            handle += 1
        return handle if handle <= self._handle_max else NO_HANDLE

    # What links write

    def write_attach(self, frame: AttachFrame) -> None:
        frame.write(self.connection.out, self.channel)

    def write_detach(self, link: Link, error: AmqpError | None) -> None:
        write_detach(self.connection.out, self.channel, int(link.handle), True, error)

    def write_link_flow(self, handle: i64, delivery_count: i64, credit: i64, drain: bool) -> None:
        self._received_since_flow = 0
        write_link_flow(
            self.connection.out,
            self.channel,
            self._next_incoming_id,
            self._window,
            self.writer.next_outgoing_id,
            handle,
            delivery_count,
            credit,
            drain,
            False,
        )

    def write_flow(self) -> None:
        self._received_since_flow = 0
        write_session_flow(
            self.connection.out,
            self.channel,
            self._next_incoming_id,
            self._window,
            self.writer.next_outgoing_id,
        )

    def can_send(self) -> bool:
        return self.writer.window > 0 and len(self.unsettled.by_id) < self.connection.settings.max_unsettled

    # What the peer's frames do

    def take_begin(self, begin: Begin) -> None:
        self.state = SessionState.MAPPED
        self._next_incoming_id = begin.next_outgoing_id
        self.writer.window = begin.incoming_window
        self._handle_max = begin.handle_max

    def write_begin(self) -> None:
        write_begin(
            self.connection.out,
            self.channel,
            int(self.peer_channel),
            int(self.writer.next_outgoing_id),
            int(self._window),
            self.connection.settings.handle_max,
        )

    def take_end(self, error: AmqpError | None, events: list[Event]) -> None:
        if self.state is not SessionState.END_SENT:
            write_end(self.connection.out, self.channel, None)
        self.stop()
        self.connection.link_count -= len(self.links)
        self.state = SessionState.ENDED
        if not self.was_reported:
            self.was_reported = True
            events.append(SessionEnded(self, error))

    def stop(self) -> None:
        """Nothing is sent or taken any more; what waited is dropped. The links stay listed."""
        self.unsettled.clear()
        self.writer.clear()
        for link in self.links.values():
            link.stop()

    def let_go(self) -> None:
        """The application is done with the links of a session that is over, whether or not the peer knows yet."""
        if self.state is not SessionState.ENDED:
            self.connection.link_count -= len(self.links)
        for link in self.links.values():
            link.context = None
        self.links.clear()
        self._by_peer_handle.clear()
        self._by_name.clear()
        self._last_link = None
        self.unsettled.clear()

    def _fail(self, condition: str, description: str, events: list[Event]) -> None:
        """The peer broke this session's rules; the connection goes on without it."""
        error = AmqpError(condition, description)
        self.end(error)
        self.was_reported = True
        events.append(SessionEnded(self, error))

    def take_attach(self, attach: Attach, events: list[Event]) -> None:
        if attach.handle > self.connection.settings.handle_max:
            raise ProtocolViolation(FRAMING_ERROR, "A handle above handle-max.")
        if int(attach.handle) in self._by_peer_handle:
            self._fail(HANDLE_IN_USE, f"Handle {attach.handle} is in use.", events)
            return
        link = self._by_name.get((attach.name, not attach.is_receiver))
        if link is not None and link.state is LinkState.REQUESTED:
            self._take_answer(link, attach, events)
        elif link is not None and self._was_given_up(link):
            self._by_peer_handle[int(attach.handle)] = link
        else:
            if link is not None:
                self._steal(link, events)
            self._take_request(attach, events)

    def _was_given_up(self, link: Link) -> bool:
        """Whether we detached before the peer answered our attach: its answer is on the way, and no new link."""
        return link.state is LinkState.DETACH_SENT and link not in self._by_peer_handle.values()

    def _take_answer(self, link: Link, attach: Attach, events: list[Event]) -> None:
        """A refusal has no terminus on the peer's side; its detach with the reason is on the way."""
        link.take_attach(attach)
        self._by_peer_handle[int(attach.handle)] = link
        refused = attach.source is None if link.is_receiver else attach.target is None
        if not refused:
            link.state = LinkState.ATTACHED
            link.is_attached = True
            events.append(LinkAttached(link))

    def _steal(self, link: Link, events: list[Event]) -> None:
        """The name is attached again: the newer link wins (specification 2.6.1)."""
        if link.state is not LinkState.ATTACHED and link.state is not LinkState.ATTACHING:
            return
        error = AmqpError(LINK_STOLEN, "The link's name was attached again.")
        link.detach(error)
        link.was_reported = True
        events.append(LinkDetached(link, error, True, False))

    def _take_request(self, attach: Attach, events: list[Event]) -> None:
        link: Link
        handle = self._free_handle(int(attach.handle))
        if handle < 0:
            self._fail(RESOURCE_LIMIT_EXCEEDED, "All handles that the peer allows are in use.", events)
            return
        if attach.is_receiver:
            link = OutgoingLink(self, attach.name, handle)
        else:
            link = IncomingLink(self, attach.name, handle)
        link.take_attach(attach)
        self._keep(link)
        self._by_peer_handle[int(attach.handle)] = link
        if self.connection.has_too_many_links():
            link.refuse(AmqpError(RESOURCE_LIMIT_EXCEEDED, "Too many links on this connection."))
            link.was_reported = True
        else:
            events.append(LinkAttaching(link))

    def take_detach(self, detach: Detach, events: list[Event]) -> None:
        """A stray detach for a handle that is free asks for nothing, so nothing is done."""
        link = self._by_peer_handle.pop(int(detach.handle), None)
        if link is None:
            return
        is_answer = link.state is LinkState.DETACH_SENT
        if not is_answer:
            self._answer_detach(link, detach.closed)
        link.stop()
        link.state = LinkState.DETACHED
        self._forget(link)
        if not link.was_reported:
            link.was_reported = True
            events.append(LinkDetached(link, detach.error, detach.closed, not is_answer))

    def _answer_detach(self, link: Link, closed: bool) -> None:
        if link.state is LinkState.ATTACHING:
            # The peer gave up before we answered: an attach must still come before the detach.
            self.write_attach(AttachFrame(link.name, int(link.handle), link.is_receiver))
        self.writer.release_all()
        write_detach(self.connection.out, self.channel, int(link.handle), closed, None)

    def _forget(self, link: Link) -> None:
        self._last_peer_handle = -1
        self._last_link = None
        self.connection.link_count -= 1
        del self.links[int(link.handle)]
        key = (link.name, link.is_receiver)
        if self._by_name.get(key) is link:
            del self._by_name[key]

    def _link_at(self, peer_handle: i64) -> Link | None:
        """Frames come in runs for one link, so the last one found is remembered."""
        if peer_handle == self._last_peer_handle:
            return self._last_link
        link = self._by_peer_handle.get(int(peer_handle))
        if link is not None:
            self._last_peer_handle = peer_handle
            self._last_link = link
        return link

    def take_flow(self, flow: Flow, events: list[Event]) -> None:
        link: Link | None = None
        if flow.handle >= 0:
            link = self._link_at(flow.handle)
            if link is None:
                self._fail(UNATTACHED_HANDLE, f"Flow for handle {flow.handle}, which is not attached.", events)
                return
        if self.writer.take_flow(flow):
            self._tell_window_is_open(link, events)
        if link is not None:
            link.take_flow(flow, events)
        elif flow.echo:
            self.write_flow()

    def _tell_window_is_open(self, spoken_of: Link | None, events: list[Event]) -> None:
        for link in self.links.values():
            if isinstance(link, OutgoingLink) and link is not spoken_of and link.credit > 0 and link.is_attached:
                events.append(LinkFlow(link))

    def take_transfer(self, transfer: Transfer, data: bytes, end: i64, events: list[Event]) -> None:
        link = self._link_at(transfer.handle)
        if link is None:
            self._fail(UNATTACHED_HANDLE, f"Transfer on handle {transfer.handle}, which is not attached.", events)
            return
        self._next_incoming_id = following(self._next_incoming_id)
        self._received_since_flow += 1
        if self._received_since_flow >= WINDOW_REFRESH_TRANSFERS:
            self.write_flow()
        if not isinstance(link, IncomingLink):
            self._fail(ERRANT_LINK, "Transfer on a link whose receiver is the peer.", events)
        elif link.is_attached or link.state is LinkState.ATTACHING:
            link.take_transfer(transfer, data, end, events)
        else:
            tell_dropped(transfer.state, events)

    def take_disposition(self, disposition: Disposition, events: list[Event]) -> None:
        if not disposition.is_receiver:
            events.append(
                SettlementConfirmed(self, disposition.first, disposition.last, disposition.state, disposition.settled)
            )
            return
        deliveries = self.unsettled.take(disposition.first, disposition.last, disposition.settled)
        if deliveries:
            events.append(DispositionReceived(self, deliveries, disposition.state, disposition.settled))
        if i64(len(deliveries)) <= max(distance(disposition.last, disposition.first), i64(0)):
            tell_dropped(disposition.state, events)


def _source(source: str | Terminus | None) -> Terminus:
    return source_of(source) if source is None or isinstance(source, str) else source
