"""Which senders the syphon keeps, and which it closes."""

from __future__ import annotations

from tandembus.pairing.runtime import Mutex
from tandembus.pairing.syphon_senders import SenderPool
from tests.covers import covers


class Sender:
    def __init__(self, path: str) -> None:
        self.path = path


@covers("N12")
def test_a_sender_that_is_sending_is_never_closed() -> None:
    pool = SenderPool(Sender, 2, Mutex())
    busy = [pool.borrow(f"busy-{number}") for number in range(5)]
    idle = pool.borrow("idle")
    assert pool.give_back("idle", idle) == [idle]
    assert pool.borrow("busy-0") is busy[0]
    assert pool.give_back("busy-0", busy[0]) == []
    assert pool.give_back("busy-0", busy[0]) == [busy[0]]
    assert len(pool) == 4


@covers("N12")
def test_those_used_longest_ago_go_first() -> None:
    pool = SenderPool(Sender, 2, Mutex())
    for path in ("a", "b", "a", "c"):
        closed = pool.give_back(path, pool.borrow(path))
    assert [sender.path for sender in closed] == ["b"]


@covers("N12")
def test_a_broken_sender_is_given_to_nobody_else_and_closed_by_the_last_who_uses_it() -> None:
    pool = SenderPool(Sender, 2, Mutex())
    broken, same = pool.borrow("orders"), pool.borrow("orders")
    assert broken is same
    assert pool.give_back("orders", broken, is_broken=True) == []
    assert pool.borrow("orders") is not broken
    assert pool.give_back("orders", same, is_broken=True) == [broken]
    assert len(pool) == 1


@covers("N12")
def test_nothing_is_kept_of_paths_that_strangers_made_up() -> None:
    pool = SenderPool(Sender, 2, Mutex())
    for number in range(1_000):
        sender = pool.borrow(f"made-up-{number}")
        pool.give_back(f"made-up-{number}", sender, is_broken=True)
    assert len(pool) == 0


@covers("N14")
def test_what_is_given_back_after_all_were_closed_is_not_closed_again() -> None:
    pool = SenderPool(Sender, 2, Mutex())
    one, other = pool.borrow("a"), pool.borrow("b")
    assert pool.give_back("b", other, is_broken=True) == [other]
    assert pool.clear() == [one]
    assert pool.give_back("a", one) == []
