"""Transactions over several entities, as the .NET and Java SDKs make them.

A client that attaches the coordinator link before all others on an AMQP session wants the transactions of that session
to be about its first entity: what its senders send to others in a transaction goes via that one. A client whose
coordinator comes later gets what every AMQP client gets: each link is about its own entity.
"""

from __future__ import annotations

from tandembus.amqp.engine import Link, OutgoingLink
from tandembus.amqp.engine.amqp_session import AmqpSession
from tandembus.errors import InvalidOperation
from tandembus.namespace.paths import EntityAddress, split_subscription


class _First:
    """The first entity of an AMQP session, once there is one."""

    def __init__(self) -> None:
        self.address: EntityAddress | None = None
        self.link: Link | None = None


class CrossEntitySessions:
    """Of one connection."""

    def __init__(self) -> None:
        self._sessions: dict[AmqpSession, _First | None] = {}
        """None: its links began without a coordinator."""

    def coordinate(self, coordinator: Link) -> None:
        self._sessions.setdefault(coordinator.session, _First())

    def arrive(self, link: Link, address: EntityAddress) -> None:
        """A link to an entity attaches. Raises InvalidOperation for a receiver whose settlements could not be part of
        the session's transactions."""
        first = self._sessions.setdefault(link.session, None)
        if first is None:
            return
        if first.address is None:
            first.address, first.link = address, link
        elif isinstance(link, OutgoingLink) and not address.is_management and not _is_same(address, first.address):
            raise InvalidOperation(
                f"The transactions of this AMQP session are about '{first.address.path}', its first entity: messages "
                f"of '{address.path}' cannot be received on it."
            )

    def refused(self, link: Link) -> None:
        first = self._sessions.get(link.session)
        if first is not None and first.link is link:
            first.address = first.link = None

    def via(self, link: Link, address: EntityAddress) -> EntityAddress | None:
        """The entity by way of which a sender of another one sends in transactions."""
        first = self._sessions.get(link.session)
        if first is None or first.address is None or _is_same(address, first.address):
            return None
        return first.address

    def go_on_with(self, link: Link, address: EntityAddress) -> None:
        """The first entity is not there any more: this one takes its place."""
        first = self._sessions.get(link.session)
        if first is not None:
            first.address, first.link = address, link

    def end(self, session: AmqpSession) -> None:
        self._sessions.pop(session, None)


def _is_same(address: EntityAddress, other: EntityAddress) -> bool:
    """A topic and its subscriptions are one."""
    return family_of(address.key) == family_of(other.key)


def family_of(key: str) -> str:
    """The entity that messages are sent to: for a subscription its topic."""
    found = split_subscription(key)
    return key if found is None else found[0]
