"""The code blocks of a guide, and what is to be done with each.

A comment right before a block says what differs from running it in order:

    <!-- run: until ready -->           it keeps running; the guide goes on when its output holds this word
    <!-- run: no, needs a cluster -->   it cannot be run here, for this reason
    <!-- run: fails -->                 it shows an error
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^(?:<!-- run: (?P<order>[^\n]*?) -->\n)?^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


class Order(Enum):
    RUN = "run"
    BACKGROUND = "until"
    FAILS = "fails"
    NO = "no"


@dataclass(frozen=True)
class Block:
    guide: str
    line: int
    language: str
    text: str
    order: Order = Order.RUN
    word: str = ""
    """What a block in the background says when it is ready, or why a block is not run."""

    def __str__(self) -> str:
        return f"{self.guide}:{self.line} ({self.language})"


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
    first, _, rest = written.partition(" ")
    order = Order(first.rstrip(","))
    assert order is Order.FAILS or rest, f"'{written}' lacks a word or a reason"
    return order, rest
