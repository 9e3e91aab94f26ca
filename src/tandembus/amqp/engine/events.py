"""What the peer's bytes meant; `Connection.receive_data` returns these in the order in which things happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.delivery_states import AmqpError, Outcome

if TYPE_CHECKING:
    from tandembus.amqp.engine.amqp_session import AmqpSession
    from tandembus.amqp.engine.link import IncomingLink, Link
    from tandembus.amqp.engine.unsettled import OutgoingDelivery


class Event:
    """Base of all events."""

    __slots__ = ()


@final
class SaslInit(Event):
    """Server: a client says who it is. Answer with `Connection.sasl_outcome`; until then its bytes wait."""

    __slots__ = ("hostname", "initial_response", "mechanism")

    def __init__(self, mechanism: str, initial_response: bytes, hostname: str) -> None:
        self.mechanism: Final = mechanism
        self.initial_response: Final = initial_response
        self.hostname: Final = hostname

    def __repr__(self) -> str:
        return f"SaslInit({self.mechanism!r})"  # the response holds a key


@final
class SaslOutcome(Event):
    """Client: the server's answer. After a refusal `ConnectionClosed` follows."""

    __slots__ = ("ok",)

    def __init__(self, ok: bool) -> None:
        self.ok: Final = ok


@final
class Opened(Event):
    """The peer opened the connection; a server's own open is on its way."""

    __slots__ = ("container_id", "hostname", "properties")

    def __init__(self, container_id: str, hostname: str | None, properties: dict[str, object] | None) -> None:
        self.container_id: Final = container_id
        self.hostname: Final = hostname
        self.properties: Final = properties


@final
class ConnectionClosed(Event):
    """The last event of a connection. No events for its sessions and links precede it: their owner ends them."""

    __slots__ = ("by_peer", "error")

    def __init__(self, error: AmqpError | None, by_peer: bool) -> None:
        self.error: Final = error
        self.by_peer: Final = by_peer

    def __repr__(self) -> str:
        return f"ConnectionClosed({self.error!r}, {self.by_peer})"


@final
class SessionBegun(Event):
    """The peer began a session, or answered our begin."""

    __slots__ = ("session",)

    def __init__(self, session: AmqpSession) -> None:
        self.session: Final = session


@final
class SessionEnded(Event):
    """A session is over, and every link that is still in its `links` with it; those get no events of their own."""

    __slots__ = ("error", "session")

    def __init__(self, session: AmqpSession, error: AmqpError | None) -> None:
        self.session: Final = session
        self.error: Final = error


@final
class LinkAttaching(Event):
    """The peer wants a link: call `link.accept` or `link.refuse`, now or later."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link: Final = link


@final
class LinkAttached(Event):
    """Our own attach was answered, and not refused."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link: Final = link


@final
class LinkDetached(Event):
    """A link is over; comes once per link.

    The peer detached it (and was answered), or it answered our detach, or the engine had to detach it: in both
    latter cases `by_peer` is False. What we sent on it and was not settled is forgotten.
    """

    __slots__ = ("by_peer", "closed", "error", "link")

    def __init__(self, link: Link, error: AmqpError | None, closed: bool, by_peer: bool) -> None:
        self.link: Final = link
        self.error: Final = error
        self.closed: Final = closed
        self.by_peer: Final = by_peer


@final
class LinkFlow(Event):
    """An outgoing link may send more, or shall drain, or its session's window opened again; or an incoming link
    that was asked to drain has done so.

    May come for a link that is not accepted yet: clients send their first credit along with the attach.
    """

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link: Final = link


@final
class DeliveryReceived(Event):
    """One whole delivery, its frames joined.

    May come for a link that is not accepted yet, since clients send along with the attach.
    """

    __slots__ = ("delivery_id", "link", "message_format", "payload", "settled", "state", "tag")

    def __init__(
        self,
        link: IncomingLink,
        delivery_id: i64,
        tag: bytes,
        message_format: i64,
        settled: bool,
        payload: bytes,
        state: Outcome | None,
    ) -> None:
        self.link: Final = link
        self.delivery_id: i64 = delivery_id
        self.tag: Final = tag
        self.message_format: i64 = message_format
        self.settled: Final = settled
        self.payload: Final = payload
        self.state: Final = state


@final
class DeliveryTooLarge(Event):
    """A delivery above the link's limit, or one for which there is no room. Its bytes were dropped as they came; it is
    still to be rejected."""

    __slots__ = ("delivery_id", "lacks_room", "link", "settled", "size_bytes", "state")

    def __init__(
        self,
        link: IncomingLink,
        delivery_id: i64,
        settled: bool,
        state: Outcome | None,
        size_bytes: i64,
        lacks_room: bool = False,
    ) -> None:
        self.link: Final = link
        self.delivery_id: i64 = delivery_id
        self.size_bytes: i64 = size_bytes
        """Number of bytes that came, all of which were dropped."""
        self.lacks_room: Final = lacks_room
        """It is not too large, but may have to wait, while another large one is under way on the connection."""
        self.settled: Final = settled
        self.state: Final = state


@final
class DispositionReceived(Event):
    """The peer, as receiver, spoke about deliveries that we sent and that are not settled: one event per frame.

    With `settled` the engine has forgotten them. Otherwise they stay until we settle them with
    `session.settle(..., role_receiver=False)`.
    """

    __slots__ = ("deliveries", "outcome", "session", "settled")

    def __init__(
        self,
        session: AmqpSession,
        deliveries: list[OutgoingDelivery],
        outcome: Outcome | None,
        settled: bool,
    ) -> None:
        self.session: Final = session
        self.deliveries: Final = deliveries
        self.outcome: Final = outcome
        self.settled: Final = settled


@final
class WorkDropped(Event):
    """A part of a transaction that is about nothing: a transfer on a link that is over, or a disposition of deliveries
    that are. Told, since the transaction must not be carried out without it."""

    __slots__ = ("state",)

    def __init__(self, state: Outcome) -> None:
        self.state: Final = state


@final
class SettlementConfirmed(Event):
    """The peer, as sender, spoke about deliveries that we received: the answer to our unsettled disposition.

    The range is as the peer wrote it: compare with what is awaited, do not loop over it.
    """

    __slots__ = ("first", "last", "outcome", "session", "settled")

    def __init__(self, session: AmqpSession, first: i64, last: i64, outcome: Outcome | None, settled: bool) -> None:
        self.session: Final = session
        self.first: i64 = first
        self.last: i64 = last
        self.outcome: Final = outcome
        self.settled: Final = settled
