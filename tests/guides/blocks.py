"""The code blocks of a document, and what is to be done with each.

A comment right before a block says what differs from running it in order:

    <!-- run: until ready -->           it keeps running; the story goes on when its output holds this word
    <!-- run: again, until ready -->    likewise, after what was started before has been ended with Ctrl-C
    <!-- run: fails -->                 it ends with an error
    <!-- run: whatever its end -->      its exit code tells of the machine it runs on
    <!-- run: no, needs a cluster -->   it cannot be run here, for this reason
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?: *<!-- run: (?P<order>[^\n]*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_ORDER = re.compile(
    r"(?P<no>no), (?P<reason>.+)|(?P<fails>fails)|(?P<whatever>whatever its end)|(?P<again>again, )?until (?P<word>.+)"
)


class Order(Enum):
    RUN = "run"
    KEEP_RUNNING = "until"
    START_AGAIN = "again"
    FAIL = "fails"
    END_ANYHOW = "whatever"
    LEAVE = "no"


@dataclass(frozen=True)
class Block:
    document: str
    line: int
    language: str
    text: str
    order: Order = Order.RUN
    word: str = ""
    """What a block that keeps running says when it is ready, or why a block is not run."""

    def __str__(self) -> str:
        return f"{self.document}:{self.line} ({self.language})"


def blocks_of(path: Path) -> list[Block]:
    document = path.read_text()
    found = []
    for match in _BLOCK.finditer(document):
        indent = match["indent"]
        text = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        order, word = _order(match["order"])
        line = document.count("\n", 0, match.start("language")) + 1
        found.append(Block(str(path.relative_to(ROOT)), line, match["language"], text, order, word))
    return found


def _order(written: str | None) -> tuple[Order, str]:
    if written is None:
        return Order.RUN, ""
    match = _ORDER.fullmatch(written)
    assert match is not None, f"'run: {written}' is none of the orders"
    if match["no"]:
        return Order.LEAVE, match["reason"]
    if match["fails"]:
        return Order.FAIL, ""
    if match["whatever"]:
        return Order.END_ANYHOW, ""
    return (Order.START_AGAIN if match["again"] else Order.KEEP_RUNNING), match["word"]


def without_fences(document: str) -> str:
    """Everything but code blocks."""
    return _BLOCK.sub("", document)
