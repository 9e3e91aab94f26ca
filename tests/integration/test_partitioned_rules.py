"""Rules of a partitioned topic's subscription over AMQP: every fragment goes by them from the answer on."""

from __future__ import annotations

from collections import Counter

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import AMQP_FRAME, frame
from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    properties_section,
)
from tandembus.amqp.encoding.values import int_, uint
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import RECEIVER, SENDER, Node, RawAmqp, plain, state_of, texts
from tests.integration.raw_transactions import Transacting
from tests.integration.shapes import PARTITIONED, PARTITIONED_ON_BROKERS, on_shapes
from tests.integration.test_rule_requests import ADD, ENUMERATE, REMOVE, rule

pytestmark = on_shapes(PARTITIONED, PARTITIONED_ON_BROKERS)

FRAGMENTS = 16
OK: tuple[int, None, dict[object, object]] = (200, None, {})
RED = rule("red", {"sql-filter": {"expression": "color = 'red'"}})


@pytest.fixture
def topic(bus: Bus) -> str:
    return bus.make_topic("sub")


def node_of(raw: RawAmqp, topic: str) -> Node:
    return raw.attach_node(f"{topic}/Subscriptions/sub/$management")


def send(raw: RawAmqp, color: str, count: int, first_id: int = 0) -> None:
    payload = application_properties_section({"color": color}) + data_section(color.encode())
    for number in range(count):
        assert raw.send_message(SENDER, first_id + number, payload).described(4)[0] == codes.ACCEPTED


@covers("P23", "P24")
def test_a_rule_that_was_added_or_removed_holds_in_every_fragment(raw: RawAmqp, bus: Bus, topic: str) -> None:
    node = node_of(raw, topic)
    raw.attach_sender(SENDER, topic)
    assert node.manage(ADD, RED) == OK
    assert node.manage(REMOVE, {"rule-name": "$Default"}) == OK
    with RawAmqp(bus.running.port) as other:
        other.log_in()
        other.attach_sender(SENDER, topic)
        send(other, "red", FRAGMENTS)
        send(other, "blue", FRAGMENTS, FRAGMENTS)
        assert bus.counts_of_subscription(topic, "sub") == Counts(FRAGMENTS)
        assert node.manage(REMOVE, {"rule-name": "red"}) == OK
        send(other, "red", FRAGMENTS, 2 * FRAGMENTS)
        other.attach_receiver(RECEIVER, f"{topic}/Subscriptions/sub")
        other.flow(RECEIVER, FRAGMENTS)
        bodies = [other.receive_message()[1].body for _ in range(FRAGMENTS)]
        assert Counter(map(str, bodies)) == {str(b"red"): FRAGMENTS}
    assert bus.counts_of_subscription(topic, "sub") == Counts(FRAGMENTS)
    status, _, _ = node.manage(ENUMERATE, {"top": int_(10), "skip": int_(0)})
    assert status == 204


@covers("P23")
@pytest.mark.parametrize(("operation", "body"), [(ADD, RED), (REMOVE, {"rule-name": "$Default"})])
def test_rules_are_not_changed_in_a_transaction(raw: RawAmqp, topic: str, operation: str, body: object) -> None:
    node = node_of(raw, topic)
    txn_id = Transacting(raw).declare()
    payload = properties_section(message_id="request", reply_to="client")
    payload += application_properties_section({"operation": operation}) + amqp_value_section(body)
    fields: list[object] = [uint(50), uint(1), b"tag", uint(0), False, False, None]
    fields.append(state_of(codes.TRANSACTIONAL_STATE, txn_id))
    raw.send(frame(AMQP_FRAME, 0, codes.TRANSFER, fields, payload))
    raw.expect(codes.DISPOSITION)
    _, reply = raw.receive_message()
    found = texts(reply.application_properties)
    assert (plain(found["statusCode"]), plain(found["errorCondition"])) == (400, "amqp:not-allowed")
    status, _, listed = node.manage(ENUMERATE, {"top": int_(10), "skip": int_(0)})
    assert status == 200
    assert isinstance(listed, dict)
    assert len(listed["rules"]) == 1
