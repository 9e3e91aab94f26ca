"""Text from outside, made harmless for a terminal.

Whoever can send a message chooses its body, ids and properties. A terminal obeys control characters: they could
hide text, rename windows, or fill in a command line. So they are shown, never sent, whether or not the output is
piped: what is piped ends up on a terminal sooner or later.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

_HARMFUL: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Controls, invisible format marks (they can turn the direction of writing), lone surrogates, line separators."""

_JOINERS: Final = "\u200c\u200d"
"""Parts of words in some scripts, and of emoji."""

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, keep: str = "") -> str:
    """The text with control characters written out (`\\x1b`), except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(each if each in keep or not _is_harmful(each) else _written(each) for each in text)


def printable_json(text: str) -> str:
    """The same for JSON, which leaves some of them as they are: written in its own way, so it stays the same value."""
    if text.isprintable():
        return text
    return "".join(json.dumps(each)[1:-1] if _is_harmful(each) else each for each in text)


def _is_harmful(character: str) -> bool:
    return unicodedata.category(character) in _HARMFUL and character not in _JOINERS


def _written(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
