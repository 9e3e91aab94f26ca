"""The rules that break clients when they are broken, as far as they are the engine's to keep.

Where the Python SDK is installed, its own decoder reads what we write: it is the strictest judge there is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from tandembus.amqp.encoding import Described, Encoded, decode, encode, symbol
from tandembus.amqp.encoding.frames import frame
from tandembus.amqp.engine import (
    ACCEPTED_STATE,
    MODIFIED_STATE,
    REJECTED_STATE,
    RELEASED_STATE,
    AmqpError,
    DeliveryReceived,
    DispositionReceived,
    LinkAttaching,
    rejected_state,
)
from tests.unit.amqp.engine.peers import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    Frame,
    HandWritten,
    Pair,
    attach_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    frames_of,
    only,
    transfer_frame,
)

ERROR = AmqpError("amqp:not-found", "no such queue")


def error_fields(value: object) -> list[object]:
    assert isinstance(value, Described)
    assert value.descriptor == 0x1D
    assert isinstance(value.value, list)
    return value.value


def answer_of(peer: HandWritten, code: int) -> Frame:
    """The one frame that the server just wrote, which must be of this kind."""
    frames = peer.take()
    assert [one.code for one in frames] == [code]
    return frames[0]


@pytest.mark.parametrize("info", [None, {"key": "value"}])
def test_rule_1_an_error_always_carries_condition_description_and_info(info: dict[object, object] | None) -> None:
    error = AmqpError("amqp:not-found", "no such queue", info)
    expected: list[object] = ["amqp:not-found", "no such queue", info]

    peer = HandWritten().open()
    link = peer.attach_sender(1)
    link.session.settle(0, 0, rejected_state(error))
    state = answer_of(peer, DISPOSITION).fields[4]
    assert isinstance(state, Described)
    assert isinstance(state.value, list)
    assert error_fields(state.value[0]) == expected
    link.detach(error)
    assert error_fields(answer_of(peer, DETACH).fields[2]) == expected
    link.session.end(error)
    assert error_fields(answer_of(peer, END).fields[0]) == expected
    peer.server.close(error)
    assert error_fields(answer_of(peer, CLOSE).fields[0]) == expected


def test_rule_1_the_condition_is_a_symbol() -> None:
    value, _ = decode(rejected_state(ERROR), 0, typed=True)
    assert isinstance(value, Described)
    assert isinstance(value.value, list)
    assert error_fields(value.value[0])[0] == symbol("amqp:not-found")


def test_rule_1_the_engine_s_own_close_carries_all_fields_too() -> None:
    peer = HandWritten().open()
    peer.send(b"\x00\x00\x00\x01\x02\x00\x00\x00")
    fields = error_fields(peer.frames[0].fields[0])
    assert fields[0] == "amqp:connection:framing-error"
    assert len(fields) == 3


@pytest.mark.parametrize(("state", "code"), [(ACCEPTED_STATE, 0x24), (rejected_state(ERROR), 0x25)])
def test_rule_2_a_send_is_answered_with_accepted_or_rejected_settled_by_the_receiver(state: bytes, code: int) -> None:
    peer = HandWritten().open()
    link = peer.attach_sender(1)
    delivery = only(DeliveryReceived, peer.send(transfer_frame(7, b"x")))
    link.session.settle(int(delivery.delivery_id), int(delivery.delivery_id), state)
    role, first, last, settled, outcome, _ = answer_of(peer, DISPOSITION).fields
    assert (role, first, last, settled) == (True, 7, 7, True)
    assert isinstance(outcome, Described)
    assert outcome.descriptor == code


@pytest.mark.parametrize("is_receiver", [True, False])
def test_rule_3_a_refused_link_is_attached_without_ends_and_then_detached(is_receiver: bool) -> None:
    peer = HandWritten().open()
    only(LinkAttaching, peer.send(attach_frame(5, is_receiver, "refused"))).link.refuse(ERROR)
    attach, detach = peer.take()
    assert (attach.code, detach.code) == (ATTACH, DETACH)
    assert attach.fields[0] == "refused"
    assert attach.fields[2] is not is_receiver
    assert attach.fields[5:7] == [None, None]
    assert detach.fields[:2] == [attach.fields[1], True]
    assert error_fields(detach.fields[2])[0] == "amqp:not-found"


@pytest.mark.parametrize("is_receiver", [True, False])
@pytest.mark.parametrize(
    "source",
    [
        Described(0x28, ["amqps://host:5673/Queue.1"]),
        Described(0x28, ["q", None, None, None, None, None, None, {symbol("com.microsoft:session-filter"): "s"}]),
        Described(0x28, []),
        Described("amqp:source:list", ["q"]),
        None,
    ],
    ids=["address", "filter", "empty", "symbolic", "absent"],
)
def test_rule_4_an_accepted_link_has_both_ends_as_the_client_wrote_them(source: object, is_receiver: bool) -> None:
    peer = HandWritten().open()
    link = only(LinkAttaching, peer.send(attach_frame(5, is_receiver, "mine", source=source))).link
    link.accept(262_144)
    fields = answer_of(peer, ATTACH).fields
    assert fields[0] == "mine"
    for index, code in ((5, 0x28), (6, 0x29)):
        end = fields[index]
        assert isinstance(end, Described)
        assert end.descriptor == code
        assert isinstance(end.value, list)
        assert len(end.value) > 0
    if isinstance(source, Described) and source.value:
        echoed = fields[5]
        assert isinstance(echoed, Described)
        assert echoed.value == decode(encode(source.value))[0]
    assert fields[3:5] == [0, 1]
    assert fields[9] == (0 if is_receiver else None)
    assert fields[10] == 262_144


def test_rule_4_the_source_is_echoed_byte_by_byte() -> None:
    peer = HandWritten().open()
    wide = b"\xd0\x00\x00\x00\x0a\x00\x00\x00\x01\xb1\x00\x00\x00\x01q"  # the long forms, as nobody must send them
    link = only(LinkAttaching, peer.send(attach_frame(source=Encoded(b"\x00\x53\x28" + wide)))).link
    link.accept()
    assert b"\x00\x53\x28" + wide in peer.server.data_to_send()


def everything_we_write() -> list[bytes]:
    """Frames of a conversation in which every performative occurs, in both roles."""
    pair = Pair()
    pair.client.start("PLAIN", b"\0a\0b")
    said: list[bytes] = []

    def exchange() -> None:
        while True:
            to_server, to_client = pair.client.data_to_send(), pair.server.data_to_send()
            said.extend((to_server, to_client))
            if not to_server and not to_client:
                return
            pair._give_server(to_server)
            for event in pair.server.receive_data(b""):
                pair.at_server.append(event)
            pair.client.receive_data(to_client)

    exchange()
    session = pair.client.begin()
    sender = session.attach_sender("out", "queue")
    receiver = session.attach_receiver("in", "queue")
    exchange()
    for event in [event for event in pair.at_server if isinstance(event, LinkAttaching)]:
        event.link.accept()
        if event.link.is_receiver:
            event.link.grant(100)  # type: ignore[attr-defined]
    exchange()
    receiver.grant(10)
    for size in (10, 100_000):
        sender.send(b"t", b"x" * size, False, None, message_format=0x80013700)
    exchange()
    for state in (ACCEPTED_STATE, RELEASED_STATE, MODIFIED_STATE, REJECTED_STATE, rejected_state(ERROR), b""):
        session.settle(0, 0, state, settled=False)
    session.settle(0, 0, rejected_state(AmqpError("c", "d" * 300)))
    sender.detach(ERROR)
    session.end(ERROR)
    pair.client.close(ERROR)
    exchange()
    return [frame.data for data in said for frame in frames_of(data) if frame.code >= 0]


def test_rule_5_every_performative_has_the_short_descriptor() -> None:
    frames = everything_we_write()
    assert {frame[10] for frame in frames} == set(range(0x10, 0x19)) | {0x40, 0x41, 0x44}
    assert all(frame[8:10] == b"\x00\x53" for frame in frames)


def test_rule_5_delivery_states_have_it_too() -> None:
    for state in (ACCEPTED_STATE, RELEASED_STATE, MODIFIED_STATE, REJECTED_STATE, rejected_state(ERROR)):
        assert state[:2] == b"\x00\x53"


def test_rule_6_every_flow_has_the_session_s_fields_and_a_link_s_its_count_and_credit() -> None:
    peer = HandWritten().open()
    link = peer.attach_sender(1, credit=5)
    peer.send(transfer_frame(0, b"x"), transfer_frame(1, b"x"))
    link.grant(50)
    flow = answer_of(peer, FLOW)
    assert flow.fields[:4] == [2, 65_536, 0, 65_536]
    assert flow.fields[4:7] == [link.handle, 2, 50]
    peer.send(flow_frame(echo=True))
    assert peer.frames[0].fields == [2, 65_536, 0, 65_536] + [None] * 7
    receiver = peer.attach_receiver(2, "in", credit=5)
    receiver.send(b"t", b"", True, None)
    receiver.drained()
    assert peer.take()[-1].fields[:7] == [2, 65_536, 1, 65_536, receiver.handle, 5, 0]


def test_lists_have_all_their_fields_because_clients_read_them_by_index() -> None:
    peer = HandWritten().open()
    link = peer.attach_receiver(1, credit=2)
    link.send(b"t" * 16, b"x" * 100_000, False, "lock")
    peer.send(flow_frame(echo=True), flow_frame(1, 2, 0, echo=True))
    link.session.settle(0, 0, ACCEPTED_STATE, settled=True, role_receiver=False)
    link.detach(ERROR)
    peer.take()
    counts = {OPEN: 10, BEGIN: 8, ATTACH: 14, FLOW: 11, TRANSFER: 11, DISPOSITION: 6, DETACH: 3}
    assert {(one.code, len(one.fields)) for one in peer.all_frames} == set(counts.items())


def test_rule_7_ten_thousand_transfers_without_credit_are_taken() -> None:
    peer = HandWritten().open()
    peer.attach_sender(1)
    assert len(peer.send(*[transfer_frame(number, b"") for number in range(10_000)])) == 10_000


@pytest.mark.parametrize("state", [ACCEPTED_STATE, MODIFIED_STATE, REJECTED_STATE, RELEASED_STATE], ids=bytes.hex)
def test_rule_8_settlement_has_two_phases_and_ends_with_the_sender_s_settled_echo(state: bytes) -> None:
    peer = HandWritten().open()
    link = peer.attach_receiver(1, credit=1)
    link.send(b"t" * 16, b"x", False, "lock")
    peer.take()
    event = only(DispositionReceived, peer.send(disposition_frame(0, 0, state, settled=False)))
    assert peer.frames == []
    assert event.deliveries[0].context == "lock"
    event.session.settle(0, 0, state, settled=True, role_receiver=False)
    echo = answer_of(peer, DISPOSITION)
    assert echo.fields[:4] == [False, 0, 0, True]
    assert echo.data.endswith(state + b"\x40")
    assert link.session.unsettled.by_id == {}


def test_rule_8_a_settled_disposition_needs_no_answer() -> None:
    peer = HandWritten().open()
    link = peer.attach_receiver(1, credit=1)
    link.send(b"t" * 16, b"x", False, "lock")
    peer.take()
    assert only(DispositionReceived, peer.send(disposition_frame(0, 0, RELEASED_STATE, True))).settled
    assert peer.frames == []


def test_rule_13_delivery_ids_are_consecutive_over_all_links_of_a_session() -> None:
    peer = HandWritten().open(window=40, max_frame_size=512)
    links = [peer.attach_receiver(handle, f"link {handle}", credit=100) for handle in range(3)]
    peer.send(flow_frame(window=40))
    for number in range(60):
        links[number % 3].send(b"t" * 16, b"x" * (number * 20), number % 2 == 0, None)
    frames = peer.take()
    links[1].detach()
    frames += peer.take()
    peer.send(flow_frame(next_incoming_id=0, window=2**31))
    frames += peer.frames
    links[2].send(b"t", b"last", True, None)
    frames += peer.take()
    ids = [frame.fields[1] for frame in frames if frame.code == TRANSFER and frame.fields[1] is not None]
    assert ids == list(range(61))


def test_rule_15_the_answer_to_our_own_detach_end_or_close_is_not_answered() -> None:
    peer = HandWritten().open()
    link = peer.attach_sender(1)
    link.detach(ERROR)
    answer_of(peer, DETACH)
    peer.send(detach_frame(1))
    assert peer.frames == []
    link.session.end(ERROR)
    answer_of(peer, END)
    peer.send(frame(0, 1, END, []))
    assert peer.frames == []
    peer.server.close(ERROR)
    answer_of(peer, CLOSE)
    peer.send(frame(0, 0, CLOSE, []))
    assert peer.frames == []


def test_rule_15_detaches_that_cross_are_each_other_s_answer() -> None:
    pair = Pair().open()
    link, peer = pair.sender(pair.begin())
    link.detach()
    peer.detach()
    crossing_to_server, crossing_to_client = pair.client.data_to_send(), pair.server.data_to_send()
    pair.server.receive_data(crossing_to_server)
    pair.client.receive_data(crossing_to_client)
    assert pair.server.data_to_send() == pair.client.data_to_send() == b""


@pytest.fixture
def sdk_decoder() -> Callable[[bytes], tuple[int, list[Any]]]:
    """The Python SDK's frame decoder, which indexes into lists without asking how long they are."""
    pytest.importorskip("azure.servicebus", reason="the Python SDK is not installed")
    module = importlib.import_module("azure.servicebus._pyamqp._decode")

    def decode_frame(body: bytes) -> tuple[int, list[Any]]:
        code, fields = module.decode_frame(memoryview(body))
        return int(code), list(fields)

    return decode_frame


def test_the_python_sdk_reads_every_frame_we_write(sdk_decoder: Callable[[bytes], tuple[int, list[Any]]]) -> None:
    for data in everything_we_write():
        if data[5] == 1:
            continue
        ours = Frame(data)
        code, fields = sdk_decoder(data[8:])
        assert code == ours.code
        if code == TRANSFER:
            assert bytes(fields[11]) == ours.payload
        if code == ATTACH:
            assert fields[0].decode() == ours.fields[0]
        if code == FLOW:
            assert fields[: len(ours.fields)] == ours.fields
