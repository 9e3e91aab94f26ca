"""From what clients write to what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandembus.errors import InvalidArgument
from tandembus.namespace.paths import (
    EntityAddress,
    SubQueue,
    decode_http_path,
    parse_address,
    parse_http_path,
    split_subscription,
)
from tests.covers import covers

HOSTS = [
    "",
    "/",
    "amqps://localhost/",
    "amqps://localhost:5673/",
    "amqp://h/",
    "sb://h:1/",
    "SB://H/",
    "https://h/",
]


@covers("B1")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Orders", EntityAddress("orders", "Orders")),
        ("a/B/c", EntityAddress("a/b/c", "a/B/c")),
        ("q/$DeadLetterQueue", EntityAddress("q", "q", SubQueue.DEAD_LETTER)),
        ("q/$deadletterqueue", EntityAddress("q", "q", SubQueue.DEAD_LETTER)),
        ("q/$Transfer/$DeadLetterQueue", EntityAddress("q", "q", SubQueue.TRANSFER_DEAD_LETTER)),
        ("q/$management", EntityAddress("q", "q", SubQueue.MAIN, True)),
        ("q/$DeadLetterQueue/$Management", EntityAddress("q", "q", SubQueue.DEAD_LETTER, True)),
        (
            "q/$transfer/$deadletterqueue/$management",
            EntityAddress("q", "q", SubQueue.TRANSFER_DEAD_LETTER, True),
        ),
        ("t/Subscriptions/S", EntityAddress("t/subscriptions/s", "t/Subscriptions/S")),
        (
            "t/Subscriptions/S/$management",
            EntityAddress("t/subscriptions/s", "t/Subscriptions/S", SubQueue.MAIN, True),
        ),
        ("$cbs", EntityAddress("$cbs", "$cbs")),
        ("$management", EntityAddress("", "", SubQueue.MAIN, True)),
    ],
)
def test_every_way_to_write_an_address_means_the_same(host: str, path: str, expected: EntityAddress) -> None:
    assert parse_address(host + path) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        "/",
        "sb://h",
        "sb://h/",
        "$deadletterqueue",
        "sb://h/$DeadLetterQueue/$management",
        "a b",
        "a\n",
        "\x00",
        "x" * 3_000,
    ],
)
def test_an_address_that_names_nothing_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_address(address)


@pytest.mark.parametrize(
    ("address", "claim_path"),
    [
        ("Orders", "orders"),
        ("Orders/$Management", "orders/$management"),
        ("Orders/$DeadLetterQueue", "orders/$deadletterqueue"),
        ("orders/$Transfer/$DeadLetterQueue/$management", "orders/$transfer/$deadletterqueue/$management"),
        ("$management", "$management"),
    ],
)
@covers("M15")
def test_a_claim_must_cover_the_address_with_its_suffixes(address: str, claim_path: str) -> None:
    assert parse_address(address).claim_path == claim_path


def test_the_token_node_is_recognised_in_whatever_letters() -> None:
    assert parse_address("$CBS").is_token_node
    assert not parse_address("$cbs/$management").is_token_node
    assert not parse_address("q").is_token_node


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        ("/q", "q"),
        ("/t%2F1", "t/1"),
        ("/t%2f1/?api-version=2024-05", "t/1"),
        ("/t%252F1", "t%2F1"),
        ("/q/$DeadLetterQueue", "q/$DeadLetterQueue"),
        ("/q/%24DeadLetterQueue", "q/$DeadLetterQueue"),
        ("/a+b", "a+b"),
        ("/%", "%"),
        ("/", ""),
    ],
)
def test_an_http_path_is_decoded_once(raw: str, decoded: str) -> None:
    assert decode_http_path(raw) == decoded


def test_an_http_path_is_an_address() -> None:
    assert parse_http_path("/T%2F1/%24deadletterqueue") == EntityAddress("t/1", "T/1", SubQueue.DEAD_LETTER)
    # What was encoded in a path is part of it, not a host.
    assert parse_http_path("/sb%3A%2F%2Fh%2Fq").key == "sb://h/q"
    for raw in ("/%ff", "/%00", "/a%20b", "/"):
        with pytest.raises(InvalidArgument):
            parse_http_path(raw)


@given(st.text(max_size=100))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for parse in (parse_address, parse_http_path):
        try:
            address = parse(text)
        except InvalidArgument:
            continue
        assert address.key or address.is_management
        assert not address.claim_path.startswith("/")


@given(st.text(alphabet="aA/$:. %", max_size=30))
def test_reading_an_address_twice_changes_nothing(text: str) -> None:
    try:
        address = parse_address(text)
    except InvalidArgument:
        return
    if "://" not in address.claim_path:
        again = parse_address(address.claim_path)
        assert (again.key, again.sub_queue, again.is_management) == (
            address.key,
            address.sub_queue,
            address.is_management,
        )


@covers("M9")
@pytest.mark.parametrize(
    ("address", "key", "sub_queue", "is_management", "claim_path"),
    [
        ("News/Subscriptions/Audit", "news/subscriptions/audit", SubQueue.MAIN, False, "news/subscriptions/audit"),
        (
            "sb://h/a/b/SUBSCRIPTIONS/s/$DeadLetterQueue",
            "a/b/subscriptions/s",
            SubQueue.DEAD_LETTER,
            False,
            "a/b/subscriptions/s/$deadletterqueue",
        ),
        (
            "t/Subscriptions/s/$Transfer/$DeadLetterQueue/$management",
            "t/subscriptions/s",
            SubQueue.TRANSFER_DEAD_LETTER,
            True,
            "t/subscriptions/s/$transfer/$deadletterqueue/$management",
        ),
        ("t/Subscriptions/s/$management", "t/subscriptions/s", SubQueue.MAIN, True, "t/subscriptions/s/$management"),
    ],
)
def test_addresses_of_subscriptions(
    address: str, key: str, sub_queue: SubQueue, is_management: bool, claim_path: str
) -> None:
    parsed = parse_address(address)
    assert (parsed.key, parsed.sub_queue, parsed.is_management) == (key, sub_queue, is_management)
    assert parsed.claim_path == claim_path


@covers("M9")
@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("t/Subscriptions/s", ("t", "s")),
        ("a/b/subscriptions/s", ("a/b", "s")),
        ("t/SUBSCRIPTIONS/subscriptions", ("t", "subscriptions")),
        ("subscriptions/subscriptions/subscriptions", ("subscriptions", "subscriptions")),
        ("t", None),
        ("", None),
        ("subscriptions/s", None),
        ("/subscriptions/s", None),
        ("t/subscriptions", None),
        ("t/subscriptions/", None),
        ("t/subscriptions/s/rules", None),
        ("t/subscriptions/s/", None),
        ("t/sub\u017fcriptions/s", None),
    ],
)
def test_a_path_is_taken_apart_into_topic_and_subscription(path: str, parts: tuple[str, str] | None) -> None:
    assert split_subscription(path) == parts
