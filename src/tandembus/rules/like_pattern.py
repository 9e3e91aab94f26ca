"""Patterns of LIKE: `%` is any run of characters, `_` any single one.

No regular expressions, and no going back over more than one `%`: a pattern is cut at its `%` into pieces, each piece is
looked for once behind the one before it, and the leftmost place is always good enough. A piece without `_` is found by
the string search of Python, which is linear. What a match costs is counted, so that the caller can bound it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.rules.values import FALSE, TRUE, UNKNOWN

MAX_PATTERN_CHARACTERS: Final = 1_024
_STEPS_PER_RUN: Final = 10
"""Of comparing a literal run with the text, which takes some hundred nanoseconds."""
_NOWHERE: Final = -1
_TOO_EXPENSIVE: Final = -2


@final
class PatternError(Exception):
    """A pattern that means nothing."""


@final
class Piece:
    """What stands between two `%`: runs of literal text, each at its distance from the beginning of the piece."""

    __slots__ = ("anchor", "length", "offsets", "runs")

    def __init__(self, runs: list[str], offsets: list[int], length: int) -> None:
        self.runs: Final = runs
        self.offsets: Final = offsets
        self.length: Final = length
        anchor = -1
        for index in range(len(runs)):
            if anchor < 0 or len(runs[index]) > len(runs[anchor]):
                anchor = index
        self.anchor: Final = anchor

    def stands_at(self, text: str, at: i64) -> bool:
        """The caller makes sure that the text is long enough."""
        for index in range(len(self.runs)):
            if not text.startswith(self.runs[index], at + self.offsets[index]):
                return False
        return True


@final
class LikePattern:
    """A pattern, parsed. `match` is TRUE or FALSE, or UNKNOWN when it would cost more than `steps_left`."""

    __slots__ = ("_first", "_is_anchored", "_last", "_least", "_middle", "steps_left")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            raise PatternError(f"a pattern has at most {MAX_PATTERN_CHARACTERS} characters")
        pieces = _cut(pattern, escape)
        self._first: Final = pieces[0]
        self._last: Final = pieces[-1]
        self._middle: Final = [piece for piece in pieces[1:-1] if piece.length > 0]
        self._is_anchored: Final = len(pieces) == 1
        least = 0
        for piece in pieces:
            least += piece.length
        self._least: Final = least
        self.steps_left: i64 = 0

    def match(self, text: str, steps: i64) -> i64:
        self.steps_left = steps
        size: i64 = len(text)
        if size < self._least or (self._is_anchored and size > self._least):
            return FALSE
        if not self._first.stands_at(text, 0):
            return FALSE
        if self._is_anchored:
            return TRUE
        end: i64 = size - self._last.length
        if not self._last.stands_at(text, end):
            return FALSE
        at: i64 = self._first.length
        for piece in self._middle:
            at = self._find(piece, text, at, end)
            if at < 0:
                return FALSE if at == _NOWHERE else UNKNOWN
            at += piece.length
        return TRUE

    def _find(self, piece: Piece, text: str, at: i64, end: i64) -> i64:
        """The leftmost place of a piece in text[at:end]."""
        if piece.anchor < 0:
            return at if at + piece.length <= end else _NOWHERE
        run = piece.runs[piece.anchor]
        offset: i64 = piece.offsets[piece.anchor]
        behind: i64 = end - piece.length + offset + i64(len(run))
        runs: i64 = len(piece.runs)
        while at + piece.length <= end:
            found: i64 = text.find(run, at + offset, behind)
            self.steps_left -= _STEPS_PER_RUN * runs + ((behind if found < 0 else found) - at >> 3)
            if self.steps_left < 0:
                return _TOO_EXPENSIVE
            if found < 0:
                return _NOWHERE
            at = found - offset
            if runs == 1 or piece.stands_at(text, at):
                return at
            at += 1
        return _NOWHERE


def _cut(pattern: str, escape: str | None) -> list[Piece]:
    pieces: list[Piece] = []
    piece = _PieceBuilder()
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if escape is not None and character == escape:
            if at == len(pattern):
                raise PatternError("a pattern ends with its escape character")
            piece.add_literal(pattern[at])
            at += 1
        elif character == "%":
            pieces.append(piece.finished())
            piece = _PieceBuilder()
        elif character == "_":
            piece.add_any()
        else:
            piece.add_literal(character)
    pieces.append(piece.finished())
    return pieces


@final
class _PieceBuilder:
    __slots__ = ("_length", "_offsets", "_run", "_runs")

    def __init__(self) -> None:
        self._runs: list[str] = []
        self._offsets: list[int] = []
        self._run: list[str] = []
        self._length: int = 0

    def add_literal(self, character: str) -> None:
        if not self._run:
            self._offsets.append(self._length)
        self._run.append(character)
        self._length += 1

    def add_any(self) -> None:
        self._end_run()
        self._length += 1

    def _end_run(self) -> None:
        if self._run:
            self._runs.append("".join(self._run))
            self._run = []

    def finished(self) -> Piece:
        self._end_run()
        return Piece(self._runs, self._offsets, self._length)
