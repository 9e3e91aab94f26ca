"""Which senders the syphon keeps, and which it closes."""

from __future__ import annotations

from tandembus.pairing.syphon_senders import SenderPool
from tests.covers import covers


class Sender:
    def __init__(self, path: str) -> None:
        self.path = path


@covers("N12")
def test_a_sender_that_is_sending_is_never_closed() -> None:
    pool = SenderPool(Sender, 2)
    busy = [pool.borrow(f"busy-{number}") for number in range(5)]
    idle = pool.borrow("idle")
    assert pool.give_back("idle") == [idle]
    assert pool.borrow("busy-0") is busy[0]
    assert pool.give_back("busy-0") == []
    assert pool.give_back("busy-0") == [busy[0]]


@covers("N12")
def test_those_used_longest_ago_go_first_and_so_no_more_are_kept_than_allowed() -> None:
    pool = SenderPool(Sender, 2)
    closed: list[str] = []
    for path in ("a", "b", "a", "c", "made up", "made up as well"):
        pool.borrow(path)
        closed += [sender.path for sender in pool.give_back(path)]
    assert closed == ["b", "a", "c"]
