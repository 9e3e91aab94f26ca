"""Errors across a connection: the name of the class and the text that the client is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tandembus.errors import BusError, StoreUnavailable

MAX_TEXT: Final = 4096


def _all_kinds(kind: type[BusError]) -> Iterator[type[BusError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _all_kinds(child)


_KINDS: Final = {kind.__name__: kind for kind in _all_kinds(BusError)}


def name_of(error: BusError) -> str:
    return type(error).__name__


def text_of(error: BusError) -> str:
    return str(error)[:MAX_TEXT]


def error_of(name: str, text: str) -> BusError:
    """The same error on this side. One that only the other side's version knows is at least no success."""
    return _KINDS.get(name, StoreUnavailable)(text)
