"""Sessions on the wire: what is held, what is answered, and what strangers may not do."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, decode_message, properties_section
from tandembus.amqp.encoding.values import Array, Described, Typed, int_, symbol, timestamp, ubyte, uint
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import RECEIVER, SENDER, Frame, RawAmqp, plain, source_of, state_of, target_of, texts
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape

SESSION_FILTER = "com.microsoft:session-filter"
TICKS_AT_EPOCH = 621_355_968_000_000_000
EVERY_SESSION = timestamp(253_402_300_800_000)
LONG = 0x81


@pytest.fixture
def session_queue(bus: Bus) -> str:
    return bus.make_queue(requires_session=True)


@pytest.fixture
def other(bus: Bus) -> Iterator[RawAmqp]:
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        yield raw


def ask(
    raw: RawAmqp, address: str, session: object, handle: int = RECEIVER, timeout: object = None, name: str = "link"
) -> None:
    """Attach a session receiver, without waiting for the answer."""
    session_filter = {symbol(SESSION_FILTER): session}
    source = source_of(address, None, None, None, None, None, None, session_filter)
    properties = None if timeout is None else {symbol("com.microsoft:timeout"): timeout}
    fields: list[object] = [name, uint(handle), True, ubyte(0), ubyte(1), source, target_of("client")]
    raw.perform(codes.ATTACH, [*fields, None, None, None, None, None, None, properties])


def accept(raw: RawAmqp, address: str, session: object, handle: int = RECEIVER, name: str = "link") -> Frame:
    ask(raw, address, session, handle, name=name)
    return raw.expect(codes.ATTACH)


def refusal(raw: RawAmqp) -> object:
    """The condition of a refused attach: an attach without source and target, then a detach."""
    attached = raw.expect(codes.ATTACH)
    assert (attached[5], attached[6]) == (None, None)
    detached = raw.expect(codes.DETACH)
    raw.perform(codes.DETACH, [detached[0], True])
    return plain(detached.error(2)[0])


def session_of(attached: Frame) -> object:
    _, source = attached.described(5)
    filters = source[7]
    assert isinstance(filters, dict)
    return filters[symbol(SESSION_FILTER)]


def message(session_id: str, body: bytes = b"x") -> bytes:
    return properties_section("id", group_id=session_id) + data_section(body)


def send(raw: RawAmqp, queue: str, *session_ids: str) -> None:
    raw.attach_sender(SENDER, queue)
    for index, session_id in enumerate(session_ids):
        answer = raw.send_message(SENDER, index, message(session_id, str(index).encode()))
        assert answer.described(4)[0] == codes.ACCEPTED


def detach(raw: RawAmqp, handle: int = RECEIVER) -> None:
    raw.perform(codes.DETACH, [uint(handle), True])
    raw.expect(codes.DETACH)


@covers("M7")
def test_an_accepted_session_is_named_with_the_address_as_it_came_and_the_end_of_its_lock(
    raw: RawAmqp, session_queue: str
) -> None:
    address = f"amqps://localhost:5671/{session_queue.upper()}"
    attached = accept(raw, address, "mine")
    _, source = attached.described(5)
    assert source[0] == address
    assert session_of(attached) == "mine"
    properties = texts(attached[13])  # type: ignore[arg-type]
    until = properties["com.microsoft:locked-until-utc"]
    assert isinstance(until, int)
    assert until > TICKS_AT_EPOCH
    assert b"\x81" + struct.pack(">q", until) in attached.raw, "a long in its eight-byte form: clients read it raw"
    assert attached.number(9) == 0, "the initial delivery count"


@covers("M7")
def test_the_attach_is_held_until_there_is_a_session(raw: RawAmqp, other: RawAmqp, session_queue: str) -> None:
    ask(raw, session_queue, None)
    raw.perform(codes.FLOW, [uint(0), uint(65536), uint(0), uint(65536), None, None, None, None, False, True])
    assert raw.expect(codes.FLOW)[4] is None, "the answer to an echo comes, that to the attach does not"
    send(other, session_queue, "late")
    attached = raw.expect(codes.ATTACH)
    assert session_of(attached) == "late"
    raw.flow(RECEIVER, 1)
    _, received = raw.receive_message()
    assert received.body == b"0"


@covers("M7")
@pytest.mark.parametrize("timeout", [uint(200), Typed(LONG, 200), int_(200), 200.0])
def test_a_wait_in_vain_ends_in_a_time_out(raw: RawAmqp, session_queue: str, timeout: object) -> None:
    ask(raw, session_queue, None, timeout=timeout)
    assert refusal(raw) == "com.microsoft:timeout"


@covers("M7")
def test_credit_given_before_the_session_was_there_counts(raw: RawAmqp, other: RawAmqp, session_queue: str) -> None:
    ask(raw, session_queue, None)
    raw.flow(RECEIVER, 5)
    send(other, session_queue, "a", "a")
    raw.expect(codes.ATTACH)
    assert [raw.receive_message()[1].body for _ in range(2)] == [b"0", b"1"]


@covers("M7")
def test_a_held_session_is_refused_to_others(raw: RawAmqp, other: RawAmqp, session_queue: str) -> None:
    accept(raw, session_queue, "mine")
    ask(other, session_queue, "mine")
    assert refusal(other) == "com.microsoft:session-cannot-be-locked"
    detach(raw)
    assert session_of(accept(other, session_queue, "mine")) == "mine"


@covers("M7")
def test_a_lost_connection_frees_its_sessions_at_once(bus: Bus, raw: RawAmqp, session_queue: str) -> None:
    with RawAmqp(bus.running.port) as going:
        going.log_in()
        send(going, session_queue, "a")
        accept(going, session_queue, "a")
        going.flow(RECEIVER, 1)
        going.receive_message()
    ask(raw, session_queue, None)
    assert session_of(raw.expect(codes.ATTACH)) == "a"
    raw.flow(RECEIVER, 1)
    _, received = raw.receive_message()
    assert received.header is not None
    assert plain(received.header[4]) == 0


@covers("M7")
def test_whoever_gives_up_waiting_takes_no_session(raw: RawAmqp, other: RawAmqp, session_queue: str) -> None:
    ask(raw, session_queue, None, handle=5, name="given up")
    raw.perform(codes.DETACH, [uint(5), True])
    raw.expect(codes.ATTACH)
    raw.expect(codes.DETACH)
    ask(other, session_queue, None)
    send(raw, session_queue, "a")
    assert session_of(other.expect(codes.ATTACH)) == "a"


@covers("M7")
def test_whoever_loses_its_connection_while_waiting_takes_no_session(
    bus: Bus, raw: RawAmqp, other: RawAmqp, session_queue: str
) -> None:
    with RawAmqp(bus.running.port) as going:
        going.log_in()
        ask(going, session_queue, None)
        going.attach_sender(SENDER, session_queue)  # what came before was taken, too
    ask(other, session_queue, None)
    send(raw, session_queue, "a")
    assert session_of(other.expect(codes.ATTACH)) == "a"


@covers("M7")
def test_a_waiting_receiver_is_refused_when_its_queue_is_deleted(bus: Bus, raw: RawAmqp, session_queue: str) -> None:
    ask(raw, session_queue, None)
    raw.attach_sender(SENDER, session_queue)
    bus.admin.delete_queue(session_queue)
    detached: list[Frame] = []
    while len(detached) < 2:
        found = raw.next_frame()
        if found.code == codes.DETACH:
            detached.append(found)
    assert {one.plain(0) for one in detached} == {SENDER, RECEIVER}
    assert {plain(one.error(2)[0]) for one in detached} == {"amqp:not-found"}


@covers("M7")
def test_a_lapsed_session_detaches_its_link_in_the_end(small_bus: Bus) -> None:
    queue = small_bus.make_queue(requires_session=True, lock_duration="PT1S")
    with RawAmqp(small_bus.running.port) as raw:
        raw.log_in()
        send(raw, queue, "a")
        accept(raw, queue, "a")
        raw.flow(RECEIVER, 1)
        raw.receive_message()
        detached = raw.expect(codes.DETACH)
        assert plain(detached.error(2)[0]) == "com.microsoft:session-lock-lost"
        assert small_bus.comes_to(queue, Counts(active=1))


@covers("M7")
def test_drain_in_a_session_ends_with_its_own_messages(raw: RawAmqp, session_queue: str) -> None:
    send(raw, session_queue, "a", "b", "a")
    accept(raw, session_queue, "a")
    raw.flow(RECEIVER, 10, drain=True)
    assert [raw.receive_message()[1].body for _ in range(2)] == [b"0", b"2"]
    drained = raw.next_frame()
    assert (drained.code, drained.plain(4), drained.plain(6)) == (codes.FLOW, RECEIVER, 0)


# Requests.


@covers("M7")
def test_state_and_lock_are_for_the_holder_only(raw: RawAmqp, other: RawAmqp, session_queue: str) -> None:
    accept(raw, session_queue, "a", name="holder")
    mine = raw.attach_node(f"{session_queue}/$management")
    theirs = other.attach_node(f"{session_queue}/$management")
    for operation in ("get-session-state", "set-session-state", "renew-session-lock"):
        body: dict[str, object] = {"session-id": "a", "session-state": b"x"}
        name = f"com.microsoft:{operation}"
        assert mine.manage(name, body)[0] == 200
        assert mine.manage(name, body, **{"associated-link-name": "holder"})[0] == 200
        assert mine.manage(name, body, **{"associated-link-name": "another"})[:2] == (
            410,
            "com.microsoft:session-lock-lost",
        )
        assert theirs.manage(name, body)[:2] == (410, "com.microsoft:session-lock-lost")
        assert mine.manage(name, {"session-id": "b"})[:2] == (410, "com.microsoft:session-lock-lost")
    got = mine.manage("com.microsoft:get-session-state", {"session-id": "a"})
    assert got == (200, None, {"session-state": b"x"})


@covers("M7")
def test_a_state_that_was_never_set_is_null_in_a_map(raw: RawAmqp, session_queue: str) -> None:
    accept(raw, session_queue, "a")
    node = raw.attach_node(f"{session_queue}/$management")
    assert node.manage("com.microsoft:get-session-state", {"session-id": "a"}) == (200, None, {"session-state": None})


@covers("M7")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"session-id": None},
        {"session-id": 5},
        {"session-id": b"a"},
        {"session-id": "x" * 129},
        {"session-id": "a", "session-state": "text"},
        {"session-id": "a", "session-state": [b"a"]},
    ],
)
def test_a_malformed_session_request_is_an_argument_error(
    raw: RawAmqp, session_queue: str, body: dict[str, object]
) -> None:
    accept(raw, session_queue, "a")
    node = raw.attach_node(f"{session_queue}/$management")
    assert node.manage("com.microsoft:set-session-state", body)[:2] == (400, "com.microsoft:argument-error")


@covers("M7")
def test_session_requests_to_a_plain_queue_are_not_allowed(raw: RawAmqp, queue: str) -> None:
    node = raw.attach_node(f"{queue}/$management")
    not_allowed = (400, "amqp:not-allowed")
    for operation in ("get-session-state", "set-session-state", "renew-session-lock"):
        assert node.manage(f"com.microsoft:{operation}", {"session-id": "a"})[:2] == not_allowed
    listing = {"last-updated-time": EVERY_SESSION, "skip": int_(0), "top": int_(10)}
    assert node.manage("com.microsoft:get-message-sessions", listing)[:2] == not_allowed


@covers("M7")
def test_plain_requests_to_a_session_queue_need_a_session(raw: RawAmqp, session_queue: str) -> None:
    node = raw.attach_node(f"{session_queue}/$management")
    deferred = {"sequence-numbers": Array(LONG, [1]), "receiver-settle-mode": uint(1)}
    assert node.manage("com.microsoft:receive-by-sequence-number", deferred)[:2] == (400, "amqp:not-allowed")
    schedule = {"messages": [{"message-id": "1", "message": data_section(b"x")}]}
    assert node.manage("com.microsoft:schedule-message", schedule)[:2] == (400, "amqp:not-allowed")


@covers("M7")
def test_peeking_needs_no_session_lock(raw: RawAmqp, other: RawAmqp, session_queue: str) -> None:
    send(raw, session_queue, "a", "b", "a")
    accept(raw, session_queue, "a")
    node = other.attach_node(f"{session_queue}/$management")
    peek = {"from-sequence-number": 1, "message-count": int_(10), "session-id": "a"}
    status, _, body = node.manage("com.microsoft:peek-message", peek)
    assert status == 200
    assert isinstance(body, dict)
    assert [decode_message(one["message"]).body for one in body["messages"]] == [b"0", b"2"]
    assert node.manage("com.microsoft:peek-message", {**peek, "session-id": "nobody"})[0] == 204


@covers("M7")
def test_sessions_are_listed_page_by_page_until_there_are_no_more(raw: RawAmqp, bus: Bus, session_queue: str) -> None:
    """In the order of their fragments, where there are several."""
    send(raw, session_queue, *(f"s{number}" for number in range(7)))
    node = raw.attach_node(f"{session_queue}/$management")
    listed: list[object] = []
    for _ in range(10):
        body = {"last-updated-time": EVERY_SESSION, "skip": int_(len(listed)), "top": int_(3)}
        status, condition, answer = node.manage("com.microsoft:get-message-sessions", body)
        if status == 204:
            assert condition == "com.microsoft:session-not-found"
            break
        assert isinstance(answer, dict)
        ids = answer["sessions-ids"]
        assert isinstance(ids, Array)
        listed += ids.items
        assert answer["skip"] == int_(len(listed))
    assert bus.shape.as_sent(listed, str) == [f"s{number}" for number in range(7)]


@covers("M7")
@pytest.mark.parametrize("session", [5, True, b"bytes", ["a"], {"a": 1}, "x" * 129, symbol("a")])
def test_a_filter_that_is_no_session_id_is_an_argument_error(raw: RawAmqp, session_queue: str, session: object) -> None:
    ask(raw, session_queue, session)
    found = raw.expect(codes.ATTACH)
    if session == symbol("a"):
        assert session_of(found) == "a", "a symbol is as good as a string"
        return
    assert (found[5], found[6]) == (None, None)
    assert plain(raw.expect(codes.DETACH).error(2)[0]) == "com.microsoft:argument-error"


@covers("M7")
def test_a_described_session_filter_is_answered_with_its_descriptor(raw: RawAmqp, session_queue: str) -> None:
    attached = accept(raw, session_queue, Described(symbol(SESSION_FILTER), "a"))
    assert session_of(attached) == Described(SESSION_FILTER, "a")


@covers("M7")
@pytest.mark.parametrize("timeout", ["soon", True, int_(-1), -0.5, float("nan"), b"x", [uint(1)]])
def test_a_time_out_that_is_none_is_an_argument_error(raw: RawAmqp, session_queue: str, timeout: object) -> None:
    ask(raw, session_queue, None, timeout=timeout)
    assert refusal(raw) == "com.microsoft:argument-error"


@covers("M7")
def test_settling_what_another_session_received_is_lost(raw: RawAmqp, session_queue: str) -> None:
    send(raw, session_queue, "a", "b")
    accept(raw, session_queue, "a", handle=7, name="a")
    accept(raw, session_queue, "b", handle=8, name="b")
    raw.flow(7, 1)
    first, _ = raw.receive_message()
    node = raw.attach_node(f"{session_queue}/$management")
    token = first.plain(2)
    assert isinstance(token, bytes)
    body = {"disposition-status": "completed", "lock-tokens": Array(0x98, [uuid.UUID(bytes_le=token)])}
    assert node.manage("com.microsoft:update-disposition", {**body, "session-id": "b"})[:2] == (
        410,
        "com.microsoft:message-lock-lost",
    )
    assert node.manage("com.microsoft:update-disposition", body)[:2] == (400, "amqp:not-allowed")
    assert node.manage("com.microsoft:update-disposition", {**body, "session-id": "a"})[0] == 200


@covers("M7")
def test_a_message_lock_in_a_session_is_not_renewed_by_itself(raw: RawAmqp, session_queue: str) -> None:
    send(raw, session_queue, "a")
    accept(raw, session_queue, "a")
    raw.flow(RECEIVER, 1)
    first, _ = raw.receive_message()
    token = first.plain(2)
    assert isinstance(token, bytes)
    node = raw.attach_node(f"{session_queue}/$management")
    body = {"lock-tokens": Array(0x98, [uuid.UUID(bytes_le=token)])}
    assert node.manage("com.microsoft:renew-lock", body)[:2] == (400, "amqp:not-allowed")
    raw.dispose(first.number(1), state_of(codes.ACCEPTED))
    assert raw.expect(codes.DISPOSITION).described(4)[0] == codes.ACCEPTED
