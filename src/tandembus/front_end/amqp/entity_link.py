"""A link attached to an entity: what ties its compiled half to claims, to the entity's life and to the connection's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tandembus.amqp.encoding.values import ulong
from tandembus.amqp.engine import AmqpError, IncomingLink, Link, OutgoingLink
from tandembus.amqp.engine.states import LinkState
from tandembus.errors import BusError, InvalidOperation, OperationTimeout, SessionLockLapsed, Unauthorized, anew
from tandembus.front_end.amqp.conditions import amqp_error
from tandembus.front_end.amqp.cross_entity import family_of
from tandembus.front_end.amqp.receiver_link import ReceiveMeter, ReceiverLink
from tandembus.front_end.amqp.sender_link import SendChecks, SenderLink, SendMeter
from tandembus.front_end.amqp.session_filter import (
    SessionRequest,
    granted_properties,
    granted_source,
    session_request,
)
from tandembus.front_end.amqp.transactions import TransactionParty
from tandembus.interconnect.traced_traffic import TracedTraffic
from tandembus.interconnect.traffic import SessionHold, SessionWish
from tandembus.limits import Limits
from tandembus.metering.meter import Meter
from tandembus.metering.reasons import reason_to_receive, reason_to_send, reason_to_wait
from tandembus.metering.slot import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    EMPTY_RECEIVE,
    PING,
    RECEIVE,
    SEND,
    SYPHON,
)
from tandembus.namespace.entity import Entity
from tandembus.namespace.paths import EntityAddress
from tandembus.security.claims import Right
from tandembus.store.messaging_store import MAIN, TRANSFER

if TYPE_CHECKING:
    from tandembus.front_end.amqp.driver import AmqpConnection


DETACH_FORCED = "amqp:link:detach-forced"
PURPOSE = "tandembus:purpose"
MAX_BATCH_SIZE = "com.microsoft:max-message-batch-size"
LARGEST_BATCH_BYTES = 1 << 20
"""Larger messages are sent one by one, as the service wants it."""
_NO_SESSION = "No session was available in time."


class EntityLink:
    """One sender or receiver link. `cut` may be called from anywhere: the entity, the claims check, the stop."""

    def __init__(
        self,
        connection: AmqpConnection,
        link: Link,
        entity: Entity,
        right: Right,
        address: EntityAddress,
        destination: EntityAddress | None = None,
        via: Entity | None = None,
    ) -> None:
        self.link = link
        self.entity = entity
        self.right = right
        self.claim_path = address.claim_path
        self.lane = TRANSFER if destination is not None else address.sub_queue.lane
        self.destination = destination
        """What a sender's messages are for, where they only go via this entity."""
        self._via = via
        """By way of which entity a sender's messages come here in transactions."""
        self._let_go_of_via: Callable[[], None] | None = None
        self.is_sender = right is Right.SEND
        self._key = address.key
        self._connection = connection
        self._half: SenderLink | ReceiverLink | None = None
        self._wish: SessionWish | None = None
        """What it waits for, while the answer to its attach is held."""
        self._refusal: BusError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sightings = connection.sightings
        self._is_syphon_sender = False
        self._activity = 0
        self._active_at = connection.clock.monotonic()

    def start_sending(self, link: IncomingLink, meter: Meter, limits: Limits) -> None:
        """The client sends: answer its attach, give it credit."""
        checks = send_checks(self.entity, limits)
        key = self.entity.entry.key
        watch = self._sightings.of_sender(self.entity.name, self.entity.outage_mark, self.reason == SYPHON)
        counters = SendMeter(meter.slot(key, SEND, self.reason), meter.slot(key, SEND, PING), watch)
        traffic = self._connection.traffic_of(self.entity)
        half = SenderLink(link, self._connection.host, traffic, checks, counters, limits.link_credit)
        half.destination = "" if self.destination is None else self.destination.path
        half.destination_in_transactions = half.destination if self._via is None else self.entity.name
        self._attach(half)
        if self.reason == SYPHON:
            self._is_syphon_sender = True
            self._sightings.syphon_senders += 1
        largest = int(checks.max_message_bytes)
        link.accept(largest, {MAX_BATCH_SIZE: ulong(min(largest, LARGEST_BATCH_BYTES))})
        half.top_up()

    def start_receiving(self, link: OutgoingLink) -> None:
        """The client receives: answer its attach, and wait for its credit."""
        request = session_request(link, self._connection.limits)
        if request is not None:
            self._start_session(link, request)
            return
        if self._has_sessions():
            raise InvalidOperation(
                f"The messaging entity '{self.entity.name}' requires sessions: only session receivers can receive."
            )
        half = self._receiver(link)
        self._attach(half)
        half.traffic.attach(half, self.lane)
        link.accept()

    def _has_sessions(self) -> bool:
        return self.entity.requires_session and self.lane == MAIN

    def _receiver(self, link: OutgoingLink) -> ReceiverLink:
        counters = self._connection.receive_meter(self.entity.entry, self._key, self.reason)
        is_destructive = link.snd_settle_mode == 1
        host, traffic = self._connection.host, self._connection.traffic_of(self.entity)
        half = ReceiverLink(link, host, traffic, self.lane, is_destructive, counters, self.entity.entry.is_partitioned)
        if self.lane == MAIN:
            half.watch = self._sightings.of_receiver(self.entity.name)
        if isinstance(traffic, TracedTraffic):
            half.on_delivered = traffic.listener.delivered
        return half

    # Sessions: the answer to the attach is held until there is one.

    def _start_session(self, link: OutgoingLink, request: SessionRequest) -> None:
        """At once, if there is one: the answer to the attach shares a write with others."""
        if not self._has_sessions():
            raise InvalidOperation(
                f"The messaging entity '{self.entity.name}' does not require sessions: it has no session to receive."
            )
        name = request.session_id
        wish = SessionWish(name, name is None, partial(self._session_granted, link), self._session_refused)
        self._wish = wish
        try:
            self.entity.traffic.wish_session(wish)
            if self._refusal is not None:
                raise anew(self._refusal)
        except BusError:
            self._wish = None  # which refers back here
            raise
        if self._is_waiting():
            self.entity.attach(self, self._connection.namespace_clock.now())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(request.timeout_s, self._session_refused, OperationTimeout(_NO_SESSION))

    def _session_granted(self, link: OutgoingLink, hold: SessionHold) -> None:
        has_waited = self._timer is not None
        self._stop_waiting()
        if link.state is not LinkState.ATTACHING or not link.session.is_usable():
            self.entity.traffic.leave_session(hold)
            return
        self._hold_session(link, hold)
        if has_waited:
            self._connection.take_flow(link)  # credit may have come along with the attach

    def _hold_session(self, link: OutgoingLink, hold: SessionHold) -> None:
        half = self._receiver(link)
        self._attach(half, self.entity.key_of(hold.session_id))
        link.accept(source=granted_source(link, hold), properties=granted_properties(hold))
        self._connection.session_holds.put(self.entity, hold, half)
        half.hold_session(hold, self._session_lost)
        self._connection.host.touch()

    def _session_lost(self, error: BusError) -> None:
        """After a lapse the link is detached a little later: a client that is about to close it sees no error."""
        if isinstance(error, SessionLockLapsed):
            delay_s = self._connection.limits.session_detach_delay_s
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.cut, error)
        else:
            self.cut(error)

    def _session_refused(self, error: BusError) -> None:
        if self._timer is None:
            self._refusal = error  # before the wish was even made: the attach itself is refused
        else:
            self.cut(error)

    def _is_waiting(self) -> bool:
        return self._wish is not None

    def _stop_waiting(self) -> None:
        wish, timer = self._wish, self._timer
        self._wish = self._timer = None
        if timer is not None:
            timer.cancel()
        if wish is not None and not wish.is_over:
            self.entity.traffic.give_up_session(wish)

    @property
    def credit(self) -> int:
        """Messages that it may still carry."""
        link = self.link
        return int(link.credit) if isinstance(link, IncomingLink | OutgoingLink) else 0

    @property
    def reason(self) -> str:
        """Why the traffic is there. Whoever brings messages home from a backlog queue says so on the links that carry
        them there, since nothing about their path would tell."""
        if (self.link.properties or {}).get(PURPOSE) == SYPHON:
            return SYPHON
        return reason_to_send(self._key) if self.is_sender else reason_to_receive(self._key)

    def _attach(self, half: SenderLink | ReceiverLink, session_id: str | None = None) -> None:
        self._half = half
        about = self.entity
        if self._via is not None:
            about = self._via
            self._let_go_of_via = about.hold()
        half.party = TransactionParty(about.traffic, self.check_use, about.hold, session_id, family_of(about.entry.key))
        self.link.context = half
        self.entity.attach(self, self._connection.namespace_clock.now())

    def release(self) -> None:
        """The link is over, whoever ended it."""
        half = self._half
        if self._is_waiting():
            self._stop_waiting()
            self.entity.detach(self, self._connection.namespace_clock.now())
        if half is None:
            return
        self._half = None
        if self._timer is not None:
            self._timer.cancel()
        half.end()
        if self._let_go_of_via is not None:
            self._let_go_of_via()
        self._sightings.syphon_senders -= self._is_syphon_sender
        self.link.context = None
        self.entity.detach(self, self._connection.namespace_clock.now())
        if not isinstance(half, ReceiverLink):
            return
        if half.hold is None:
            half.traffic.detach(half, half.lane)
        else:
            # A session is free at once, however its receiver left: it is locked by the link, not by the client.
            self._connection.session_holds.remove(self.entity, half.hold)
            half.traffic.leave_session(half.hold)

    def feed(self) -> None:
        """There is room for deliveries again."""
        half = self._half
        if isinstance(half, ReceiverLink):
            half.feed()

    def cut(self, error: BusError) -> None:
        self._connection.log.tell("a link is cut: %s", error, link=self.link.name)
        self.link.detach(amqp_error(error, self._connection.engine.peer_hostname))
        self.release()
        self._connection.forget(self)
        self._connection.host.touch()
        self._connection.host.flush()

    def check_activity(self, now: float, timeout_s: float) -> None:
        """A link on which nothing moves for long is detached, where that is asked for; clients attach it again."""
        half = self._half
        if half is None or half.activity != self._activity:
            self._activity = half.activity if half is not None else 0
            self._active_at = now
        elif now - self._active_at >= timeout_s:
            self.link.detach(AmqpError(DETACH_FORCED, "The link was idle.", None))
            self.release()
            self._connection.forget(self)

    def entity_changed(self) -> None:
        if isinstance(self._half, SenderLink):
            self._half.change_checks(send_checks(self.entity, self._connection.limits))

    def check_use(self) -> None:
        """Whether what came on this link may still be done: asked when a transaction is discharged."""
        for path in self._claim_paths():
            self._connection.held.check(self.right, path)
        if self.is_sender:
            self.entity.check_can_send(self.lane)
        else:
            self.entity.check_can_receive(self.lane)

    def check_claims(self) -> None:
        """Called again and again while the link lives: an expired token or a removed key ends it."""
        for path in self._claim_paths():
            if not self._connection.held.allow(self.right, path):
                error = Unauthorized(f"The token for '{path}' has expired or is no longer valid.")
                self._connection.host.refused(error, f"a link of '{path}'", self.link.name)
                self.cut(error)
                return

    def _claim_paths(self) -> list[str]:
        if self.destination is None:
            return [self.claim_path]
        return [self.claim_path, self.destination.claim_path]


def receive_meter(meter: Meter, key: str, reason: str) -> ReceiveMeter:
    receive, *settlements = [meter.slot(key, name, reason) for name in (RECEIVE, COMPLETE, ABANDON, DEFER, DEAD_LETTER)]
    return ReceiveMeter(receive, meter.slot(key, EMPTY_RECEIVE, reason_to_wait(key)), *settlements)


def send_checks(entity: Entity, limits: Limits) -> SendChecks:
    return SendChecks(
        entity.max_message_size_bytes(limits),
        limits.max_header_size_bytes,
        limits.max_properties_size_bytes,
        limits.max_batch_messages,
        limits.max_key_length,
        entity.entry.ignores_key_case,
    )
