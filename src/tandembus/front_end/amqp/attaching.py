"""What an attach asks for, and what its link keeps until the entity is open."""

from __future__ import annotations

from tandembus.amqp.engine import DeliveryReceived, Event, IncomingLink, Link
from tandembus.errors import BusError, InvalidArgument, InvalidOperation
from tandembus.front_end.amqp.claims_held import ClaimsHeld
from tandembus.front_end.amqp.link_host import LinkHost
from tandembus.namespace.paths import EntityAddress, SubQueue, parse_link_address
from tandembus.security.claims import Right

TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
"""Link property of a sender: its messages are for this entity and go there via the one that it is attached to."""
MAX_EARLY_DELIVERIES = 1000
"""Transfers kept for a link whose entity is still being opened."""


class Attaching:
    """A link whose entity is being opened. What arrives meanwhile waits here and counts as unacknowledged, so that a
    client which sends too much of it is not read for a while."""

    def __init__(self, host: LinkHost) -> None:
        self._host = host
        self._early: list[DeliveryReceived] = []

    def keep(self, event: DeliveryReceived) -> bool:
        """False: there is too much already."""
        if len(self._early) >= MAX_EARLY_DELIVERIES:
            return False
        self._early.append(event)
        self._host.take(len(event.payload))
        return True

    def take(self) -> list[Event]:
        """All that came, for whoever the link belongs to from now on."""
        early, self._early = self._early, []
        for event in early:
            self._host.end_taking(len(event.payload))
        return list(early)

    def drop(self, error: BusError) -> None:
        """There will be no such link: transactions that count on it are over."""
        for event in self.take():
            assert isinstance(event, DeliveryReceived)
            self._host.transactions.doom(event.state, error)


def destination_of(link: Link) -> EntityAddress | None:
    """The entity that a sender's messages are for, where they go there via another one."""
    written = (link.properties or {}).get(TRANSFER_DESTINATION)
    if written is None or not isinstance(link, IncomingLink):
        return None
    if not isinstance(written, str):
        raise InvalidArgument(f"The link property '{TRANSFER_DESTINATION}' must be a string.")
    destination = parse_link_address(written)
    if destination.is_management or destination.is_token_node:
        raise InvalidOperation("Messages can be sent via an entity to a queue or a topic only.")
    return destination


def right_for(link: Link) -> Right:
    return Right.SEND if isinstance(link, IncomingLink) else Right.LISTEN


def check_attach(held: ClaimsHeld, link: Link, address: EntityAddress) -> None:
    """Deny by default, before anything is looked up."""
    path = address.claim_path
    if address.is_management:
        entity_path = path.removesuffix("/$management")
        if not any(held.allow(right, entity_path) or held.allow(right, path) for right in Right):
            held.check(Right.LISTEN, entity_path)
    elif isinstance(link, IncomingLink):
        _check_sender(held, address)
        destination = destination_of(link)
        if destination is not None:
            _check_sender(held, destination)
    else:
        held.check(Right.LISTEN, path)


def _check_sender(held: ClaimsHeld, address: EntityAddress) -> None:
    held.check(Right.SEND, address.claim_path)
    if address.sub_queue is not SubQueue.MAIN:
        raise InvalidOperation("Messages cannot be sent to a dead-letter queue.")
