"""The rules of the wire that break clients, mostly silently, each looked at in bytes (wire contract, section 0)."""

from __future__ import annotations

import re
import uuid

import pytest
from azure.servicebus.management import EntityStatus

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import Array, Described, Typed, symbol, ubyte, uint, ulong
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import (
    BATCH_FORMAT,
    FIRST,
    MESSAGE,
    RECEIVER,
    SECOND,
    SENDER,
    SETTLED,
    UNSETTLED,
    RawAmqp,
    assert_has_three_fields,
    plain,
    rejection,
    source_of,
    state_of,
    target_of,
    texts,
    transfer_frames,
)

DEAD_LETTER_CONDITION = symbol("com.microsoft:dead-letter")

UNSENDABLE = {
    "differing keys": (
        message_annotations_section({"x-opt-partition-key": "a"}) + properties_section(group_id="b") + MESSAGE,
        0,
        "amqp:not-allowed",
    ),
    "too large": (data_section(b"x" * 270_000), 0, "amqp:link:message-size-exceeded"),
    "garbage": (b"\x00\x53\x75\xa0\xff", 0, "amqp:decode-error"),
    "garbage in a batch": (data_section(b"garbage"), BATCH_FORMAT, "amqp:decode-error"),
    "a long key": (properties_section(message_id="x" * 129) + MESSAGE, 0, "com.microsoft:argument-error"),
    "many properties": (
        application_properties_section({str(number): "x" * 700 for number in range(100)}),
        0,
        "com.microsoft:argument-error",
    ),
}


@covers("P11", "M12", "M13")
@pytest.mark.parametrize("kind", UNSENDABLE)
def test_rules_1_and_2_a_send_is_accepted_or_rejected_with_a_full_error(
    raw: RawAmqp, bus: Bus, queue: str, kind: str
) -> None:
    payload, message_format, condition = UNSENDABLE[kind]
    raw.attach_sender(SENDER, queue)
    raw.transfer(SENDER, 0, MESSAGE)
    raw.transfer(SENDER, 1, payload, message_format=message_format)
    raw.transfer(SENDER, 2, MESSAGE)
    answers = {answer.number(1): answer for answer in (raw.expect(codes.DISPOSITION) for _ in range(3))}
    assert {(answer[0], answer[3]) for answer in answers.values()} == {(True, True)}
    assert {at: answer.described(4)[0] for at, answer in answers.items()} == {
        0: codes.ACCEPTED,
        1: codes.REJECTED,
        2: codes.ACCEPTED,
    }
    assert_has_three_fields(rejection(answers[1]), condition)
    if kind == "too large":
        assert f"delivery size: {len(payload)} bytes" in str(rejection(answers[1]))
    assert bus.counts(queue) == Counts(2)


def test_rule_1_a_closed_connection_says_why_in_three_fields(raw: RawAmqp) -> None:
    raw.perform(codes.OPEN, ["again"])
    (close,) = raw.expect_end()
    assert close.code == codes.CLOSE
    assert_has_three_fields(close.error(0), "amqp:illegal-state")


def test_rule_1_a_rejected_request_says_why_in_three_fields(raw: RawAmqp, queue: str) -> None:
    node = raw.attach_node(f"{queue}/$management")
    payload = data_section(b"x" * 60_000) * 75
    answer = node.post(payload)
    assert_has_three_fields(rejection(answer), "amqp:link:message-size-exceeded")
    assert f"The message has {len(payload)} bytes" in str(rejection(answer))


@covers("M15")
@pytest.mark.parametrize("is_receiver", [False, True], ids=["sender", "receiver"])
@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("nobody-made-this", "amqp:not-found"),
        ("", "com.microsoft:argument-error"),
        ("a b", "com.microsoft:argument-error"),
        ("{disabled}", "com.microsoft:entity-disabled"),
    ],
)
def test_rule_3_a_refused_link_is_attached_first_and_detached_then(
    raw: RawAmqp, bus: Bus, queue: str, is_receiver: bool, address: str, condition: str
) -> None:
    disabled = ""
    if "disabled" in address:
        disabled = bus.make_queue()
        description = bus.admin.get_queue(disabled)
        description.status = EntityStatus.DISABLED
        bus.admin.update_queue(description)
    address = address.format(queue=queue, disabled=disabled)
    raw.attach(SENDER, is_receiver, source_of(address), target_of(address), name="refused")
    attach = raw.expect(codes.ATTACH)
    assert (attach[0], attach[2]) == ("refused", not is_receiver)
    assert (attach[5], attach[6]) == (None, None)
    detach = raw.expect(codes.DETACH)
    assert (detach.plain(0), detach[1]) == (attach.plain(1), True)
    assert_has_three_fields(detach.error(2), condition)
    raw.perform(codes.DETACH, [uint(SENDER), True])
    assert_is_well(raw, queue)


def assert_is_well(raw: RawAmqp, queue: str) -> None:
    """The connection still takes a link and a message."""
    raw.attach_sender(90, queue)
    assert raw.send_message(90, 1000, MESSAGE).described(4)[0] == codes.ACCEPTED


@covers("M15")
def test_rule_3_a_link_without_a_claim_is_refused_the_same_way(bus: Bus, queue: str) -> None:
    with RawAmqp(bus.running.port) as raw:
        raw.start()
        raw.begin()
        for is_receiver in (False, True):
            raw.attach(SENDER, is_receiver, source_of(queue), target_of(queue))
            assert raw.expect(codes.ATTACH)[5] is None
            assert_has_three_fields(raw.expect(codes.DETACH).error(2), "amqp:unauthorized-access")
            raw.perform(codes.DETACH, [uint(SENDER), True])


@pytest.mark.parametrize("form", ["{0}", "/{0}", "amqps://host:5673/{0}", "amqp://host/{0}", "sb://host/{0}"])
def test_rule_4_an_accepted_link_echoes_source_and_target(raw: RawAmqp, queue: str, form: str) -> None:
    address = form.format(queue.upper())
    sent_source = source_of(address, uint(0), symbol("session-end"), uint(0), False, None, None, {symbol("f"): "x"})
    raw.attach(SENDER, False, source_of("mine"), target_of(address))
    raw.attach(RECEIVER, True, sent_source, target_of("mine"), (SETTLED, FIRST))
    answers = {answer[2]: answer for answer in (raw.expect(codes.ATTACH), raw.expect(codes.ATTACH))}
    to_sender, to_receiver = answers[True], answers[False]
    assert to_sender.described(5) == (codes.SOURCE, ["mine"])
    assert to_sender.described(6) == (codes.TARGET, [address])
    assert to_receiver.described(5) == (codes.SOURCE, sent_source.value)
    assert to_receiver.described(6) == (codes.TARGET, ["mine"])
    assert to_receiver[9] == uint(0)
    assert (to_receiver[3], to_receiver[4]) == (ubyte(SETTLED), ubyte(FIRST))
    assert (to_sender[3], to_sender[4]) == (ubyte(UNSETTLED), ubyte(SECOND))
    assert to_sender[10] == ulong(262_144)


def test_rules_5_and_6_descriptors_are_short_and_flows_are_complete(raw: RawAmqp, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    flow = raw.expect(codes.FLOW)
    assert all(isinstance(flow[index], Typed) for index in range(4))
    assert (flow.plain(5), flow.number(6) > 0) == (0, True)
    raw.send_message(SENDER, 0, properties_section(message_id="x") + MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    transfer, _ = raw.receive_message()
    raw.dispose(transfer.number(1), state_of(codes.ACCEPTED))
    raw.expect(codes.DISPOSITION)
    raw.perform(codes.CLOSE, [])
    raw.expect_end()
    for found in raw.frames:
        assert found.raw[8:11] == bytes((0x00, 0x53, found.code))
    assert transfer.payload.startswith(bytes((0x00, 0x53, codes.HEADER)))
    for code in (codes.MESSAGE_ANNOTATIONS, codes.PROPERTIES, codes.DATA):
        assert bytes((0x00, 0x53, code)) in transfer.payload


@covers("M12")
def test_rule_7_ten_thousand_transfers_may_come_before_any_credit(bus: Bus, queue: str) -> None:
    with RawAmqp(bus.running.port) as raw:
        raw.log_in()
        raw.attach(SENDER, False, source_of("mine"), target_of(queue))
        raw.flow(SENDER, 10_000)  # as a sender, which means nothing
        raw.send(b"".join(transfer_frames(SENDER, number, MESSAGE) for number in range(10_000)))
        raw.expect(codes.ATTACH)
        accepted = 0
        while accepted < 10_000:
            answer = raw.expect(codes.DISPOSITION)
            assert answer.described(4)[0] == codes.ACCEPTED
            assert answer.number(1) == accepted
            accepted = int(str(answer.plain(2) or answer.plain(1))) + 1
    assert bus.counts(queue) == Counts(10_000)


OUTCOMES = {
    "complete": state_of(codes.ACCEPTED),
    "abandon": state_of(codes.MODIFIED, True),
    "abandon without a word": state_of(codes.MODIFIED),
    "defer": state_of(codes.MODIFIED, True, True),
    "release": state_of(codes.RELEASED),
    "dead-letter": state_of(
        codes.REJECTED,
        Described(ulong(codes.ERROR), [DEAD_LETTER_CONDITION, "of it", {symbol("DeadLetterReason"): "r"}]),
    ),
    "reject": state_of(codes.REJECTED),
}


@covers("M3")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_rules_8_and_9_a_settlement_is_confirmed_with_its_own_kind(raw: RawAmqp, queue: str, outcome: str) -> None:
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    transfer, _ = raw.receive_message()
    assert transfer[4] is False
    asked = OUTCOMES[outcome]
    raw.dispose(transfer.number(1), asked)
    echo = raw.expect(codes.DISPOSITION)
    assert (echo[0], echo.plain(1), echo[3]) == (False, transfer.plain(1), True)
    code, fields = echo.described(4)
    assert code == plain(asked.descriptor)
    if code == codes.REJECTED:
        assert fields in ([], [None])


@covers("M2")
def test_rule_9_a_lost_lock_is_rejected_with_an_error(small_bus: Bus) -> None:
    queue = small_bus.make_queue(lock_duration="PT1S")
    with RawAmqp(small_bus.running.port) as raw:
        raw.log_in()
        raw.attach_sender(SENDER, queue)
        raw.send_message(SENDER, 0, MESSAGE)
        raw.attach_receiver(RECEIVER, queue)
        raw.flow(RECEIVER, 2)
        lapsed, _ = raw.receive_message()
        again, message = raw.receive_message()
        assert message.header is not None
        assert message.header[4] == uint(1)
        raw.dispose(lapsed.number(1), state_of(codes.ACCEPTED))
        echo = raw.expect(codes.DISPOSITION)
        assert echo[3] is True
        assert_has_three_fields(rejection(echo), "com.microsoft:message-lock-lost")
        raw.dispose(again.number(1), state_of(codes.ACCEPTED))
        assert raw.expect(codes.DISPOSITION).described(4)[0] == codes.ACCEPTED


def test_rule_8_what_the_client_has_settled_is_not_confirmed(raw: RawAmqp, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, MESSAGE)
    raw.send_message(SENDER, 1, MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 2)
    quiet, _ = raw.receive_message()
    loud, _ = raw.receive_message()
    raw.dispose(quiet.number(1), state_of(codes.ACCEPTED), settled=True)
    raw.dispose(loud.number(1), state_of(codes.ACCEPTED))
    assert raw.expect(codes.DISPOSITION).plain(1) == loud.plain(1)
    assert bus.counts(queue) == Counts(0)


def test_rule_8_a_range_is_settled_by_one_disposition(raw: RawAmqp, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    for number in range(5):
        raw.send_message(SENDER, number, MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 5)
    numbers = [raw.receive_message()[0].number(1) for _ in range(5)]
    raw.dispose(numbers[0], state_of(codes.ACCEPTED), last=numbers[3])
    echo = raw.expect(codes.DISPOSITION)
    assert (echo.plain(1), echo.plain(2)) == (numbers[0], numbers[3])
    assert bus.counts(queue) == Counts(1)


@covers("M2")
def test_rule_10_the_delivery_tag_is_the_lock_token_in_the_order_of_net(raw: RawAmqp, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    raw.send_message(SENDER, 0, MESSAGE)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 1)
    transfer, received = raw.receive_message()
    tag = transfer[2]
    assert isinstance(tag, bytes)
    assert len(tag) == 16
    assert texts(received.delivery_annotations) == {"x-opt-lock-token": uuid.UUID(bytes_le=tag)}
    node = raw.attach_node(f"{queue}/$management")
    for token, status in ((uuid.UUID(bytes=tag), 410), (uuid.UUID(bytes_le=tag), 200)):
        body = {"lock-tokens": Array(0x98, [token])}
        assert node.manage("com.microsoft:renew-lock", body)[0] == status


@pytest.mark.parametrize(
    "message_id", [uuid.UUID(int=7), "text", ulong(7), b"binary"], ids=["uuid", "string", "ulong", "binary"]
)
def test_rule_11_a_reply_has_the_id_of_its_request_in_the_same_type(
    raw: RawAmqp, queue: str, message_id: object
) -> None:
    management = raw.attach_node(f"{queue}/$management")
    reply = management.ask({"operation": "com.microsoft:peek-message"}, {}, message_id)
    assert reply.property_at(5) == message_id
    tokens = raw.attach_node("$cbs", handle=60)
    assert tokens.ask({"operation": "put-token"}, "", message_id).property_at(5) == message_id


def test_rule_11_a_reply_goes_to_the_session_that_asked(raw: RawAmqp, queue: str) -> None:
    raw.begin(channel=7)
    address = f"{queue}/$management"
    nodes = [raw.attach_node(address, channel=channel) for channel in (7, 0)]
    for node in (*nodes, *reversed(nodes)):
        node.manage("com.microsoft:peek-message", {})  # checks the channel of the reply


@covers("M15")
def test_rule_12_each_node_names_its_status_as_clients_know_it(raw: RawAmqp, queue: str) -> None:
    reply = raw.put_token(f"sb://localhost/{queue}")
    found = texts(reply.application_properties)
    assert found.keys() == {"status-code", "status-description"}
    assert (found["status-code"], reply.body) == (Typed(0x71, 202), None)
    node = raw.attach_node(f"{queue}/$management", handle=60)
    refused = texts(node.ask({"operation": "com.microsoft:peek-message"}, {}).application_properties)
    assert refused.keys() == {"statusCode", "statusDescription", "errorCondition"}
    assert (refused["statusCode"], type(refused["statusDescription"])) == (Typed(0x71, 400), str)
    assert refused["errorCondition"] == symbol("com.microsoft:argument-error")


@covers("M15")
def test_rule_12_a_refused_token_has_a_status_and_no_condition(raw: RawAmqp, queue: str) -> None:
    node = raw.attach_node("$cbs")
    unknown = raw.put_token("sb://localhost/nobody-made-this", node=node)
    wrong = raw.put_token(f"sb://localhost/{queue}", "SharedAccessSignature sr=x&sig=y&se=1&skn=z", node)
    for reply, status in ((unknown, 404), (wrong, 401)):
        found = texts(reply.application_properties)
        assert found.keys() == {"status-code", "status-description"}
        assert plain(found["status-code"]) == status
    description = texts(unknown.application_properties)["status-description"]
    assert re.match("The messaging entity 'sb://.*nobody-made-this' could not be found", str(description))


def test_rule_13_delivery_ids_are_consecutive_over_all_links_of_a_session(raw: RawAmqp, bus: Bus) -> None:
    queues = [bus.make_queue(), bus.make_queue()]
    for at, queue in enumerate(queues):
        raw.attach_sender(10 + at, queue)
        raw.attach_receiver(20 + at, queue)
    node = raw.attach_node(f"{queues[0]}/$management")
    for number in range(6):
        raw.send_message(10 + number % 2, 100 + number, MESSAGE)
    start = len(raw.frames)
    raw.flow(20, 2)
    raw.flow(21, 2)
    for _ in range(4):
        raw.receive_message()
    node.manage("com.microsoft:peek-message", {"message-count": 1, "from-sequence-number": 1})
    raw.flow(20, 1, delivery_count=2)
    raw.receive_message()
    ids = [found.number(1) for found in raw.frames[start:] if found.code == codes.TRANSFER]
    assert ids == list(range(ids[0], ids[0] + 6))


@covers("P12")
def test_rule_14_a_message_without_an_id_gets_one(raw: RawAmqp, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    for number, payload in enumerate((MESSAGE, properties_section(subject="s") + MESSAGE)):
        raw.send_message(SENDER, number, payload)
    raw.send_message(SENDER, 2, data_section(MESSAGE) + data_section(MESSAGE), BATCH_FORMAT)
    raw.attach_receiver(RECEIVER, queue)
    raw.flow(RECEIVER, 4)
    ids = [raw.receive_message()[1].property_at(0) for _ in range(4)]
    assert len(set(map(str, ids))) == 4
    assert all(isinstance(one, str) and re.fullmatch("[0-9a-f]{32}", one) for one in ids)


def test_rule_15_an_answer_is_not_answered(raw: RawAmqp, bus: Bus) -> None:
    queue = bus.make_queue()
    raw.attach_receiver(RECEIVER, queue)
    bus.admin.delete_queue(queue)
    detach = raw.expect(codes.DETACH)
    assert_has_three_fields(detach.error(2), "amqp:not-found")
    raw.perform(codes.DETACH, [uint(RECEIVER), True])
    raw.perform(codes.END, [])
    assert raw.expect(codes.END)
    raw.perform(codes.CLOSE, [])
    assert [found.code for found in raw.expect_end()] == [codes.CLOSE]
