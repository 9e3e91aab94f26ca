"""Requests about sessions: their state, their lock, and which there are (wire contract 4).

Whoever holds a session is a link. A request comes on another link of the same connection and may name it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from tandembus.amqp.encoding.values import Array, int_, timestamp
from tandembus.errors import InvalidArgument, InvalidOperation, MessageTooLarge
from tandembus.interconnect.requests import Listing
from tandembus.metering.slot import LIST_SESSIONS, RENEW_SESSION_LOCK, SESSION_STATE, operations_for
from tandembus.store.messaging_store import MAIN

if TYPE_CHECKING:
    from tandembus.front_end.amqp.requests import Body
    from tandembus.front_end.amqp.session_holds import SessionHolds
    from tandembus.interconnect.traffic import SessionHold
    from tandembus.namespace.entity import Entity
    from tandembus.namespace.namespace import Namespace

STRING = 0xB1
EVERY_SESSION_MS = 253_402_300_800_000
"""The year 10000, where a time is expected: all sessions that are in use are meant."""
MOST_LISTINGS = 4
"""Of one connection: who lists more entities at the same time gets the older ones from the start."""

Answer = tuple[int, str | None, object]
Count = Callable[[str, int, int, int], None]


class RecentListings:
    """The listings that a connection's client is in the middle of, by the node that it asks. They may be large."""

    def __init__(self) -> None:
        self._listings: dict[object, tuple[Listing, Entity, int]] = {}

    def find(self, node: object, entity: Entity, after_ms: int) -> Listing | None:
        """None too for an entity that has left the memory meanwhile, or is another one by now."""
        listing, of_entity, of_time = self._listings.get(node, (None, None, 0))
        return listing if of_entity is entity and of_time == after_ms else None

    def keep(self, node: object, listing: Listing, entity: Entity, after_ms: int) -> None:
        self._listings.pop(node, None)
        self._listings[node] = (listing, entity, after_ms)
        if len(self._listings) > MOST_LISTINGS:
            del self._listings[next(iter(self._listings))]

    def forget(self, node: object) -> None:
        self._listings.pop(node, None)

    def __len__(self) -> int:
        return len(self._listings)


class SessionRequests:
    def __init__(
        self, namespace: Namespace, lane: int, holds: SessionHolds, count: Count, listings: RecentListings
    ) -> None:
        self._namespace = namespace
        self._lane = lane
        self._holds = holds
        self._count = count
        self._listings = listings

    @property
    def operations(self) -> Mapping[str, Callable[[Entity, Body], Awaitable[Answer]]]:
        return {
            "com.microsoft:get-session-state": self._get_state,
            "com.microsoft:set-session-state": self._set_state,
            "com.microsoft:renew-session-lock": self._renew,
            "com.microsoft:get-message-sessions": self._list,
        }

    def hold_for(self, entity: Entity, body: Body) -> SessionHold | None:
        """The session in which this request is made: the caller's own. None where the entity has none."""
        session_id = self.named_in(entity, body)
        if session_id is not None:
            return self._holds.find(entity, session_id, body.link_name)
        if not self._has_sessions(entity):
            return None
        if body.link_name is not None:
            return self._holds.find_by_link(entity, body.link_name)
        raise InvalidOperation(
            f"The messaging entity '{entity.name}' requires sessions: the request needs the 'session-id'."
        )

    def named_in(self, entity: Entity, body: Body) -> str | None:
        """The session that the request names, if any. Without sessions the name counts for nothing: SDKs send that of
        the message, which may carry a SessionId anywhere."""
        return body.session_id(self._namespace.limits.max_key_length) if self._has_sessions(entity) else None

    def _has_sessions(self, entity: Entity) -> bool:
        return entity.requires_session and self._lane == MAIN

    def _hold(self, entity: Entity, body: Body) -> SessionHold:
        if not self._has_sessions(entity):
            raise InvalidOperation(
                f"The messaging entity '{entity.name}' does not require sessions: it has none to ask about."
            )
        session_id = self.named_in(entity, body)
        if session_id is None:
            raise InvalidArgument("The request needs 'session-id' as a string.")
        return self._holds.find(entity, session_id, body.link_name)

    async def _get_state(self, entity: Entity, body: Body) -> Answer:
        state = await entity.requests.session_state(self._hold(entity, body))
        self._count(SESSION_STATE, 0, operations_for(len(state or b"")), len(state or b""))
        return 200, None, {"session-state": state}

    async def _set_state(self, entity: Entity, body: Body) -> Answer:
        hold, state = self.state_to_set(entity, body)
        await entity.requests.set_session_state(hold, state)
        self._count(SESSION_STATE, 0, operations_for(len(state or b"")), len(state or b""))
        return 200, None, {}

    def state_to_set(self, entity: Entity, body: Body) -> tuple[SessionHold, bytes | None]:
        hold = self._hold(entity, body)
        state = body.binary("session-state")
        most = self._namespace.limits.max_session_state_bytes
        if state is not None and len(state) > most:
            raise MessageTooLarge(f"The session state has {len(state)} bytes; at most {most} are allowed.")
        return hold, state

    async def _renew(self, entity: Entity, body: Body) -> Answer:
        until_ms = await entity.requests.renew_session(self._hold(entity, body))
        self._count(RENEW_SESSION_LOCK, 0, 1, 0)
        return 200, None, {"expiration": timestamp(until_ms)}

    async def _list(self, entity: Entity, body: Body) -> Answer:
        if not self._has_sessions(entity):
            raise InvalidOperation(
                f"The messaging entity '{entity.name}' does not require sessions: it has none to list."
            )
        after_ms = body.integer("last-updated-time", least=None, most=None)
        skip = body.integer("skip", least=0, most=2**31 - 1)
        top = body.integer("top", least=1, most=2**31 - 1)
        top = min(top, self._namespace.limits.max_management_messages)
        # The first page begins anew, the next ones go on.
        listing = self._listings.find(self, entity, after_ms) if skip > 0 else None
        if listing is None:
            listing = Listing()
        since = None if after_ms >= EVERY_SESSION_MS else after_ms
        ids = list(await entity.requests.list_sessions(since, skip, top, listing))
        if len(ids) == top:
            self._listings.keep(self, listing, entity, after_ms)
        else:
            self._listings.forget(self)
        self._count(LIST_SESSIONS, 0, 1, 0)
        if not ids:
            return 204, "com.microsoft:session-not-found", None
        return 200, None, {"skip": int_(skip + len(ids)), "sessions-ids": Array(STRING, list(ids))}
