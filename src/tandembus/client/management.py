"""Asks the management node of an entity: browse, renew, settle by lock token, schedule, sessions, rules."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from enum import Enum
from typing import Final

from tandembus.amqp.encoding import values
from tandembus.amqp.encoding.values import Array, int_, timestamp, uint
from tandembus.client.addresses import MANAGEMENT_NODE
from tandembus.client.connection import Connection
from tandembus.client.errors import failure_of_status
from tandembus.client.messages import OutgoingMessage, ReceivedMessage
from tandembus.client.receiver import ReceiveMode
from tandembus.client.request_link import Answer, RequestLink, StatusNames
from tandembus.client.rule_values import rule_from, rule_map
from tandembus.descriptions import RuleDescription

STATUS_NAMES: Final = StatusNames("statusCode", "statusDescription", "errorCondition")
OK: Final = 200
NOTHING: Final = 204
MAX_DELETIONS: Final = 4000
PAGE_SIZE: Final = 100
EVERY_SESSION: Final = timestamp(253_402_300_800_000)
"""The year 10000, where a time is expected: the service's way to ask for all sessions that are in use."""


class Disposition(Enum):
    """What `update_disposition` can do with locked messages; the texts are the service's, its spelling included."""

    COMPLETE = "completed"
    ABANDON = "abandoned"
    DEFER = "defered"
    DEAD_LETTER = "suspended"


class Management:
    """The management node of one entity. Made by `ServiceBus.management`."""

    def __init__(self, connection: Connection, address: str) -> None:
        self.address: Final = address
        self._timeout_ms: Final = int(connection.timeout_s * 1000)
        self._node: Final = RequestLink(connection, f"{address}/{MANAGEMENT_NODE}", STATUS_NAMES)

    async def open(self) -> None:
        await self._node.open()

    async def close(self) -> None:
        await self._node.close()

    @property
    def is_lost(self) -> bool:
        """Its links are gone, and it answers no more."""
        return self._node.is_lost

    async def peek(
        self, from_sequence_number: int = 1, max_messages: int = 100, session_id: str | None = None
    ) -> list[ReceivedMessage]:
        """Messages in any state from this sequence number on; maybe fewer than asked for, none at the end.

        With a session, only its messages. No lock is needed for that.
        """
        body: dict[str, object] = {"from-sequence-number": from_sequence_number, "message-count": int_(max_messages)}
        return _messages_in(await self._ask("peek-message", _in_session(body, session_id)))

    async def renew_locks(self, lock_tokens: Iterable[uuid.UUID], link_name: str | None = None) -> list[float]:
        """Until when each is locked now; `MessageLockLost` if one of them is not locked any more."""
        answer = await self._ask("renew-lock", {"lock-tokens": _tokens(lock_tokens)}, link_name)
        return [value / 1000 for value in _numbers_in(answer, "expirations")]

    async def receive_deferred(
        self,
        sequence_numbers: Iterable[int],
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        *,
        session_id: str | None = None,
        link_name: str | None = None,
    ) -> list[ReceivedMessage]:
        """Deferred messages, locked (then `settle` them) or deleted; all of them or `MessageNotFound`.

        Where the entity has sessions, the receiver on `link_name` must hold the lock of theirs.
        """
        settle_mode = uint(1 if mode is ReceiveMode.PEEK_LOCK else 0)
        body: dict[str, object] = {"sequence-numbers": _numbers(sequence_numbers), "receiver-settle-mode": settle_mode}
        return _messages_in(await self._ask("receive-by-sequence-number", _in_session(body, session_id), link_name))

    async def settle(
        self,
        disposition: Disposition,
        lock_tokens: Iterable[uuid.UUID],
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: dict[str, object] | None = None,
        session_id: str | None = None,
        link_name: str | None = None,
    ) -> None:
        """Settle by lock token: for deferred messages, and for those whose link is gone."""
        body: dict[str, object] = {
            "disposition-status": disposition.value,
            "lock-tokens": _tokens(lock_tokens),
        }
        if reason is not None:
            body["deadletter-reason"] = reason
        if description is not None:
            body["deadletter-description"] = description
        if properties is not None:
            body["properties-to-modify"] = properties
        await self._ask("update-disposition", _in_session(body, session_id), link_name)

    async def schedule(self, messages: Sequence[OutgoingMessage]) -> list[int]:
        """Store messages to be enqueued at their `scheduled_at`; the sequence numbers to cancel them by."""
        answer = await self._ask("schedule-message", {"messages": [_scheduled(message) for message in messages]})
        return _numbers_in(answer, "sequence-numbers")

    async def cancel(self, sequence_numbers: Iterable[int]) -> None:
        """Cancel scheduled messages; `MessageNotFound` if one is enqueued or cancelled already."""
        await self._ask("cancel-scheduled-message", {"sequence-numbers": _numbers(sequence_numbers)})

    async def batch_delete(self, max_messages: int, enqueued_before: float, session_id: str | None = None) -> int:
        """Delete up to `max_messages` (4,000 at most) active messages enqueued before this time; how many it were."""
        body: dict[str, object] = {
            "message-count": int_(min(max_messages, MAX_DELETIONS)),
            "enqueued-time-utc": timestamp(round(enqueued_before * 1000)),
        }
        deleted = (await self._ask("batch-delete-messages", _in_session(body, session_id))).fields.get("message-count")
        return deleted if isinstance(deleted, int) else 0

    async def sessions(self, updated_since: float | None = None) -> AsyncIterator[str]:
        """Ids of sessions that have messages or a state; with a time, those whose state was set after it."""
        since = EVERY_SESSION if updated_since is None else timestamp(round(updated_since * 1000))
        skip = 0
        while True:
            body: dict[str, object] = {"last-updated-time": since, "skip": int_(skip), "top": int_(PAGE_SIZE)}
            found = (await self._ask("get-message-sessions", body)).fields.get("sessions-ids")
            page = found if isinstance(found, list) else []
            for session_id in page:
                yield str(session_id)
            if len(page) < PAGE_SIZE:
                return
            skip += len(page)

    async def renew_session(self, session_id: str, link_name: str) -> float:
        """Until when the session is locked now; `SessionLockLost` if the receiver on this link does not hold it."""
        answer = await self._ask("renew-session-lock", {"session-id": session_id}, link_name)
        until = answer.fields.get("expiration")
        return until / 1000 if isinstance(until, int) else 0.0

    async def session_state(self, session_id: str, link_name: str) -> bytes | None:
        answer = await self._ask("get-session-state", {"session-id": session_id}, link_name)
        state = answer.fields.get("session-state")
        return state if isinstance(state, bytes) else None

    async def set_session_state(self, session_id: str, state: bytes | None, link_name: str) -> None:
        """None removes it."""
        await self._ask("set-session-state", {"session-id": session_id, "session-state": state}, link_name)

    async def add_rule(self, rule: RuleDescription) -> None:
        """On a subscription's node. `EntityAlreadyExists`, or `InvalidArgument` if it is not understood."""
        await self._ask("add-rule", rule_map(rule))

    async def remove_rule(self, name: str) -> None:
        await self._ask("remove-rule", {"rule-name": name})

    async def rules(self) -> AsyncIterator[RuleDescription]:
        """The rules of a subscription; asks until a page is empty, since a service may give shorter ones."""
        skip = 0
        while True:
            body: dict[str, object] = {"top": int_(PAGE_SIZE), "skip": int_(skip)}
            found = (await self._ask("enumerate-rules", body)).fields.get("rules")
            page = found if isinstance(found, list) else []
            for entry in page:
                yield rule_from(entry.get("rule-description") if isinstance(entry, dict) else None)
            if not page:
                return
            skip += len(page)

    async def _ask(self, operation: str, body: dict[str, object], link_name: str | None = None) -> Answer:
        properties: dict[str, object] = {
            "operation": f"com.microsoft:{operation}",
            "com.microsoft:server-timeout": uint(self._timeout_ms),
        }
        if link_name is not None:
            properties["associated-link-name"] = link_name
        answer = await self._node.request(body, properties)
        if answer.status not in (OK, NOTHING):
            raise failure_of_status(answer.status, answer.condition, answer.description)
        return answer


def _tokens(lock_tokens: Iterable[uuid.UUID]) -> Array:
    return Array(values.UUID, list(lock_tokens))


def _numbers(sequence_numbers: Iterable[int]) -> Array:
    return Array(values.LONG, list(sequence_numbers))


def _in_session(body: dict[str, object], session_id: str | None) -> dict[str, object]:
    return body if session_id is None else {**body, "session-id": session_id}


def _scheduled(message: OutgoingMessage) -> dict[str, object]:
    entry: dict[str, object] = {"message-id": message.message_id, "message": message.encode()}
    if message.session_id is not None:
        entry["session-id"] = message.session_id
    if message.partition_key is not None:
        entry["partition-key"] = message.partition_key
    return entry


def _numbers_in(answer: Answer, name: str) -> list[int]:
    found = answer.fields.get(name)
    return [value for value in found if isinstance(value, int)] if isinstance(found, list) else []


def _messages_in(answer: Answer) -> list[ReceivedMessage]:
    entries = answer.fields.get("messages")
    return [_message_in(entry) for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _message_in(entry: dict[object, object]) -> ReceivedMessage:
    payload, token = entry.get("message"), entry.get("lock-token")
    tag = token.bytes_le if isinstance(token, uuid.UUID) else b""
    return ReceivedMessage(payload if isinstance(payload, bytes) else b"", tag)
