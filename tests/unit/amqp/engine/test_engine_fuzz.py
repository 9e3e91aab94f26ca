"""Malformed frames in every state of a connection: the engine never raises, closes once, and writes sound frames."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tandembus.amqp.encoding.frames import AMQP_HEADER, SASL_HEADER, frame
from tandembus.amqp.engine import (
    ACCEPTED_STATE,
    AmqpError,
    Connection,
    ConnectionClosed,
    DeliveryReceived,
    DispositionReceived,
    Event,
    IncomingLink,
    LinkAttaching,
    LinkFlow,
    OutgoingLink,
    SaslInit,
)
from tests.covers import covers
from tests.scale import scaled
from tests.unit.amqp.engine.peers import (
    SASL_ANONYMOUS,
    attach_frame,
    begin_frame,
    client_settings,
    flow_frame,
    frames_of,
    open_frame,
    server_settings,
    transfer_frame,
)
from tests.unit.amqp.mutation import Mutator, performatives, resident_bytes

MEGABYTE = 1024 * 1024
OPENED = AMQP_HEADER + open_frame() + begin_frame()


def server_after(data: bytes) -> Connection:
    server = Connection(server_settings(), 0.0)
    for event in server.receive_data(data):
        react(server, event)
    return server


def new() -> Connection:
    return server_after(b"")


def in_sasl() -> Connection:
    return server_after(SASL_HEADER)


def deciding() -> Connection:
    server = Connection(server_settings(), 0.0)
    server.receive_data(SASL_ANONYMOUS)
    return server


def authenticated() -> Connection:
    return server_after(SASL_ANONYMOUS)


def opening() -> Connection:
    return server_after(AMQP_HEADER)


def opened() -> Connection:
    return server_after(AMQP_HEADER + open_frame())


def begun() -> Connection:
    return server_after(OPENED)


def linked() -> Connection:
    """Two links, one of them within a delivery, the other with unsettled deliveries."""
    server = server_after(OPENED + attach_frame(1, False, "out") + attach_frame(2, True, "in"))
    server.receive_data(flow_frame(2, 50, 0, window=3))
    for link in outgoing_links(server):
        for number in range(5):
            link.send(b"tag", b"x" * 1_000, number % 2 == 0, number)
    server.receive_data(transfer_frame(0, b"half", more=True))
    return server


def detached() -> Connection:
    server = linked()
    for session in server.sessions.values():
        for link in list(session.links.values()):
            link.detach(AmqpError("amqp:link:detach-forced", "over"))
    return server


def ended() -> Connection:
    server = linked()
    for session in server.sessions.values():
        session.end()
    return server


def closing() -> Connection:
    server = linked()
    server.close()
    return server


def client_starting() -> Connection:
    client = Connection(client_settings(), 0.0)
    client.start("PLAIN", b"\0name\0key")
    return client


def client_linked() -> Connection:
    """A client whose session and links were answered."""
    client = Connection(client_settings(), 0.0)
    client.start(None)
    client.receive_data(AMQP_HEADER + open_frame())
    session = client.begin()
    session.attach_sender("in", "queue")
    session.attach_receiver("out", "queue")
    client.receive_data(frame(0, 1, 0x11, [int(session.channel), 0, 65_536, 65_536]))
    client.receive_data(attach_frame(2, True, "in") + attach_frame(1, False, "out"))
    for link in outgoing_links(client):
        link.send(b"tag", b"x", False, None)
    return client


STATES: tuple[Callable[[], Connection], ...] = (
    new,
    in_sasl,
    deciding,
    authenticated,
    opening,
    opened,
    begun,
    linked,
    detached,
    ended,
    closing,
    client_starting,
    client_linked,
)


def outgoing_links(connection: Connection) -> list[OutgoingLink]:
    return [
        link
        for session in connection.sessions.values()
        for link in session.links.values()
        if isinstance(link, OutgoingLink)
    ]


def react(connection: Connection, event: Event) -> None:
    """An application that does something about everything."""
    if isinstance(event, SaslInit):
        connection.sasl_outcome(True)
    elif isinstance(event, LinkAttaching):
        answer_attach(event)
    elif isinstance(event, DeliveryReceived):
        event.link.session.settle(int(event.delivery_id), int(event.delivery_id), ACCEPTED_STATE)
    elif isinstance(event, DispositionReceived):
        for delivery in event.deliveries:
            number = int(delivery.delivery_id)
            event.session.settle(number, number, ACCEPTED_STATE, role_receiver=False)
    elif isinstance(event, LinkFlow) and isinstance(event.link, OutgoingLink):
        if event.link.credit > 0 and event.link.window_is_open():
            event.link.send(b"t", b"payload", False, None)
        if event.link.drain:
            event.link.drained()


def answer_attach(event: LinkAttaching) -> None:
    if event.link.name.endswith("2"):
        event.link.refuse(AmqpError("amqp:not-found", "no such queue"))
        return
    event.link.accept(100_000)
    if isinstance(event.link, IncomingLink):
        event.link.grant(10)


def attack(connection: Connection, mutator: Mutator) -> None:
    """Some frames, some of them malformed, in pieces; then what must be true of every connection."""
    closed = 0
    for _ in range(1 + mutator.number(7)):
        data = mutator.next_frame() if mutator.chance(0.2) else mutator.next_performative()
        middle = mutator.number(len(data))
        for piece in (data[:middle], data[middle:]):
            for event in connection.receive_data(piece):
                assert closed == 0, "an event after the last one"
                closed += isinstance(event, ConnectionClosed)
                react(connection, event)
        if mutator.chance(0.2):
            connection.tick(1.0)
    assert closed == 0 or connection.is_closed
    frames_of(connection.data_to_send())
    assert connection.pending_bytes() < MEGABYTE


@pytest.mark.chaos
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@covers("F12")
def test_malformed_frames_in_any_state_are_answered_by_the_protocol_s_rules(
    state: Callable[[], Connection],
) -> None:
    corpus = [one for one in performatives() if one[5] == (state in (in_sasl, client_starting))]
    if state in (new, authenticated, client_starting):
        corpus = [*corpus, *[AMQP_HEADER, SASL_HEADER] * 10]
    mutator = Mutator(len(STATES) + STATES.index(state), corpus)
    before = resident_bytes()
    slowest = 0.0
    for _ in range(scaled(8_000, 1_000_000, 5_000_000) // len(STATES)):
        connection = state()
        frames_of(connection.data_to_send())
        began = time.perf_counter()
        attack(connection, mutator)
        slowest = max(slowest, time.perf_counter() - began)
    assert resident_bytes() - before < 64 * MEGABYTE
    assert slowest < 1.0
