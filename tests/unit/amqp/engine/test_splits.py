"""A stream of bytes means the same however it is cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tandembus.amqp.encoding.frames import AMQP_HEADER, EMPTY_FRAME
from tandembus.amqp.engine import (
    Connection,
    DeliveryReceived,
    DeliveryTooLarge,
    DispositionReceived,
    Event,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
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
    """The server's events as text, and what it writes. Its application answers nothing but SASL, since the time at
    which it accepts a link would depend on the split."""
    server = Connection(server_settings(max_message_size=5_000), 0.0)
    seen: list[str] = []
    for chunk in chunks:
        for event in server.receive_data(chunk):
            seen.append(describe(event))
            if isinstance(event, SaslInit):
                server.sasl_outcome(True)
                seen += [describe(later) for later in server.receive_data(b"")]
    return seen, server.data_to_send()


def describe(event: Event) -> str:
    name = type(event).__name__
    if isinstance(event, DeliveryReceived):
        return f"{name} {event.link.name} {event.delivery_id} {event.tag!r} {event.payload!r}"
    if isinstance(event, DeliveryTooLarge):
        return f"{name} {event.link.name} {event.delivery_id} {event.size_bytes}"
    if isinstance(event, DispositionReceived):
        return f"{name} {[int(delivery.delivery_id) for delivery in event.deliveries]}"
    if isinstance(event, (LinkAttaching, LinkDetached, LinkFlow)):
        return f"{name} {event.link.name}"
    if isinstance(event, SessionEnded):
        return f"{name} {event.error!r}"
    return name


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % len(data) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


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
        "DeliveryTooLarge",
        "LinkFlow",
        "LinkDetached",
        "SessionEnded",
    ]


def test_one_byte_at_a_time_gives_the_same_events_and_answers() -> None:
    assert play([CONVERSATION[at : at + 1] for at in range(len(CONVERSATION))]) == play([CONVERSATION])


@settings(max_examples=300)
@given(st.lists(st.integers(0, len(CONVERSATION) - 1), max_size=12))
def test_any_split_gives_the_same_events_and_answers(places: list[int]) -> None:
    assert play(cut(CONVERSATION, places)) == play([CONVERSATION])
