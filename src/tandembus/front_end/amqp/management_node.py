"""`ENTITY/$management`: requests and responses beside the links (wire contract 4)."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from tandembus.amqp.encoding.delivery_states import Outcome
from tandembus.amqp.encoding.sections import (
    MessageSections,
    amqp_value_section,
    amqp_value_with_block,
    application_properties_section,
    decode_message,
    properties_section,
)
from tandembus.amqp.encoding.values import Array, int_, symbol
from tandembus.broker.locks import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    CallbackSettleReply,
    MessageLock,
)
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import TransactionSettlement
from tandembus.descriptions import EntityKind
from tandembus.errors import (
    BusError,
    InvalidArgument,
    InvalidOperation,
    MessageNotFound,
    NotSupported,
    OperationTimeout,
)
from tandembus.front_end.amqp.claims_held import ClaimsHeld
from tandembus.front_end.amqp.conditions import MANAGEMENT_STATUSES, condition_of
from tandembus.front_end.amqp.cross_entity import family_of
from tandembus.front_end.amqp.ledger_requests import BrowsedMessages, LedgerRequests
from tandembus.front_end.amqp.link_host import LinkHost
from tandembus.front_end.amqp.receiver_link import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, MAX_REASON_CHARACTERS
from tandembus.front_end.amqp.requests import Body, plain
from tandembus.front_end.amqp.rule_requests import RuleRequests
from tandembus.front_end.amqp.sender_link import SendChecks
from tandembus.front_end.amqp.session_holds import SessionHolds
from tandembus.front_end.amqp.session_requests import RecentListings, SessionRequests
from tandembus.front_end.amqp.transactions import TransactionParty
from tandembus.front_end.error_texts import error_text
from tandembus.front_end.large_room import room_to_give
from tandembus.interconnect.answers import settle_all
from tandembus.interconnect.traffic import SessionHold
from tandembus.message import Message, session_id_of
from tandembus.message_encoding import encode_delivery, without_body
from tandembus.metering import slot as operations
from tandembus.metering.meter import Meter
from tandembus.metering.reasons import reason_to_receive, reason_to_send
from tandembus.metering.slot import (
    CANCEL,
    DELETE_BATCH,
    PEEK,
    RECEIVE_DEFERRED,
    RENEW_LOCK,
    SCHEDULE,
    SESSION_STATE,
    operations_for,
)
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import EntityAddress
from tandembus.security.claims import Right
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTERS
from tandembus.store.messaging_store import MAIN, NUMBER_BITS, NUMBER_MASK

log = logging.getLogger("tandembus.amqp")

LONG, UUID, TIMESTAMP = 0x81, 0x98, 0x83
LARGEST_LONG = 2**63 - 1
MESSAGE_ID = 0

DISPOSITIONS: Mapping[str, int] = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "defered": DEFER,
    "suspended": DEAD_LETTER,
    "unlocked": RELEASE,
}

UPDATE_DISPOSITION = "com.microsoft:update-disposition"
CHANGE_NOTHING = frozenset(
    (
        "com.microsoft:peek-message",
        "com.microsoft:renew-lock",
        "com.microsoft:renew-session-lock",
        "com.microsoft:get-session-state",
        "com.microsoft:get-message-sessions",
        "com.microsoft:enumerate-rules",
    )
)
"""Clients put every request that they make during a transaction into it: these have nothing to roll back."""

RETURN_MESSAGES = frozenset(("com.microsoft:peek-message", "com.microsoft:receive-by-sequence-number"))

METERED_AS: Mapping[int, str] = {
    COMPLETE: operations.COMPLETE,
    ABANDON: operations.ABANDON,
    RELEASE: operations.ABANDON,
    DEFER: operations.DEFER,
    DEAD_LETTER: operations.DEAD_LETTER,
}

Answer = tuple[int, str | None, object]
"""Status, error condition, body."""


class ManagementNode:
    def __init__(
        self,
        namespace: Namespace,
        address: EntityAddress,
        held: ClaimsHeld,
        meter: Meter,
        checks: SendChecks,
        host: LinkHost,
        holds: SessionHolds,
        listings: RecentListings,
        has_reservations: bool = True,
    ) -> None:
        self._namespace = namespace
        self._address = address
        self._held = held
        self._checks = checks
        self.largest_bytes = int(checks.max_message_bytes)
        """Of the messages that it schedules."""
        self._large = namespace.large_messages
        self._transactions = host.transactions
        self._host = host
        self._lane = address.sub_queue.lane
        self._watch = namespace.sightings.of_receiver(address.path) if self._lane == MAIN else None
        self._count = partial(_count, meter, address.key)
        self._sessions = SessionRequests(namespace, self._lane, holds, self._count, listings)
        self._rules = RuleRequests(namespace, address, self._count)
        self._ledger = LedgerRequests(self._lane, namespace.limits, self._count) if has_reservations else None

    def _operations(self) -> Mapping[str, tuple[Right, Callable[[Entity, Body], Awaitable[Answer]]]]:
        """Made for each request: one that is kept refers back to the node, which then outlives its link."""
        ledger = self._ledger.operations if self._ledger is not None else {}
        return {
            "com.microsoft:peek-message": (Right.LISTEN, self._peek),
            "com.microsoft:renew-lock": (Right.LISTEN, self._renew_lock),
            "com.microsoft:receive-by-sequence-number": (Right.LISTEN, self._receive_by_number),
            UPDATE_DISPOSITION: (Right.LISTEN, self._update_disposition),
            "com.microsoft:schedule-message": (Right.SEND, self._schedule),
            "com.microsoft:cancel-scheduled-message": (Right.SEND, self._cancel),
            "com.microsoft:batch-delete-messages": (Right.LISTEN, self._delete_batch),
            **{name: (Right.LISTEN, operation) for name, operation in self._sessions.operations.items()},
            **{name: (Right.LISTEN, operation) for name, operation in ledger.items()},
            **{name: (Right.MANAGE, operation) for name, operation in self._rules.operations.items()},
        }

    def _gathering(self) -> Mapping[str, Callable[[Outcome, Entity, Body], Awaitable[Answer]]]:
        """What can be part of a transaction."""
        return {
            UPDATE_DISPOSITION: self._gather_disposition,
            "com.microsoft:schedule-message": self._gather_schedule,
            "com.microsoft:cancel-scheduled-message": self._gather_cancel,
            "com.microsoft:set-session-state": self._gather_state,
        }

    async def answer(self, payload: bytes, state: Outcome | None = None) -> bytes:
        """The reply to one request. Every failure is a status, never an error of the link. With a `state` it is made in
        a transaction."""
        correlation_id: object = None
        try:
            request = decode_message(payload, typed=True)
            correlation_id = request.property_at(MESSAGE_ID)
            status, condition, body = await self._carry_out(request, state)
        except BusError as error:
            error.__traceback__ = None  # frames in it may refer back to it, and to this node
            self._transactions.doom(state, error)
            self._host.refused(error, f"a request to '{self._address.path}'")
            text = error_text(error, self._host.engine.peer_hostname)
            return _reply(correlation_id, MANAGEMENT_STATUSES[type(error)], text, condition_of(error), None)
        except Exception:
            log.exception("a fault of ours in a request to '%s'", self._address.path)
            self._transactions.doom(state, InvalidOperation("A request in the transaction failed in the broker."))
            return _reply(correlation_id, 500, "The operation failed in the broker.", "amqp:internal-error", None)
        return _reply(correlation_id, status, "OK", condition, body)

    async def _carry_out(self, request: MessageSections, state: Outcome | None) -> Answer:
        properties = {plain(key): plain(value) for key, value in (request.application_properties or {}).items()}
        name = properties.get("operation")
        known = self._operations()
        if not isinstance(name, str) or name not in known:
            raise NotSupported(f"The management operation {name!r} is not known here.")
        right, operation = known[name]
        self._check_claim(right)
        if state is not None and name not in CHANGE_NOTHING:
            gather = self._gathering().get(name)
            if gather is None:
                raise InvalidOperation(f"'{name}' cannot be part of a transaction.")
            operation = partial(gather, state)
        entity = await self._namespace.entity(self._address.key)
        entity.accessed_at = self._namespace.clock.now()
        timeout_ms = properties.get("com.microsoft:server-timeout")
        timeout_s = self._namespace.limits.operation_timeout_s
        if isinstance(timeout_ms, int) and timeout_ms > 0:
            timeout_s = timeout_ms / 1000
        link_name = properties.get("associated-link-name")
        body = Body(request.body, link_name if isinstance(link_name, str) else None)
        largest = entity.max_message_size_bytes(self._namespace.limits) if name in RETURN_MESSAGES else 0
        with entity.in_use():
            async with room_to_give(self._large, largest):
                return await _within(operation(entity, body), timeout_s)

    def _check_claim(self, right: Right) -> None:
        """A token for the entity opens its management node too; some clients put one for the node alone."""
        if not self._held.allow(right, self._address.claim_path):
            self._held.check(right, self._address.claim_path.removesuffix("/$management"))

    def _numbers(self, body: Body) -> list[int]:
        """Numbers that there can be: whatever goes on to a broker has 64 bits."""
        numbers = body.integers("sequence-numbers", self._namespace.limits.max_management_messages)
        for number in numbers:
            if not 0 < number <= LARGEST_LONG:
                raise MessageNotFound(f"There is no message with sequence number {number}.")
        return numbers

    async def _peek(self, entity: Entity, body: Body) -> Answer:
        if entity.kind is EntityKind.TOPIC and self._lane == DEAD_LETTERS:
            raise InvalidOperation(
                f"The messaging entity '{entity.name}' is a topic: dead letters are in its subscriptions."
            )
        count = body.integer("message-count", least=1, most=None)
        start = body.integer("from-sequence-number", least=None, most=None)
        limits = self._namespace.limits
        peeked = await entity.requests.peek(
            self._lane,
            min(max(start, 1), LARGEST_LONG),
            min(count, limits.max_management_messages),
            limits.max_peek_bytes,
            self._sessions.named_in(entity, body),
        )
        has_no_body = body.flag("omit-message-body")
        has_partition = entity.entry.is_partitioned
        messages = []
        size = 0
        for one in peeked:
            message = without_body(one.message) if has_no_body else one.message
            partition = one.sequence_number >> NUMBER_BITS if has_partition else -1
            payload = encode_delivery(message, one.sequence_number, 0, one.state, b"", partition)
            size += len(payload)
            messages.append({"message": payload})
        self._count(PEEK, len(messages), max(1, sum(operations_for(len(one["message"])) for one in messages)), size)
        if not messages:
            return 204, "com.microsoft:message-not-found", None
        return 200, None, {"messages": messages}

    async def _renew_lock(self, entity: Entity, body: Body) -> Answer:
        tokens = body.tokens("lock-tokens", self._namespace.limits.max_management_messages)
        expirations = await entity.requests.renew(tokens)
        self._count(RENEW_LOCK, len(tokens), len(tokens), 0)
        return 200, None, {"expirations": Array(TIMESTAMP, list(expirations))}

    async def _receive_by_number(self, entity: Entity, body: Body) -> Answer:
        entity.check_can_receive(self._lane)
        numbers = self._numbers(body)
        is_destructive = body.integer("receiver-settle-mode", least=0, most=1) == 0
        hold = self._sessions.hold_for(entity, body)
        taken = await entity.requests.receive_deferred(self._lane, numbers, is_destructive, hold)
        messages: list[object] = []
        units = size = 0
        has_partition = entity.entry.is_partitioned
        for lock, message in taken:
            number = int(lock.index) << NUMBER_BITS | int(message.number)
            until, token = (0, b"") if is_destructive else (lock.locked_until_ms, lock.token)
            payload = encode_delivery(message, number, until, 1, token, int(lock.index) if has_partition else -1)
            size += len(payload)
            units += operations_for(len(payload))
            one: dict[object, object] = {"message": payload}
            if self._watch is not None:
                self._watch.delivered(message, lock.token)
            if not is_destructive:
                one["lock-token"] = uuid.UUID(bytes_le=lock.token)
            messages.append(one)
        self._count(RECEIVE_DEFERRED, len(messages), units, size)
        return 200, None, {"messages": messages}

    async def _update_disposition(self, entity: Entity, body: Body) -> Answer:
        hold = self._sessions.hold_for(entity, body)
        settlement, locks = await self._disposition(entity, body, hold)
        reason, description, changes = self._disposition_details(body)
        for lock in locks:
            lock.reason = reason
            lock.description = description
            lock.changes = changes
        await settle_all(entity.traffic, locks, settlement)
        self._count(METERED_AS[settlement], len(locks), len(locks), 0)
        if self._watch is not None:
            for lock in locks:
                self._watch.settled(lock.token, settlement)
        return 200, None, {}

    async def _disposition(self, entity: Entity, body: Body, hold: SessionHold | None) -> tuple[int, list[MessageLock]]:
        name = body.text("disposition-status", MAX_REASON_CHARACTERS)
        settlement = DISPOSITIONS.get(name or "")
        if settlement is None:
            raise InvalidArgument(f"The disposition-status {name!r} is not one of {', '.join(DISPOSITIONS)}.")
        tokens = body.tokens("lock-tokens", self._namespace.limits.max_management_messages)
        if len(set(tokens)) != len(tokens):
            raise InvalidArgument("A lock token stands twice in the request.")
        return settlement, await entity.requests.find_locks(tokens, self._lane, hold)

    def _disposition_details(self, body: Body) -> tuple[str | None, str | None, dict[str, object] | None]:
        """Reason, description, and properties to be set: also a reason that is no string, which keeps its type."""
        changes = body.changes("properties-to-modify", self._namespace.limits.max_properties_size_bytes)
        texts: list[str | None] = []
        for key, name in (
            ("deadletter-reason", DEAD_LETTER_REASON),
            ("deadletter-description", DEAD_LETTER_DESCRIPTION),
        ):
            is_text = body.is_text(key)
            texts.append(body.text(key, MAX_REASON_CHARACTERS) if is_text else None)
            if not is_text:
                changes = {**(changes or {}), name: body.value(key)}
        return texts[0], texts[1], changes

    async def _gather_disposition(self, state: Outcome, entity: Entity, body: Body) -> Answer:
        """The same in a transaction: kept until its discharge."""
        hold = self._sessions.hold_for(entity, body)
        settlement, locks = await self._disposition(entity, body, hold)
        reason, description, changes = self._disposition_details(body)
        session_id = None if hold is None else entity.key_of(hold.session_id)
        party = self._party(entity, partial(self._check_use, entity), session_id)
        transaction = self._transactions.find_in(state)
        metered = CallbackSettleReply(partial(self._count_settled, METERED_AS[settlement]))
        for lock in locks:
            one = TransactionSettlement(lock, settlement, metered, False, reason, description, changes)
            transaction.settle(party, one)
        return 200, None, {}

    async def _gather_schedule(self, state: Outcome, entity: Entity, body: Body) -> Answer:
        """The numbers are told at once, and durably nobody else's; the messages come with the discharge."""
        messages, size, units = self._to_schedule(entity, body)
        self._transactions.find_in(state)
        operation = SendOperation(messages, size, CallbackSendReply(_uncounted), -1)
        index = int(entity.traffic.transaction_index(operation))
        numbers = await entity.requests.promise_numbers(index, [session_id_of(one) for one in messages])
        operation.promised = [number & NUMBER_MASK for number in numbers]
        transaction = self._transactions.find_in(state)
        transaction.send(self._party(entity, partial(self._check_send_use, entity)), operation)
        transaction.when_done.append(partial(self._count, SCHEDULE, len(messages), units, size))
        return 200, None, {"sequence-numbers": Array(LONG, list(numbers))}

    async def _gather_cancel(self, state: Outcome, entity: Entity, body: Body) -> Answer:
        numbers = self._to_cancel(body)
        found = await entity.requests.find_scheduled(numbers)
        transaction = self._transactions.find_in(state)
        party = self._party(entity, partial(self._check_claim, Right.SEND))
        transaction.cancel(party, numbers[0] >> NUMBER_BITS, list(found))
        transaction.when_done.append(partial(self._count, CANCEL, len(numbers), max(1, len(numbers)), 0))
        return 200, None, {}

    async def _gather_state(self, state: Outcome, entity: Entity, body: Body) -> Answer:
        hold, session_state = self._sessions.state_to_set(entity, body)
        transaction = self._transactions.find_in(state)
        session_id = entity.key_of(hold.session_id)
        party = self._party(entity, partial(self._check_claim, Right.LISTEN), session_id)
        transaction.set_state(party, hold, session_state)
        size = len(session_state or b"")
        transaction.when_done.append(partial(self._count, SESSION_STATE, 0, operations_for(size), size))
        return 200, None, {}

    def _party(self, entity: Entity, check: Callable[[], None], session_id: str | None = None) -> TransactionParty:
        return TransactionParty(entity.traffic, check, entity.hold, session_id, family_of(entity.entry.key))

    def _check_send_use(self, entity: Entity) -> None:
        self._check_claim(Right.SEND)
        entity.check_can_send()

    def _check_use(self, entity: Entity) -> None:
        self._check_claim(Right.LISTEN)
        entity.check_can_receive(self._lane)

    def _count_settled(self, metered_as: str, _lock: MessageLock, error: BusError | None) -> None:
        if error is None:
            self._count(metered_as, 1, 1, 0)

    async def _schedule(self, entity: Entity, body: Body) -> Answer:
        messages, size, units = self._to_schedule(entity, body)
        numbers = await entity.requests.schedule(messages, size)
        self._count(SCHEDULE, len(messages), units, size)
        return 200, None, {"sequence-numbers": Array(LONG, list(numbers))}

    def _to_schedule(self, entity: Entity, body: Body) -> tuple[list[Message], int, int]:
        """The messages, their bytes, and what they cost."""
        if self._lane != MAIN:
            raise InvalidOperation("Messages cannot be sent to a dead-letter queue.")
        entity.check_can_send()
        payloads = body.payloads("messages", self._namespace.limits.max_management_messages)
        messages = []
        for payload in payloads:
            messages += self._checks.parse(payload, 0)
        size = sum(len(payload) for payload in payloads)
        return messages, size, sum(operations_for(len(payload)) for payload in payloads)

    def _to_cancel(self, body: Body) -> list[int]:
        if self._lane != MAIN:
            raise InvalidOperation("Nothing is scheduled in a dead-letter queue.")
        return self._numbers(body)

    async def _cancel(self, entity: Entity, body: Body) -> Answer:
        numbers = self._to_cancel(body)
        await entity.requests.cancel_scheduled(numbers)
        self._count(CANCEL, len(numbers), max(1, len(numbers)), 0)
        return 200, None, {}

    async def _delete_batch(self, entity: Entity, body: Body) -> Answer:
        entity.check_can_receive(self._lane)
        limits = self._namespace.limits
        count = body.integer("message-count", least=1, most=limits.max_management_messages)
        before_ms = body.integer("enqueued-time-utc", least=None, most=None)
        session_id = self._sessions.named_in(entity, body)
        if session_id is not None:
            self._sessions.hold_for(entity, body)
        deleted = await entity.requests.delete_batch(self._lane, count, before_ms, session_id)
        self._count(DELETE_BATCH, deleted, max(1, deleted), 0)
        if deleted == 0:
            return 204, "com.microsoft:message-not-found", None
        return 200, None, {"message-count": int_(deleted)}


def _count(meter: Meter, key: str, operation: str, messages: int, units: int, size_bytes: int) -> None:
    reason = reason_to_send(key) if operation in (SCHEDULE, CANCEL) else reason_to_receive(key)
    meter.count(key, operation, reason, messages, units, size_bytes)


def _uncounted(_operation: SendOperation, _error: BusError | None) -> None:
    """What a transaction schedules is counted with the transaction."""


async def _within(work: Awaitable[Answer], timeout_s: float) -> Answer:
    try:
        return await asyncio.wait_for(work, timeout_s)
    except TimeoutError:
        raise OperationTimeout(f"The operation did not complete within {timeout_s:g} s.") from None


def _reply(correlation_id: object, status: int, description: str, condition: str | None, body: object) -> bytes:
    properties: dict[str, object] = {"statusCode": int_(status), "statusDescription": description}
    if condition is not None:
        properties["errorCondition"] = symbol(condition)
    parts = [properties_section(correlation_id=correlation_id), application_properties_section(properties)]
    if isinstance(body, BrowsedMessages):
        parts += amqp_value_with_block(body.entries, "messages", body.data)
    else:
        parts.append(amqp_value_section(body))
    return b"".join(parts)
