"""The body of a management request: what is read, and how clearly the rest is refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from tandembus.amqp.encoding import Array, int_, symbol, uint
from tandembus.errors import InvalidArgument
from tandembus.front_end.amqp.requests import Body, plain

TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize("value", [[], "text", 5, b"x"])
def test_a_body_that_is_no_map_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="must be a map"):
        Body(value)


def test_no_body_is_an_empty_map() -> None:
    assert Body(None).text("anything", 10) is None


@pytest.mark.parametrize("value", [7, int_(7), uint(7)])
def test_an_integer_of_any_type_is_read(value: object) -> None:
    assert Body({"count": value}).integer("count", 1, 10) == 7


def test_keys_may_be_symbols() -> None:
    assert Body({symbol("count"): 7}).integer("count", None, None) == 7


@pytest.mark.parametrize("value", [None, "7", 7.0, True, [7]])
def test_what_is_no_integer_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArgument, match="'count' as an integer"):
        Body({"count": value}).integer("count", None, None)


@pytest.mark.parametrize("value", [0, 11])
def test_an_integer_outside_its_bounds_is_refused_with_them(value: int) -> None:
    with pytest.raises(InvalidArgument, match="from 1 to 10"):
        Body({"count": value}).integer("count", 1, 10)


def test_a_text_is_cut_at_its_longest() -> None:
    assert Body({"reason": "x" * 20}).text("reason", 5) == "xxxxx"


def test_a_text_may_be_missing_but_not_of_another_type() -> None:
    assert Body({}).text("reason", 5) is None
    with pytest.raises(InvalidArgument, match="'reason' must be a string"):
        Body({"reason": 5}).text("reason", 5)


@pytest.mark.parametrize("numbers", [[1, 2], Array(0x81, [1, 2]), [int_(1), int_(2)]])
def test_integers_come_as_an_array_or_a_list(numbers: object) -> None:
    assert Body({"numbers": numbers}).integers("numbers", 10) == [1, 2]


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        (None, "non-empty array"),
        ([], "non-empty array"),
        (5, "non-empty array"),
        ([1, "2"], "array of integers"),
        ([True], "array of integers"),
        ([1, 1], "stands twice"),
        ([1, 2, 3, 4], "at most 3"),
    ],
)
def test_what_is_no_array_of_different_integers_is_refused(numbers: object, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        Body({"numbers": numbers}).integers("numbers", 3)


def test_lock_tokens_are_uuids_turned_into_the_byte_order_of_delivery_tags() -> None:
    assert Body({"tokens": Array(0x98, [TOKEN])}).tokens("tokens", 3) == [TOKEN.bytes_le]


def test_lock_tokens_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="array of uuids"):
        Body({"tokens": [TOKEN.bytes]}).tokens("tokens", 3)


def test_messages_come_as_maps_with_their_bytes() -> None:
    assert Body({"messages": [{"message": b"one"}, {"message": b"two"}]}).payloads("messages", 3) == [b"one", b"two"]


@pytest.mark.parametrize("item", [b"one", {}, {"message": "text"}, None])
def test_messages_in_another_form_are_refused(item: object) -> None:
    with pytest.raises(InvalidArgument, match="encoded 'message'"):
        Body({"messages": [item]}).payloads("messages", 3)


def test_properties_to_modify_keep_their_types() -> None:
    changes = Body({"changes": {"a": int_(1), symbol("b"): symbol("s")}}).changes("changes", 1000)
    assert changes == {"a": int_(1), "b": symbol("s")}


def test_no_properties_to_modify_are_none() -> None:
    assert Body({}).changes("changes", 1000) is None


@pytest.mark.parametrize(("value", "why"), [([], "must be a map"), ({"a": "x" * 200}, "at most 100 bytes")])
def test_properties_to_modify_are_bounded_and_a_map(value: object, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        Body({"changes": value}).changes("changes", 100)


READERS: dict[str, Callable[[Body], object]] = {
    "integer": lambda body: body.integer("x", None, None),
    "text": lambda body: body.text("x", 5),
    "integers": lambda body: body.integers("x", 5),
    "tokens": lambda body: body.tokens("x", 5),
    "payloads": lambda body: body.payloads("x", 5),
    "changes": lambda body: body.changes("x", 50),
}
STRANGE: list[object] = [object, 1.5, {"x": {}}, [[[]]], Array(0x40, [None] * 3), uuid.UUID(int=7), b"", -(2**63)]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_strange_values_are_read_or_refused_on_purpose(reader: str, value: object) -> None:
    try:
        READERS[reader](Body({"x": value}))
    except InvalidArgument:
        return


def test_a_plain_value_is_itself() -> None:
    assert (plain(int_(5)), plain("x")) == (5, "x")
