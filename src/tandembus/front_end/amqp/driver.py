"""One AMQP connection: bytes in, events out, events to links. I/O and routing, nothing else.

Starting an operation never waits, so that many sends share one commit; what has to wait (opening an entity, a request
to a management node) runs in a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, cast

from tandembus.amqp.encoding.descriptors import TRANSACTIONAL_STATE
from tandembus.amqp.engine import (
    ACCEPTED_STATE,
    AmqpError,
    Connection,
    ConnectionClosed,
    DeliveryReceived,
    DeliveryTooLarge,
    EngineSettings,
    Event,
    IncomingLink,
    Link,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    Outcome,
    OutgoingLink,
    SaslInit,
    SessionEnded,
    WorkDropped,
    read_plain_response,
    rejected_state,
    transactional_state,
)
from tandembus.amqp.engine.states import LinkState
from tandembus.errors import (
    BusError,
    EntityNotFound,
    InvalidOperation,
    MalformedData,
    MessageTooLarge,
    NotSupported,
    ServerBusy,
)
from tandembus.front_end.amqp.attaching import Attaching, check_attach, destination_of, right_for
from tandembus.front_end.amqp.claims_held import ClaimsHeld
from tandembus.front_end.amqp.conditions import amqp_error
from tandembus.front_end.amqp.coordinator_link import CoordinatorLink
from tandembus.front_end.amqp.cross_entity import CrossEntitySessions
from tandembus.front_end.amqp.dispatch import dispatch
from tandembus.front_end.amqp.entity_link import EntityLink, receive_meter, send_checks
from tandembus.front_end.amqp.link_host import LinkHost
from tandembus.front_end.amqp.management_node import ManagementNode
from tandembus.front_end.amqp.receiver_link import ReceiveMeter, ReceiverLink
from tandembus.front_end.amqp.reply_link import ReplyLink, read_reply_to
from tandembus.front_end.amqp.sender_link import SenderLink
from tandembus.front_end.amqp.session_holds import SessionHolds
from tandembus.front_end.amqp.session_requests import RecentListings
from tandembus.front_end.amqp.token_node import TokenNode
from tandembus.front_end.amqp.transactions import Transactions
from tandembus.interconnect.traffic import Traffic
from tandembus.large_messages import LARGE_BYTES
from tandembus.logs import ConnectionLog, about, ids
from tandembus.namespace.entity import Entity
from tandembus.namespace.entries import Entry
from tandembus.namespace.paths import EntityAddress, parse_link_address

if TYPE_CHECKING:
    from tandembus.front_end.amqp.front_end import AmqpFrontEnd

log = logging.getLogger("tandembus.amqp")

NODE_CREDIT = 100
MAX_REQUESTS = 200
"""Management requests of one connection under way at the same time."""
MAX_REQUEST_BYTES = 4 * 1024 * 1024
AROUND_BYTES = 64 * 1024
"""For all that stands around a message in a management request."""
UNREAD_CLOSE_S = 5.0
"""How long a closed connection may take to read what was written before."""
ROOM_UNUSED_S = 1.0
"""How long a sender that waited for room may then send nothing, while others wait. Its bytes were ready, so a longer
silence means that the client has given up without closing its socket."""
_GIVEN_UP = "The client has given the link up."
_BROKEN_ATTACH = "The link could not be attached."
_WORK_DROPPED = "A part of the transaction came on a link that was over, or was about deliveries that were."


class _Requests:
    """The sending half of a request/response node."""

    def __init__(self, address: str, node: TokenNode | ManagementNode) -> None:
        self.address = address
        self.node = node


class AmqpConnection(asyncio.Protocol):
    def __init__(self, front_end: AmqpFrontEnd, when_claimed: Callable[[], None]) -> None:
        self._front_end = front_end
        self.log = ConnectionLog(log, front_end.next_connection_id())
        self.clock = front_end.clock
        self.namespace_clock = front_end.namespace.clock
        self.sightings = front_end.namespace.sightings
        self.limits = front_end.limits
        self.held = ClaimsHeld(front_end.authorizer, front_end.clock, when_claimed)
        self.began_at = self.clock.monotonic()
        self._bytes_before_claims = 0
        self._links: dict[Link, EntityLink] = {}
        self.session_holds = SessionHolds(self.clock)
        self._listings = RecentListings()
        self._cross_entity = CrossEntitySessions()
        self._receive_meters: dict[tuple[int, str], ReceiveMeter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_lost = False
        self._is_stopping = False
        self._is_aborted = False
        self._abort_timer: asyncio.TimerHandle | None = None
        settings = EngineSettings(
            is_server=True,
            container_id=front_end.namespace.name,
            max_frame_size=self.limits.max_frame_size_bytes,
            idle_timeout_ms=int(self.limits.idle_timeout_s * 1000),
            max_sessions=self.limits.max_amqp_sessions_per_connection,
            max_links=self.limits.max_links_per_connection,
            max_unfinished_bytes=max(
                self.limits.unacknowledged_bytes_per_connection, 2 * self.limits.max_message_size_bytes
            ),
        )
        self.engine = Connection(settings, self.began_at)
        self._large = front_end.namespace.large_messages
        self.engine.large_memory = self._large
        self._waits_for_room = False
        """A large message has begun to come, and there is no room for the rest of it yet."""
        self._large_moved = 0
        self._large_moved_at = self.began_at
        self._transport: asyncio.Transport
        self.host: LinkHost

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.limits.unsent_bytes_per_connection)
        self.host = LinkHost(
            self.engine,
            self._transport.write,
            self._resume_reading,
            self.feed,
            self._front_end.flusher,
            self.limits.unsent_bytes_per_connection,
            self.limits.unacknowledged_bytes_per_connection,
            Transactions(self._front_end.transaction_limits, self._front_end.transaction_memory, self.clock),
            self._large,
        )
        self.host.pings = self._front_end.pings
        self.host.refusals = self._front_end.refusals
        self.host.connection = self.log.connection
        self._front_end.add(self)
        self.log.tell("connected from %s", self._transport.get_extra_info("peername"))

    def data_received(self, data: bytes) -> None:
        if self._is_aborted:
            return
        if not self.held.has_any():
            self._bytes_before_claims += len(data)
            if self._bytes_before_claims > self.limits.pre_auth_bytes:
                self.close(AmqpError("amqp:unauthorized-access", "Too many bytes before a valid claim.", None))
                return
        events = self.engine.receive_data(data)
        if events:
            self._handle_all(events)
        self.host.flush()
        if self.host.must_pause():
            self.host.is_unread = True
            self._transport.pause_reading()
        if self.engine.wanted_bytes > 0:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._waits_for_room = True
        self._transport.pause_reading()
        self._large.wait(self, self._room_came)

    def _room_came(self) -> None:
        if self.engine.room_came():
            self._waits_for_room = False
            self._resume_reading()
            self._expect_the_rest(-1)
        else:
            self._large.wait(self, self._room_came)

    def _expect_the_rest(self, heard: int) -> None:
        """Closes the connection if the message that got its room makes no progress."""
        if self._is_lost or self.engine.large_count == 0:
            return
        if self.engine.large_heard == heard and self._large.is_awaited():
            self._close_halted()
            return
        asyncio.get_running_loop().call_later(ROOM_UNUSED_S, self._expect_the_rest, int(self.engine.large_heard))

    def _resume_reading(self) -> None:
        is_held_up = self.host.is_unread or self.host.is_backed_up or self._is_stopping or self._waits_for_room
        if not is_held_up and not self._transport.is_closing():
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        """The stop has begun: what is accepted is finished, nothing more is taken."""
        self._is_stopping = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Who does not read its answers may not ask for more."""
        self.host.is_backed_up = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.host.is_backed_up = False
        self._resume_reading()
        self.host.feed_if_stalled()

    def feed(self) -> None:
        """There is room for deliveries again. They are asked for in a step of their own: this is called in the middle
        of others."""
        asyncio.get_running_loop().call_soon(self._feed_links)

    def _feed_links(self) -> None:
        for entity_link in list(self._links.values()):
            entity_link.feed()
        self.host.flush()

    def receive_meter(self, entry: Entry, key: str, reason: str) -> ReceiveMeter:
        """Kept as long as the entity lives: receivers of sessions come and go by the thousand."""
        place = (entry.incarnation, reason)
        found = self._receive_meters.get(place)
        if found is None:
            found = self._receive_meters[place] = receive_meter(self._front_end.meter, key, reason)
        return found

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(is_orderly=False)
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self.host.end()
        self._large.leave(self)
        self.engine.let_go()

    def eof_received(self) -> bool:
        return False

    # Time.

    def tick(self, now: float) -> None:
        if self._waits_for_room:
            self.engine.excuse_silence()
            self._large_moved_at = now
        else:
            self._check_large(now)
        events = self.engine.tick(now)
        if events:
            self._handle_all(events)
        if self.limits.link_idle_timeout_s is not None:
            for entity_link in list(self._links.values()):
                entity_link.check_activity(now, self.limits.link_idle_timeout_s)
        self.host.transactions.tick(now)
        self.host.flush()

    def _check_large(self, now: float) -> None:
        """Who neither sends nor reads the rest of a large message must not keep its room from those who wait for it."""
        if self.engine.large_count == 0 and self.host.given_bytes == 0:
            self._large_moved_at = now
            return
        moved = int(self.engine.large_heard) - self._transport.get_write_buffer_size()
        if self.host.is_unread or abs(moved - self._large_moved) >= LARGE_BYTES:
            self._large_moved, self._large_moved_at = moved, now
        elif now - self._large_moved_at >= self.limits.operation_timeout_s and self._large.is_awaited():
            self._close_halted()

    def _close_halted(self) -> None:
        self.close(AmqpError("amqp:resource-limit-exceeded", "A large message came to a halt on its way.", None))

    def expire(self) -> None:
        """No valid claim was shown in time."""
        if not self._is_lost:
            self.close(AmqpError("amqp:unauthorized-access", "No valid token was put in time.", None))

    def check_claims(self) -> None:
        for entity_link in list(self._links.values()):
            entity_link.check_claims()

    def close(self, error: AmqpError) -> None:
        """Say why, then go."""
        self.log.tell("closed: %s: %s", error.condition, error.description)
        self.engine.close(error)
        self.host.flush()
        self._end(is_orderly=True)
        self._hang_up()

    def abort(self) -> None:
        """Gone without a word, as when the machine is switched off."""
        self._is_aborted = True
        self._transport.abort()

    def _hang_up(self) -> None:
        """Close after what is written has gone out, but do not wait for ever on a peer that does not read."""
        self._transport.close()
        if self._abort_timer is None:
            self._abort_timer = asyncio.get_running_loop().call_later(UNREAD_CLOSE_S, self._transport.abort)

    def _end(self, is_orderly: bool) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self.log.tell("ended %s", "in order" if is_orderly else "without a word")
        self.host.is_gone = True
        for entity_link in self._links.values():
            entity_link.release()
        self._links = {}
        self.host.transactions.forget_all()
        for task in self._tasks:
            task.cancel()
        self._front_end.remove(self)

    # Events.

    def _handle_all(self, events: list[Event]) -> None:
        for event in dispatch(events):
            self._handle(event)

    def _handle(self, event: Event) -> None:
        if isinstance(event, DeliveryReceived):
            self._take_delivery(event)
        elif isinstance(event, LinkFlow):
            self.take_flow(event.link)
        elif isinstance(event, DeliveryTooLarge):
            self._take_too_large(event)
        elif isinstance(event, LinkAttaching):
            self._attach(event.link)
        elif isinstance(event, LinkDetached):
            self._release(event.link)
        elif isinstance(event, SessionEnded):
            for link in event.session.links.values():
                self._release(link)
            self._cross_entity.end(event.session)
            event.session.let_go()
        elif isinstance(event, SaslInit):
            self._take_identity(event)
        elif isinstance(event, WorkDropped):
            self.host.transactions.doom(event.state, InvalidOperation(_WORK_DROPPED))
        elif isinstance(event, ConnectionClosed):
            self.host.flush()
            self._end(is_orderly=event.by_peer)
            self._hang_up()

    def _take_identity(self, event: SaslInit) -> None:
        what = f"a connection by SASL {event.mechanism}"
        try:
            if event.mechanism == "PLAIN":
                credentials = read_plain_response(event.initial_response)
                what += f" with the policy '{credentials.name}'"
                self.held.put("", self._front_end.authorizer.verify_plain(credentials.name, credentials.password))
            elif event.mechanism not in ("ANONYMOUS", "MSSBCBS"):
                raise NotSupported("The mechanisms are MSSBCBS, ANONYMOUS and PLAIN.")
        except BusError as error:
            self.host.refused(error, what)
            self.engine.sasl_outcome(False)
            self.host.flush()
            self._hang_up()
            return
        self.engine.sasl_outcome(True)
        self._handle_all(self.engine.receive_data(b""))

    def take_flow(self, link: Link) -> None:
        context = link.context
        if isinstance(context, ReceiverLink) and isinstance(link, OutgoingLink):
            context.flow()
            # Also when the credit is gone, or the drain is off: whoever feeds it has to know.
            context.feed()
        elif isinstance(context, ReplyLink):
            context.flow()

    def _release(self, link: Link) -> None:
        entity_link = self._links.pop(link, None)
        if entity_link is not None:
            self.log.tell("a link of '%s' is detached", entity_link.entity.name, link=link.name)
            entity_link.release()
        if isinstance(link.context, CoordinatorLink | ReplyLink):
            link.context.end()
        elif isinstance(link.context, Attaching):
            # At once: a discharge may come before the entity is open.
            link.context.drop(InvalidOperation(_GIVEN_UP))
        link.context = None

    def traffic_of(self, entity: Entity) -> Traffic:
        traced = self._front_end.traced
        return entity.traffic if traced is None else traced(entity.name, entity.traffic)

    def entity_links(self) -> list[EntityLink]:
        return list(self._links.values())

    def forget(self, entity_link: EntityLink) -> None:
        self._links.pop(entity_link.link, None)

    # Deliveries that are no messages for an entity.

    def _take_delivery(self, event: DeliveryReceived) -> None:
        context = event.link.context
        if isinstance(context, Attaching):
            if not context.keep(event):
                error = ServerBusy("The entity is still being opened.")
                self.host.transactions.doom(event.state, error)
                self._reject(event, error)
        elif isinstance(context, _Requests):
            self._take_request(event, context)
        elif isinstance(context, CoordinatorLink):
            context.received(event)

    def _take_too_large(self, event: DeliveryTooLarge) -> None:
        context = event.link.context
        if event.lacks_room:
            busy = ServerBusy("Another large message is under way on this connection. Please wait and retry.")
            self.host.transactions.doom(event.state, busy)
            self._reject(event, busy)
        elif isinstance(context, SenderLink):
            context.too_large(-1 if event.settled else event.delivery_id, event.state, event.size_bytes)
        else:
            error = MessageTooLarge(f"The message has {int(event.size_bytes)} bytes, more than the link takes.")
            self.host.transactions.doom(event.state, error)
            self._reject(event, error)

    def _reject(self, event: DeliveryReceived | DeliveryTooLarge, error: BusError) -> None:
        if not event.settled:
            delivery_id = int(event.delivery_id)
            event.link.session.settle(
                delivery_id, delivery_id, rejected_state(amqp_error(error, self.engine.peer_hostname))
            )

    def _take_request(self, event: DeliveryReceived, requests: _Requests) -> None:
        link = event.link
        if link.credit <= NODE_CREDIT // 2:
            link.grant(NODE_CREDIT)
        if len(self._tasks) >= MAX_REQUESTS:
            self._reject(event, ServerBusy("Too many management requests at the same time."))
            return
        state = event.state
        is_transactional = state is not None and state.code == TRANSACTIONAL_STATE
        if not event.settled:
            accepted = ACCEPTED_STATE
            if state is not None and is_transactional:
                accepted = transactional_state(state.txn_id or b"", ACCEPTED_STATE)
            link.session.settle(int(event.delivery_id), int(event.delivery_id), accepted)
        node = requests.node
        if isinstance(node, TokenNode):
            with about(ids(self.log.connection)):
                self._reply(link, requests.address, event.payload, node.answer(event.payload))
        else:
            transaction = state if is_transactional else None
            self._start(link, self._answer(link, requests.address, node, event.payload, transaction))

    async def _answer(
        self, link: Link, address: str, node: ManagementNode, payload: bytes, state: Outcome | None
    ) -> None:
        self.host.take(len(payload))
        try:
            reply = await node.answer(payload, state)
        finally:
            self.host.end_taking(len(payload))
        self._reply(link, address, payload, reply)
        self.host.flush()

    def _reply(self, request_link: Link, address: str, request: bytes, reply: bytes) -> None:
        """On a receiving link of the same session and node. `reply-to` chooses among several, by their target: alone it
        is not unique, and often absent."""
        contexts = [link.context for link in request_link.session.links.values()]
        found = [one for one in contexts if isinstance(one, ReplyLink) and one.node == address]
        if len(found) > 1:
            reply_to = read_reply_to(request)
            found = [one for one in found if one.takes(reply_to)] or found
        if found:
            found[0].send(reply)
            self.host.touch()

    def _start(self, link: Link, work: Coroutine[object, object, None]) -> None:
        with about(ids(self.log.connection, link.name)):
            task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Attaching.

    def _attach(self, link: Link) -> None:
        try:
            terminus = link.target if isinstance(link, IncomingLink) else link.source
            if terminus is not None and terminus.is_coordinator:
                self._attach_coordinator(link)
                return
            if terminus is None:
                raise NotSupported("The attach names no entity.")
            address = parse_link_address(terminus.address or "")
            if address.is_token_node:
                front_end = self._front_end
                node = TokenNode(front_end.namespace, front_end.authorizer, self.held, self.clock, self.host)
                self._attach_node(link, "$cbs", node)
            else:
                check_attach(self.held, link, address)
                self._cross_entity.arrive(link, address)
                self._attach_to_entity(link, address)
        except BusError as error:
            self._refuse(link, error)

    def _attach_to_entity(self, link: Link, address: EntityAddress) -> None:
        """At once where the entity is open already: receivers of sessions come and go by the thousand."""
        entity = self._front_end.namespace.opened(address.key)
        if entity is None or address.is_management or isinstance(link, IncomingLink):
            link.context = attaching = Attaching(self.host)
            self._start(link, self._attach_entity(link, address, attaching))
        else:
            self._attach_link(link, address, EntityLink(self, link, entity, right_for(link), address))

    def _attach_coordinator(self, link: Link) -> None:
        """Some clients declare a transaction before they put any token: each of its parts needs a claim of its own."""
        if not isinstance(link, IncomingLink):
            raise InvalidOperation("A coordinator is the target of a link, never its source.")
        self._cross_entity.coordinate(link)
        coordinator = CoordinatorLink(link, self.host, self.host.transactions)
        link.context = coordinator
        coordinator.start()

    def _refuse(self, link: Link, error: BusError) -> None:
        link.context = None
        self._cross_entity.refused(link)
        self.log.tell("a link is refused: %s", error, link=link.name)
        if link.state is LinkState.ATTACHING and link.session.is_usable():
            terminus = link.target if isinstance(link, IncomingLink) else link.source
            role = "sender" if isinstance(link, IncomingLink) else "receiver"
            self.host.refused(error, f"a {role} of '{terminus.address if terminus is not None else ''}'", link.name)
        link.refuse(amqp_error(error, self.engine.peer_hostname))
        self.host.touch()

    async def _attach_entity(self, link: Link, address: EntityAddress, attaching: Attaching) -> None:
        try:
            namespace = self._front_end.namespace
            entity = await namespace.entity(address.key)
            destination = destination_of(link)
            if destination is not None:
                (await namespace.entity(destination.key)).check_can_send()
            via = None
            if isinstance(link, IncomingLink) and not address.is_management and destination is None:
                via = await self._via(link, address)
            if link.state is not LinkState.ATTACHING or not link.session.is_usable():
                raise InvalidOperation(_GIVEN_UP)
            link.context = None
            if address.is_management:
                checks = send_checks(entity, self.limits)
                meter, held = self._front_end.meter, self.held
                node = ManagementNode(
                    namespace,
                    address,
                    held,
                    meter,
                    checks,
                    self.host,
                    self.session_holds,
                    self._listings,
                    self._front_end.has_reservations,
                )
                self._attach_node(link, address.claim_path, node)
            else:
                entity_link = EntityLink(self, link, entity, right_for(link), address, destination, via)
                self._attach_link(link, address, entity_link)
            self._handle_all(attaching.take())
        except BusError as error:
            if isinstance(link, IncomingLink) and not address.is_management:
                self.sightings.attach_refused(address.path, error)
            self._refuse(link, error)
            attaching.drop(error)
        except Exception:
            log.exception("attaching to '%s'", address.path)
            broken = MalformedData(_BROKEN_ATTACH)
            self._refuse(link, broken)
            attaching.drop(broken)
        self.host.flush()

    async def _via(self, link: Link, address: EntityAddress) -> Entity | None:
        """By way of which entity this sender's messages go in transactions."""
        via = self._cross_entity.via(link, address)
        if via is None:
            return None
        try:
            return await self._front_end.namespace.entity(via.key)
        except EntityNotFound:
            self._cross_entity.go_on_with(link, address)
            return None

    def _attach_link(self, link: Link, address: EntityAddress, entity_link: EntityLink) -> None:
        entity = entity_link.entity
        if isinstance(link, IncomingLink):
            entity.check_can_send(entity_link.lane)
            entity_link.start_sending(link, self._front_end.meter, self.limits)
        elif isinstance(link, OutgoingLink):
            entity.check_can_receive(entity_link.lane)
            entity_link.start_receiving(link)
        self._links[link] = entity_link
        role = "sender" if entity_link.is_sender else "receiver"
        self.log.tell("a %s of '%s' is attached", role, entity.name, link=link.name)
        self.take_flow(link)  # credit may have come along with the attach

    def _attach_node(self, link: Link, address: str, node: TokenNode | ManagementNode) -> None:
        if isinstance(link, IncomingLink):
            link.context = _Requests(address, node)
            most_bytes = MAX_REQUEST_BYTES
            if isinstance(node, ManagementNode):
                most_bytes = max(most_bytes, node.largest_bytes + AROUND_BYTES)
            link.accept(max_message_size=most_bytes)
            link.grant(NODE_CREDIT)
        elif isinstance(link, OutgoingLink):
            link.context = ReplyLink(link, address, self.host)
            link.accept()
            self.take_flow(link)
