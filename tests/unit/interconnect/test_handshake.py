"""The handshake: who has the key is let in, once."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding.codec import decode, encode
from tandembus.errors import BusError, MalformedData, NotSupported, Unauthorized
from tandembus.interconnect.handshake import Agreement, CallerHandshake, ListenerHandshake, Party
from tests.covers import covers

KEY = bytes(range(32))
FRONT_END = Party("front end", {"index": 1, "channel": b"c" * 16}, frozenset({"a", "b"}))
BROKER = Party("broker", {"epoch": 3}, frozenset({"b", "c"}))


def _shake(caller: CallerHandshake, listener: ListenerHandshake) -> tuple[Agreement, Agreement]:
    """Returns what the caller and what the listener know then."""
    proof = caller.welcome(listener.hello(caller.hello()))
    of_caller = listener.proof(proof)
    return caller.ready(listener.ready({"catalog_version": 9})), of_caller


@covers("P1")
def test_both_learn_what_the_other_says_of_itself() -> None:
    broker, front_end = _shake(CallerHandshake(KEY, FRONT_END), ListenerHandshake(KEY, BROKER))
    assert (broker.role, broker.facts) == ("broker", {"epoch": 3, "catalog_version": 9})
    assert (front_end.role, front_end.facts) == ("front end", FRONT_END.facts)
    assert broker.features == front_end.features == {"b"}
    assert broker.version == front_end.version == 1


@covers("P1")
def test_a_listener_without_the_key_is_told_nothing_more() -> None:
    caller, listener = CallerHandshake(KEY, FRONT_END), ListenerHandshake(b"w" * 32, BROKER)
    with pytest.raises(Unauthorized):
        caller.welcome(listener.hello(caller.hello()))


@covers("P1")
def test_a_caller_without_the_key_is_not_let_in() -> None:
    """It takes every welcome for good, and proves what it can."""
    caller, listener = CallerHandshake(KEY, FRONT_END), ListenerHandshake(KEY, BROKER)
    hello = caller.hello()
    welcome, _ = decode(listener.hello(hello))
    assert isinstance(welcome, dict)
    for proof in (b"", b"\0" * 32, welcome["proof"]):
        with pytest.raises(Unauthorized):
            listener.proof(encode({"proof": proof}))


@covers("P1")
def test_what_was_overheard_is_of_no_use_later() -> None:
    caller, first = CallerHandshake(KEY, FRONT_END), ListenerHandshake(KEY, BROKER)
    hello = caller.hello()
    welcome = first.hello(hello)
    proof = caller.welcome(welcome)
    first.proof(proof)
    second = ListenerHandshake(KEY, BROKER)
    second.hello(hello)
    with pytest.raises(Unauthorized):
        second.proof(proof)
    other = CallerHandshake(KEY, FRONT_END)
    other.hello()
    with pytest.raises(Unauthorized):
        other.welcome(welcome)


@covers("P1")
def test_nobody_can_change_what_the_caller_said_of_itself() -> None:
    caller, listener = CallerHandshake(KEY, FRONT_END), ListenerHandshake(KEY, BROKER)
    hello, _ = decode(caller.hello())
    assert isinstance(hello, dict)
    with pytest.raises(Unauthorized):
        caller.welcome(listener.hello(encode({**hello, "role": "supervisor"})))


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [((1, 1), (1, 1), 1), ((1, 1), (1, 2), 1), ((1, 2), (2, 3), 2), ((1, 3), (2, 2), 2), ((2, 4), (1, 3), 3)],
)
@covers("P1")
def test_neighbouring_versions_speak_the_newest_that_both_know(
    ours: tuple[int, int], theirs: tuple[int, int], agreed: int
) -> None:
    caller = CallerHandshake(KEY, Party("a", {}, frozenset(), *ours))
    listener = ListenerHandshake(KEY, Party("b", {}, frozenset(), *theirs))
    assert [one.version for one in _shake(caller, listener)] == [agreed, agreed]


@pytest.mark.parametrize(("ours", "theirs"), [((1, 1), (2, 3)), ((4, 5), (1, 3)), ((1, 1), (3, 1))])
def test_versions_too_far_apart_are_refused_by_name(ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    caller = CallerHandshake(KEY, Party("a", {}, frozenset(), *ours))
    listener = ListenerHandshake(KEY, Party("b", {}, frozenset(), *theirs))
    with pytest.raises(NotSupported, match="No common version"):
        listener.hello(caller.hello())


def test_fields_of_a_newer_version_are_passed_over() -> None:
    caller, listener = CallerHandshake(KEY, FRONT_END), ListenerHandshake(KEY, BROKER)
    hello, _ = decode(caller.hello())
    assert isinstance(hello, dict)
    listener.hello(encode({**hello, "colour": "green", 7: [1]}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x40",
        encode([1, 2]),
        encode({}),
        encode({"lowest": 1, "highest": 1, "features": [], "nonce": b"short"}),
        encode({"lowest": "1", "highest": 1, "features": [], "nonce": b"n" * 32}),
        encode({"lowest": True, "highest": 1, "features": [], "nonce": b"n" * 32}),
        encode({"lowest": 1, "highest": 1, "features": [], "nonce": b"n" * 32}) + b"\0",
    ],
)
def test_what_is_no_hello_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedData):
        ListenerHandshake(KEY, BROKER).hello(body)


def test_a_welcome_cut_short_or_changed_is_an_error_and_nothing_else() -> None:
    for cut in range(200):
        caller = CallerHandshake(KEY, FRONT_END)
        welcome = ListenerHandshake(KEY, BROKER).hello(caller.hello())
        changed = bytearray(welcome)
        changed[cut % len(welcome)] ^= 0x11
        for bad in (welcome[: cut % len(welcome)], bytes(changed)):
            with pytest.raises(BusError):
                caller.welcome(bad)


def test_a_key_that_is_too_short_is_no_key() -> None:
    with pytest.raises(Unauthorized):
        CallerHandshake(b"short", FRONT_END)
