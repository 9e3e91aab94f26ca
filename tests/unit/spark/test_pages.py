"""Pages are fetched ahead, within bounds, in order, and each once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from tandembus.errors import InvalidOperation, ServerBusy
from tandembus.loop_thread import LoopThread
from tandembus.spark.source.batch_reader import SWITCH_INTERVAL_S
from tandembus.spark.source.browsing import _pages
from tandembus.spark.source.link import Link
from tandembus.spark.source.options import parse_options
from tandembus.spark.source.pages import SHARES, Page, share_of
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered

NOBODY = "Endpoint=sb://localhost/;SharedAccessKeyName=a;SharedAccessKey=b"
PAGE_COUNT = 20


class Paged:
    """Twenty pages of 100 bytes; `trouble` may raise before one is given."""

    def __init__(self, trouble: Callable[[int, int], None] = lambda at, asked: None) -> None:
        self.asked: list[int] = []
        self._trouble = trouble

    async def fetch(self, at: int) -> Page:
        self.asked.append(at)
        self._trouble(at, len(self.asked))
        return [bytes([at]) * 100], at + 1 if at + 1 < PAGE_COUNT else None


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as running:
        yield running


def pages(loop: LoopThread, paged: Paged, max_bytes: int = 1 << 20) -> Iterator[list[bytes]]:
    options = parse_options({"connection": NOBODY, "entities": "q", "maxBytes": str(max_bytes), "retryFor": "5"})
    return _pages(Link(options), loop, paged.fetch, 0)


def numbers(found: Iterator[list[bytes]]) -> list[int]:
    return [message[0] for page in found for message in page]


@covers("D1")
def test_a_reader_that_is_busy_has_a_bounded_number_of_bytes_waiting(loop: LoopThread) -> None:
    paged = Paged()
    found = pages(loop, paged, 300 * SHARES)
    seen = [next(found)[0][0]]
    # Three pages may wait, and this one was taken: the loop has done all it may once it answers, however often.
    for _ in range(50):
        loop.call(_turn())
    assert len(paged.asked) <= 5
    seen += numbers(found)
    assert seen == list(range(PAGE_COUNT))


async def _turn() -> None:
    """One turn of the event loop."""


@covers("D1")
def test_a_page_that_failed_is_asked_for_again_and_none_comes_twice(loop: LoopThread) -> None:
    def every_third(at: int, asked: int) -> None:
        if asked % 3 == 0:
            raise ServerBusy("later")

    paged = Paged(every_third)
    assert numbers(pages(loop, paged)) == list(range(PAGE_COUNT))


def test_what_cannot_be_helped_is_raised_behind_what_was_read(loop: LoopThread) -> None:
    def at_seven(at: int, asked: int) -> None:
        if at == 7:
            raise InvalidOperation("no")

    seen: list[int] = []
    found = pages(loop, Paged(at_seven))
    with pytest.raises(InvalidOperation):
        seen.extend(message[0] for page in found for message in page)
    assert seen == list(range(7))


def test_a_reader_that_stops_early_leaves_nothing_under_way(loop: LoopThread) -> None:
    paged = Paged()
    found = pages(loop, paged, 300 * SHARES)
    next(found)
    found.close()  # type: ignore[attr-defined]
    asked = len(paged.asked)
    for _ in range(50):
        loop.call(_turn())
    assert len(paged.asked) <= asked + 1


def test_a_page_has_a_share_of_the_memory() -> None:
    for size, share in ((1, 1), (4096, 1024), (1 << 30, 4 << 20)):
        assert share_of(parse_options({"connection": NOBODY, "maxBytes": str(size)})) == share


def test_a_task_leaves_python_as_it_found_it(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(3))
    before = sys.getswitchinterval()
    assert before != SWITCH_INTERVAL_S
    assert len(stage.read(maxBytes="1")) == 3
    assert sys.getswitchinterval() == before
