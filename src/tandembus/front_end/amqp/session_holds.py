"""The sessions that the links of one connection hold: a request names a session, and must come from its holder."""

from __future__ import annotations

from tandembus.broker.sessions import SESSION_LOST
from tandembus.clock import Clock
from tandembus.errors import SessionLockLost
from tandembus.front_end.amqp.receiver_link import ReceiverLink
from tandembus.interconnect.traffic import SessionHold
from tandembus.namespace.entity import Entity


class SessionHolds:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[tuple[int, str], ReceiverLink] = {}

    def put(self, entity: Entity, hold: SessionHold, link: ReceiverLink) -> None:
        self._links[entity.entry.incarnation, entity.key_of(hold.session_id)] = link

    def remove(self, entity: Entity, hold: SessionHold) -> None:
        """Another link of the same connection may hold the session by now."""
        place = (entity.entry.incarnation, entity.key_of(hold.session_id))
        known = self._links.get(place)
        if known is not None and known.hold is hold:
            del self._links[place]

    def find_by_link(self, entity: Entity, link_name: str) -> SessionHold:
        """The session that the link of this name holds: Go's SDK names the link only."""
        for (incarnation, _), link in self._links.items():
            if incarnation == entity.entry.incarnation and link.link.name == link_name and link.hold is not None:
                return self.find(entity, link.hold.session_id, link_name)
        raise SessionLockLost(SESSION_LOST)

    def find(self, entity: Entity, session_id: str, link_name: str | None) -> SessionHold:
        """Raises SessionLockLost for everybody but the holder: a link of this connection, of this name, where one is
        given."""
        link = self._links.get((entity.entry.incarnation, entity.key_of(session_id)))
        hold = link.hold if link is not None and link_name in (None, link.link.name) else None
        if hold is None or not hold.is_live(self._clock.monotonic()):
            raise SessionLockLost(SESSION_LOST)
        return hold
