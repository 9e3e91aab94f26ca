"""Which fragment a message belongs to: tables of keys, batches and sequence numbers."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter

import pytest

from tandembus.amqp.encoding.sections import data_section, message_annotations_section, properties_section
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.errors import InvalidOperation
from tandembus.message import Message, parse_message
from tandembus.namespace.partitioning import (
    PartitionSettings,
    fragment_of_key,
    fragment_of_number,
    key_of_batch,
    partition_key_of,
    sequence_number,
    split_by_fragment,
    transaction_key_of,
    via_key_of,
    via_key_of_batch,
)
from tandembus.store.messaging_store import NUMBER_MASK
from tests.covers import covers


def keyed(
    session_id: str | None = None,
    partition_key: str | None = None,
    message_id: object = "an-id",
    via_key: str | None = None,
) -> Message:
    annotations: dict[str, object] = {}
    if partition_key is not None:
        annotations["x-opt-partition-key"] = partition_key
    if via_key is not None:
        annotations["x-opt-via-partition-key"] = via_key
    payload = message_annotations_section(annotations) if annotations else b""
    if message_id is not None or session_id is not None:
        payload += properties_section(message_id, group_id=session_id)
    return parse_message(payload + data_section(b"body"))


KEYS: list[tuple[str | None, str | None, str | None, bool, str | None]] = [
    # SessionId, PartitionKey, MessageId, duplicate detection -> what pins it
    (None, None, None, False, None),
    (None, None, "m", False, None),
    (None, None, "m", True, "m"),
    (None, "p", None, False, "p"),
    (None, "p", None, True, "p"),
    (None, "p", "m", False, "p"),
    (None, "p", "m", True, "p"),
    ("s", None, None, False, "s"),
    ("s", None, None, True, "s"),
    ("s", None, "m", False, "s"),
    ("s", None, "m", True, "s"),
    ("s", "s", None, False, "s"),
    ("s", "s", None, True, "s"),
    ("s", "s", "m", False, "s"),
    ("s", "s", "m", True, "s"),
    ("", None, "m", True, "m"),
    ("", "k", None, False, "k"),
    ("", None, None, False, None),
    (None, "", "m", True, ""),
]


@covers("P10")
@pytest.mark.parametrize(("session_id", "partition_key", "message_id", "detects", "expected"), KEYS)
def test_the_session_comes_before_the_partition_key_and_that_before_the_message_id(
    session_id: str | None, partition_key: str | None, message_id: str | None, detects: bool, expected: str | None
) -> None:
    message = keyed(session_id, partition_key, message_id)
    assert partition_key_of(message, PartitionSettings(detects)) == expected


@covers("P10")
@pytest.mark.parametrize("partition_key", [None, "k"])
def test_an_empty_session_id_is_a_key_where_sessions_are_required(partition_key: str | None) -> None:
    message = keyed("", partition_key, "m")
    assert partition_key_of(message, PartitionSettings(True, requires_session=True)) == ""
    assert partition_key_of(message, PartitionSettings(True, has_sessions=True)) == ""


@covers("P10", "P12")
def test_a_message_without_an_id_is_pinned_by_the_one_it_is_given_where_duplicates_are_looked_for() -> None:
    message = keyed(message_id=None)
    assert partition_key_of(message, PartitionSettings()) is None
    key = partition_key_of(message, PartitionSettings(True))
    assert key
    assert partition_key_of(message, PartitionSettings(True)) == key


@covers("P10")
@pytest.mark.parametrize("message_id", ["text", "ü" * 128, b"\x00\xff", uuid.UUID(int=7), 7])
def test_an_id_of_any_type_is_a_key(message_id: object) -> None:
    first, second = keyed(message_id=message_id), keyed(message_id=message_id)
    assert partition_key_of(first, PartitionSettings(True)) == partition_key_of(second, PartitionSettings(True)) != ""


@covers("P10")
@pytest.mark.parametrize(("key", "index"), [("", 15), ("a", 3), ("b", 1), ("order-1", 7), ("ü", 10), ("x" * 128, 10)])
def test_a_key_lands_where_it_always_did(key: str, index: int) -> None:
    """Stored messages depend on it: these figures must never change."""
    assert fragment_of_key(key) == index


@covers("P2", "P10")
def test_keys_spread_over_all_fragments() -> None:
    for name in ("key-{}", "{}", "customer/{}/orders"):
        counts = Counter(int(fragment_of_key(name.format(number))) for number in range(16_000))
        assert len(counts) == FRAGMENT_COUNT
        assert min(counts.values()) > 850
        assert max(counts.values()) < 1150


BATCHES: list[tuple[list[tuple[str | None, str | None]], str | type | None]] = [
    # (SessionId, PartitionKey) of each message -> the key of the batch, or refused
    ([(None, None)], None),
    ([(None, None), (None, None)], None),
    ([("a", None), ("a", None)], "a"),
    ([("a", "a"), ("a", None)], "a"),
    ([(None, "a"), (None, "a")], "a"),
    ([("a", None), (None, "a")], "a"),
    ([("a", None), ("b", None)], InvalidOperation),
    ([(None, "a"), (None, "b")], InvalidOperation),
    ([("a", None), (None, "b")], InvalidOperation),
    ([("a", None), (None, None)], InvalidOperation),
    ([(None, None), (None, "a")], InvalidOperation),
    ([("a", None), ("a", None), ("b", None)], InvalidOperation),
]


@covers("P10", "P16", "P27")
def test_keys_of_a_batch_a_transaction_and_a_transfer_may_differ_in_case() -> None:
    exactly, in_any_case = PartitionSettings(), PartitionSettings(ignores_key_case=True)
    messages = [keyed("Order", None, "1", "Via"), keyed(None, "oRDER", "2", "vIA")]
    assert key_of_batch(messages, in_any_case) == transaction_key_of(messages, in_any_case) == "order"
    assert via_key_of_batch(messages, in_any_case) == "via"
    for key_of in (key_of_batch, transaction_key_of, via_key_of_batch):
        with pytest.raises(InvalidOperation):
            key_of(messages, exactly)
    assert partition_key_of(keyed(message_id="Id"), PartitionSettings(True, ignores_key_case=True)) == "Id"


@covers("P27")
@pytest.mark.parametrize(("keys", "expected"), BATCHES)
def test_a_batch_has_one_key_or_none(keys: list[tuple[str | None, str | None]], expected: str | type | None) -> None:
    messages = [keyed(*one, message_id=f"m{position}") for position, one in enumerate(keys)]
    if isinstance(expected, type):
        with pytest.raises(InvalidOperation, match="batch"):
            key_of_batch(messages, PartitionSettings())
    else:
        assert key_of_batch(messages, PartitionSettings()) == expected


@covers("P27")
def test_a_batch_is_split_by_message_id_in_the_order_of_its_parts() -> None:
    messages = [keyed(message_id=f"m{number}") for number in range(100)]
    parts = split_by_fragment(messages)
    assert sum(len(part) for part in parts.values()) == 100
    assert len(parts) == FRAGMENT_COUNT
    for index, part in parts.items():
        assert all(fragment_of_key(str(partition_key_of(one, PartitionSettings(True)))) == index for one in part)
        places = [messages.index(one) for one in part]
        assert places == sorted(places)


@covers("P16")
@pytest.mark.parametrize(
    ("keys", "detects", "requires_session", "expected"),
    [
        ([("a", None, "1")], False, False, "a"),
        ([(None, "a", "1"), ("a", None, "2")], False, False, "a"),
        ([(None, "a", "1")], False, True, InvalidOperation),
        ([("a", None, "1"), ("b", None, "2")], False, True, InvalidOperation),
        ([(None, "a", "1"), (None, "b", "2")], False, False, InvalidOperation),
        ([(None, None, "1")], False, False, InvalidOperation),
        ([(None, None, "1")], True, False, "1"),
        ([(None, None, "1"), (None, None, "2")], True, False, InvalidOperation),
        ([(None, None, "1"), (None, None, "1")], True, False, "1"),
        ([(None, None, "1")], True, True, InvalidOperation),
    ],
)
def test_a_transaction_needs_one_key_for_all_its_messages(
    keys: list[tuple[str | None, str | None, str]], detects: bool, requires_session: bool, expected: str | type
) -> None:
    messages = [keyed(*one) for one in keys]
    if isinstance(expected, type):
        reason = "sent to it needs a SessionId" if requires_session and keys[0][0] is None else "transaction"
        with pytest.raises(InvalidOperation, match=reason):
            transaction_key_of(messages, PartitionSettings(detects, requires_session))
    else:
        assert transaction_key_of(messages, PartitionSettings(detects, requires_session)) == expected


def test_what_passes_through_an_entity_may_have_a_key_for_it() -> None:
    assert via_key_of(keyed(partition_key="p", via_key="v")) == "v"
    assert via_key_of(keyed(partition_key="p")) is None
    assert via_key_of(keyed()) is None


@covers("P26")
@pytest.mark.parametrize(("index", "number"), list(itertools.product((0, 1, 7, 15), (0, 1, 12345, (1 << 48) - 1))))
def test_a_sequence_number_names_its_fragment_in_the_top_16_bits(index: int, number: int) -> None:
    whole = int(sequence_number(index, number))
    assert whole == index * 2**48 + number
    assert (fragment_of_number(whole), whole & NUMBER_MASK) == (index, number)


@covers("P26")
@pytest.mark.parametrize("number", [16 << 48, (1 << 63) - 1, -1, -(1 << 63), (0xFFFF << 48) | 5])
def test_a_number_that_no_fragment_gave_out_names_none(number: int) -> None:
    assert not 0 <= fragment_of_number(number) < FRAGMENT_COUNT
