"""A stream of bytes means the same however it is cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tandembus.amqp.encoding.frames import AMQP_HEADER, EMPTY_FRAME
from tandembus.amqp.engine import (
    Connection,
    DeliveryReceived,
    DeliveryTooLarge,
    DispositionReceived,
    Event,
    IncomingLink,
    LinkAttaching,
    LinkDetached,
    OutgoingLink,
    SaslInit,
    SessionEnded,
)
from tests.unit.amqp.engine.peers import (
    SASL_ANONYMOUS,
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    open_frame,
    server_settings,
    transfer_frame,
)

CONVERSATION = b"".join(
    (
        SASL_ANONYMOUS,
        AMQP_HEADER,
        open_frame(idle_timeout_ms=60_000),
        begin_frame(),
        attach_frame(1, False, "out"),
        attach_frame(2, True, "in"),
        transfer_frame(0, b"early"),
        flow_frame(2, 3, 0),
        EMPTY_FRAME,
        transfer_frame(1, b"x" * 900, True),
        transfer_frame(None, b"y" * 900, True),
        transfer_frame(None, b"z" * 900),
        transfer_frame(2, b"too large" * 1_000),
        disposition_frame(0, 2, b"\x00\x53\x24\x45", True),
        flow_frame(2, 3, 3, drain=True),
        detach_frame(1),
        transfer_frame(3, b"nobody there"),
    )
)


def play(chunks: list[bytes]) -> tuple[list[str], bytes]:
    """What a server that answers at once makes of the conversation: its events as text, and what it writes."""
    server = Connection(server_settings(), 0.0)
    seen: list[str] = []
    out = b""
    for chunk in chunks:
        pending = server.receive_data(chunk)
        while pending:
            event = pending.pop(0)
            seen.append(describe(event))
            react(server, event)
            if isinstance(event, SaslInit):
                pending += server.receive_data(b"")
        out += server.data_to_send()
    return seen, out


def react(server: Connection, event: Event) -> None:
    if isinstance(event, SaslInit):
        server.sasl_outcome(True)
    elif isinstance(event, LinkAttaching):
        event.link.accept(5_000)


def describe(event: Event) -> str:
    name = type(event).__name__
    if isinstance(event, DeliveryReceived):
        return f"{name} {event.link.name} {event.delivery_id} {event.tag!r} {event.payload!r}"
    if isinstance(event, DeliveryTooLarge):
        return f"{name} {event.link.name} {event.delivery_id}"
    if isinstance(event, DispositionReceived):
        return f"{name} {[int(delivery.delivery_id) for delivery in event.deliveries]}"
    if isinstance(event, (LinkAttaching, LinkDetached)):
        link = event.link
        credit = link.credit if isinstance(link, OutgoingLink) else -1
        assert isinstance(link, (IncomingLink, OutgoingLink))
        return f"{name} {link.name} {credit if isinstance(event, LinkDetached) else ''}"
    if isinstance(event, SessionEnded):
        return f"{name} {event.error!r}"
    return name


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % len(data) for place in places), len(data)]
    return [data[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


def test_the_conversation_means_something() -> None:
    seen, _ = play([CONVERSATION])
    assert [text.split()[0] for text in seen] == [
        "SaslInit",
        "Opened",
        "SessionBegun",
        "LinkAttaching",
        "LinkAttaching",
        "DeliveryReceived",
        "LinkFlow",
        "DeliveryReceived",
        "DeliveryReceived",
        "LinkFlow",
        "LinkDetached",
        "SessionEnded",
    ]


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    by_bytes, _ = play([CONVERSATION[at : at + 1] for at in range(len(CONVERSATION))])
    at_frame_ends, _ = play(cut(CONVERSATION, [len(SASL_ANONYMOUS)]))
    assert [text for text in by_bytes if "TooLarge" not in text and "DeliveryReceived out 2" not in text] == [
        text for text in at_frame_ends if "TooLarge" not in text and "DeliveryReceived out 2" not in text
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, len(CONVERSATION) - 1), max_size=12))
def test_any_split_gives_the_same_events_and_the_same_answers(places: list[int]) -> None:
    passive_whole, passive_split = Passive(), Passive()
    assert passive_whole.play([CONVERSATION]) == passive_split.play(cut(CONVERSATION, places))


class Passive:
    """A server whose application answers nothing but SASL, so that the timing of its answers cannot matter."""

    def play(self, chunks: list[bytes]) -> tuple[list[str], bytes]:
        server = Connection(server_settings(), 0.0)
        seen: list[str] = []
        for chunk in chunks:
            for event in server.receive_data(chunk):
                seen.append(describe(event))
                if isinstance(event, SaslInit):
                    server.sasl_outcome(True)
                    seen += [describe(later) for later in server.receive_data(b"")]
        return seen, server.data_to_send()
