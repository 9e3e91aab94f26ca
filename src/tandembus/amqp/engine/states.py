"""The states of connections, sessions and links (specification 2.4.6, 2.5.5 and 2.6), as far as we tell them apart."""

from __future__ import annotations

from enum import Enum


class ConnectionState(Enum):
    NEW = 1
    """Nothing but a protocol header may come."""
    SASL = 2
    SASL_DECIDING = 3
    """Server: the application decides about the credentials; bytes wait."""
    HEADER = 4
    """Authenticated, or not asked to be; the AMQP header comes next."""
    OPENING = 5
    OPEN = 6
    CLOSE_SENT = 7
    """Only the peer's close is still listened to."""
    CLOSED = 8


class SessionState(Enum):
    REQUESTED = 1
    """We began it; the peer has not answered."""
    MAPPED = 2
    END_SENT = 3
    ENDED = 4


class LinkState(Enum):
    ATTACHING = 1
    """The peer attached; we have not answered."""
    REQUESTED = 2
    """We attached; the peer has not answered."""
    ATTACHED = 3
    DETACH_SENT = 4
    """Over for us; the peer may still send until it has seen our detach."""
    DETACHED = 5
