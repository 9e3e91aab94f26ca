"""The BrokerProperties header: what senders may write there, and what is refused."""

from __future__ import annotations

import json

import pytest

from tandembus.errors import BusError, InvalidArgument, MalformedData
from tandembus.front_end.http.broker_properties import (
    KEYS,
    BrokerProperties,
    read_broker_properties,
    write_broker_properties,
)
from tandembus.message import MAX_TTL_MS
from tests.covers import covers


@covers("B1")
def test_everything_a_sender_may_say_is_read() -> None:
    header = {
        "MessageId": "m1",
        "CorrelationId": "c1",
        "SessionId": "s1",
        "Label": "l1",
        "To": "t1",
        "ReplyTo": "r1",
        "ReplyToSessionId": "rs1",
        "ContentType": "text/plain",
        "PartitionKey": "s1",
        "ViaPartitionKey": "v1",
        "TimeToLive": 1.5,
        "ScheduledEnqueueTimeUtc": "Sun, 06 Nov 2044 08:49:37 GMT",
        "ForcePersistence": True,
    }
    assert read_broker_properties(json.dumps(header)) == BrokerProperties(
        message_id="m1",
        correlation_id="c1",
        session_id="s1",
        label="l1",
        to="t1",
        reply_to="r1",
        reply_to_session_id="rs1",
        content_type="text/plain",
        partition_key="s1",
        via_partition_key="v1",
        time_to_live_ms=1500,
        scheduled_at_ms=2_362_034_977_000,
    )


def test_what_only_the_broker_says_is_skipped_as_clients_send_back_what_they_got() -> None:
    header = {"SequenceNumber": 7, "LockToken": "x", "DeliveryCount": 3, "State": "Active", "To": None}
    assert read_broker_properties(json.dumps(header)) == BrokerProperties()


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(1, 1000), (0.0001, 1), (922337203685.47754, MAX_TTL_MS), (1e300, MAX_TTL_MS), (10**400, MAX_TTL_MS)],
)
def test_a_time_to_live_is_at_least_a_millisecond_and_at_most_the_longest(seconds: float, milliseconds: int) -> None:
    text = json.dumps({"TimeToLive": seconds})
    assert read_broker_properties(text).time_to_live_ms == milliseconds


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        "{'MessageId': 'm'}",
        '{"MessageId": 1}',
        '{"MessageId": true}',
        '{"MessageId": ["m"]}',
        '{"MessageId": "a", "MessageId": "b"}',
        '{"messageid": "a"}',
        '{"Unheard": 1}',
        '{"Label": {"a": 1}}',
        '{"To": "\\ud800"}',
        '{"TimeToLive": NaN}',
        '{"TimeToLive": Infinity}',
        '{"TimeToLive": -Infinity}',
        '{"TimeToLive": 1e999}',
        '{"TimeToLive": 0}',
        '{"TimeToLive": -1}',
        '{"TimeToLive": "10"}',
        '{"TimeToLive": true}',
        '{"TimeToLive": ' + "9" * 5000 + "}",
        '{"ScheduledEnqueueTimeUtc": 12}',
        '{"ScheduledEnqueueTimeUtc": "tomorrow"}',
        '{"ScheduledEnqueueTimeUtc": "Sun, 31 Feb 2044 08:49:37 GMT"}',
        '{"ForcePersistence": "yes"}',
        '{"MessageId": ' + "[" * 100_000 + "}",
        '{"Unheard": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
    ],
)
def test_what_is_wrong_is_refused_in_words(header: str) -> None:
    with pytest.raises((InvalidArgument, MalformedData)) as refusal:
        read_broker_properties(header)
    assert isinstance(refusal.value, BusError)
    assert len(str(refusal.value)) < 400


def test_what_is_written_is_ascii_without_line_ends_and_without_what_is_not_there() -> None:
    text = write_broker_properties({"MessageId": "é\r\nX-Evil: 1", "SessionId": None, "SequenceNumber": 5})
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {"MessageId": "é\r\nX-Evil: 1", "SequenceNumber": 5}


def test_every_key_of_the_contract_is_known() -> None:
    contract = (
        "MessageId SequenceNumber DeliveryCount LockToken LockedUntilUtc EnqueuedTimeUtc EnqueuedSequenceNumber "
        "TimeToLive ScheduledEnqueueTimeUtc SessionId PartitionKey ViaPartitionKey To ReplyTo ReplyToSessionId Label "
        "CorrelationId ContentType ForcePersistence State DeadLetterSource"
    )
    assert set(KEYS) == set(contract.split())
