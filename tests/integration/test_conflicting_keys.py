"""A message whose SessionId and PartitionKey differ is refused on every way in, and nothing of it is stored."""

from __future__ import annotations

import json

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tests.covers import covers
from tests.integration.bus import Bus, Counts
from tests.integration.raw_amqp import (
    BATCH_FORMAT,
    MESSAGE,
    SENDER,
    RawAmqp,
    assert_has_three_fields,
    rejection,
    source_of,
    target_of,
)
from tests.integration.raw_transactions import Transacting
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import PARTITIONED, PLAIN, on_shapes
from tests.integration.test_http_messages import Http

pytestmark = on_shapes(PLAIN, PARTITIONED)

NOT_ALLOWED = "amqp:not-allowed"
BATCH_TYPE = "application/vnd.microsoft.servicebus.json"


def keyed(session_id: str | None, partition_key: str | None) -> bytes:
    annotations = {"x-opt-partition-key": partition_key} if partition_key is not None else {}
    return message_annotations_section(dict(annotations)) + properties_section(group_id=session_id) + MESSAGE


CONFLICTING = keyed("a session", "another key")
AGREEING = keyed("a session", "a session")


@pytest.fixture(params=[False, True], ids=["plain", "with sessions"])
def queue(request: pytest.FixtureRequest, bus: Bus) -> str:
    return bus.make_queue(requires_session=request.param)


@covers("P11")
def test_on_a_link(raw: RawAmqp, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    assert_has_three_fields(rejection(raw.send_message(SENDER, 0, CONFLICTING)), NOT_ALLOWED)
    assert raw.send_message(SENDER, 1, AGREEING).described(4)[0] == codes.ACCEPTED
    assert bus.counts(queue) == Counts(1)


@covers("P11", "P27")
def test_in_a_batch(raw: RawAmqp, bus: Bus, queue: str) -> None:
    raw.attach_sender(SENDER, queue)
    batch = data_section(AGREEING) + data_section(CONFLICTING)
    assert_has_three_fields(rejection(raw.send_message(SENDER, 0, batch, BATCH_FORMAT)), NOT_ALLOWED)
    assert bus.counts(queue) == Counts(0)


@covers("P11")
def test_scheduled(raw: RawAmqp, bus: Bus, queue: str) -> None:
    node = raw.attach_node(f"{queue}/$management")
    messages = [{"message": AGREEING}, {"message": CONFLICTING}]
    status, condition, _ = node.manage("com.microsoft:schedule-message", {"messages": messages})
    assert (status, condition) == (400, NOT_ALLOWED)
    assert bus.counts(queue) == Counts(0)


@covers("P11", "M11")
def test_in_a_transaction(raw: RawAmqp, bus: Bus, queue: str) -> None:
    transacting = Transacting(raw)
    raw.attach_sender(SENDER, queue)
    txn_id = transacting.declare()
    transacting.transfer(SENDER, AGREEING, txn_id)
    assert_has_three_fields(rejection(transacting.transfer(SENDER, CONFLICTING, txn_id)), NOT_ALLOWED)
    assert_has_three_fields(rejection(transacting.discharge(txn_id)), "amqp:transaction:rollback")
    assert bus.counts(queue) == Counts(0)


@covers("P11")
def test_via_another_entity(raw: RawAmqp, bus: Bus, queue: str) -> None:
    via = bus.make_queue()
    properties: dict[str, object] = {"com.microsoft:transfer-destination-address": queue}
    raw.attach(SENDER, False, source_of("client"), target_of(via), properties=properties)
    raw.expect(codes.ATTACH)
    assert_has_three_fields(rejection(raw.send_message(SENDER, 0, CONFLICTING)), NOT_ALLOWED)
    assert (bus.counts(queue), bus.counts(via)) == (Counts(0), Counts(0))


@covers("P11", "B1")
@pytest.mark.parametrize("is_batch", [False, True], ids=["one", "batch"])
def test_over_http(running_namespace: RunningNamespace, bus: Bus, queue: str, is_batch: bool) -> None:
    http = Http(running_namespace, False)
    keys = {"SessionId": "a session", "PartitionKey": "another key"}
    if is_batch:
        body = json.dumps(
            [{"Body": "one", "BrokerProperties": {"SessionId": "s"}}, {"Body": "b", "BrokerProperties": keys}]
        )
        answer = http.ask("POST", f"{queue}/messages", body.encode(), Content_Type=BATCH_TYPE)
    else:
        answer = http.ask("POST", f"{queue}/messages", b"one", BrokerProperties=json.dumps(keys))
    assert answer.status == 400
    assert b"PartitionKey" in answer.body
    assert bus.counts(queue) == Counts(0)
