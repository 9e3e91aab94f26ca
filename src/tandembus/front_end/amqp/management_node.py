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
from tandembus.front_end.amqp.ledger_requests import BrowsedMessages, LedgerRequests
from tandembus.front_end.amqp.link_host import LinkHost
from tandembus.front_end.amqp.receiver_link import MAX_REASON_CHARACTERS
from tandembus.front_end.amqp.requests import Body, plain
from tandembus.front_end.amqp.rule_requests import RuleRequests
from tandembus.front_end.amqp.sender_link import SendChecks
from tandembus.front_end.amqp.session_holds import SessionHolds
from tandembus.front_end.amqp.session_requests import RecentListings, SessionRequests
from tandembus.front_end.amqp.transactions import TransactionParty
from tandembus.interconnect.answers import settle_all
from tandembus.interconnect.traffic import SessionHold
from tandembus.message_encoding import encode_delivery
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
    operations_for,
)
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import EntityAddress
from tandembus.security.claims import Right
from tandembus.store.messaging_store import DEAD_LETTER as DEAD_LETTERS
from tandembus.store.messaging_store import MAIN, NUMBER_BITS

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
        self._meter = meter
        self._checks = checks
        self._transactions = host.transactions
        self._lane = address.sub_queue.lane
        self._watch = namespace.sightings.of_receiver(address.path) if self._lane == MAIN else None
        self._sessions = SessionRequests(namespace, self._lane, holds, self._count, listings)
        rules = RuleRequests(namespace, address, self._count)
        ledger = LedgerRequests(self._lane, namespace.limits, self._count).operations if has_reservations else {}
        self._operations: Mapping[str, tuple[Right, Callable[[Entity, Body], Awaitable[Answer]]]] = {
            "com.microsoft:peek-message": (Right.LISTEN, self._peek),
            "com.microsoft:renew-lock": (Right.LISTEN, self._renew_lock),
            "com.microsoft:receive-by-sequence-number": (Right.LISTEN, self._receive_by_number),
            UPDATE_DISPOSITION: (Right.LISTEN, self._update_disposition),
            "com.microsoft:schedule-message": (Right.SEND, self._schedule),
            "com.microsoft:cancel-scheduled-message": (Right.SEND, self._cancel),
            "com.microsoft:batch-delete-messages": (Right.LISTEN, self._delete_batch),
            **{name: (Right.LISTEN, operation) for name, operation in self._sessions.operations.items()},
            **{name: (Right.LISTEN, operation) for name, operation in ledger.items()},
            **{name: (Right.MANAGE, operation) for name, operation in rules.operations.items()},
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
            self._transactions.doom(state, error)
            return _reply(correlation_id, MANAGEMENT_STATUSES[type(error)], str(error), condition_of(error), None)
        except Exception:
            log.exception("a fault of ours in a request to '%s'", self._address.path)
            self._transactions.doom(state, InvalidOperation("A request in the transaction failed in the broker."))
            return _reply(correlation_id, 500, "The operation failed in the broker.", "amqp:internal-error", None)
        return _reply(correlation_id, status, "OK", condition, body)

    async def _carry_out(self, request: MessageSections, state: Outcome | None) -> Answer:
        properties = {plain(key): plain(value) for key, value in (request.application_properties or {}).items()}
        name = properties.get("operation")
        if not isinstance(name, str) or name not in self._operations:
            raise NotSupported(f"The management operation {name!r} is not known here.")
        right, operation = self._operations[name]
        self._check_claim(right)
        if state is not None and name not in CHANGE_NOTHING:
            if name != UPDATE_DISPOSITION:
                raise InvalidOperation(f"'{name}' cannot be part of a transaction.")
            operation = partial(self._gather_disposition, state)
        entity = await self._namespace.entity(self._address.key)
        entity.accessed_at = self._namespace.clock.now()
        timeout_ms = properties.get("com.microsoft:server-timeout")
        timeout_s = self._namespace.limits.operation_timeout_s
        if isinstance(timeout_ms, int) and timeout_ms > 0:
            timeout_s = timeout_ms / 1000
        link_name = properties.get("associated-link-name")
        body = Body(request.body, link_name if isinstance(link_name, str) else None)
        with entity.in_use():
            return await _within(operation(entity, body), timeout_s)

    def _check_claim(self, right: Right) -> None:
        """A token for the entity opens its management node too; some clients put one for the node alone."""
        if not self._held.allow(right, self._address.claim_path):
            self._held.check(right, self._address.claim_path.removesuffix("/$management"))

    def _count(self, operation: str, messages: int, units: int, size_bytes: int) -> None:
        key = self._address.key
        reason = reason_to_send(key) if operation in (SCHEDULE, CANCEL) else reason_to_receive(key)
        self._meter.count(key, operation, reason, messages, units, size_bytes)

    def _numbers(self, body: Body) -> list[int]:
        """Numbers that there can be: whatever goes on to a broker has 64 bits."""
        numbers = body.integers("sequence-numbers", self._namespace.limits.max_management_messages)
        for number in numbers:
            if not 0 < number <= LARGEST_LONG:
                raise MessageNotFound(f"There is no message with sequence number {number}.")
        return numbers

    async def _peek(self, entity: Entity, body: Body) -> Answer:
        if entity.kind is EntityKind.TOPIC and self._lane == DEAD_LETTERS:
            raise InvalidOperation(f"'{entity.name}' is a topic: dead letters are in its subscriptions.")
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
        messages = []
        size = 0
        for one in peeked:
            payload = encode_delivery(one.message, one.sequence_number, 0, one.state, b"", 0)
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
        for lock, message in taken:
            number = int(lock.index) << NUMBER_BITS | int(message.number)
            payload = encode_delivery(message, number, 0 if is_destructive else lock.locked_until_ms, 1, b"", 0)
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
        """Reason, description, and properties to be set."""
        return (
            body.text("deadletter-reason", MAX_REASON_CHARACTERS),
            body.text("deadletter-description", MAX_REASON_CHARACTERS),
            body.changes("properties-to-modify", self._namespace.limits.max_properties_size_bytes),
        )

    async def _gather_disposition(self, state: Outcome, entity: Entity, body: Body) -> Answer:
        """The same in a transaction: kept until its discharge."""
        hold = self._sessions.hold_for(entity, body)
        settlement, locks = await self._disposition(entity, body, hold)
        reason, description, changes = self._disposition_details(body)
        session_id = None if hold is None else hold.session_id
        party = TransactionParty(entity.traffic, partial(self._check_use, entity), entity.hold, session_id)
        transaction = self._transactions.find_in(state)
        metered = CallbackSettleReply(partial(self._count_settled, METERED_AS[settlement]))
        for lock in locks:
            one = TransactionSettlement(lock, settlement, metered, False, reason, description, changes)
            transaction.settle(party, one)
        return 200, None, {}

    def _check_use(self, entity: Entity) -> None:
        self._check_claim(Right.LISTEN)
        entity.check_can_receive(self._lane)

    def _count_settled(self, metered_as: str, _lock: MessageLock, error: BusError | None) -> None:
        if error is None:
            self._count(metered_as, 1, 1, 0)

    async def _schedule(self, entity: Entity, body: Body) -> Answer:
        if self._lane != MAIN:
            raise InvalidOperation("Messages cannot be sent to a dead-letter queue.")
        entity.check_can_send()
        payloads = body.payloads("messages", self._namespace.limits.max_management_messages)
        messages = []
        for payload in payloads:
            messages += self._checks.parse(payload, 0)
        size = sum(len(payload) for payload in payloads)
        numbers = await entity.requests.schedule(messages, size)
        self._count(SCHEDULE, len(messages), sum(operations_for(len(payload)) for payload in payloads), size)
        return 200, None, {"sequence-numbers": Array(LONG, list(numbers))}

    async def _cancel(self, entity: Entity, body: Body) -> Answer:
        if self._lane != MAIN:
            raise InvalidOperation("Nothing is scheduled in a dead-letter queue.")
        numbers = self._numbers(body)
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


async def _within(work: Awaitable[Answer], timeout_s: float) -> Answer:
    try:
        return await asyncio.wait_for(work, timeout_s)
    except asyncio.TimeoutError:
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
