"""Text and figures as a report shows them. Whoever may create entities chooses their names: none is taken as markup."""

from __future__ import annotations

import html
import unicodedata
from datetime import datetime, timezone
from typing import Final

LABEL_CHARACTERS: Final = 28
DAY_S: Final = 86_400
_UNITS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_BYTE_UNITS: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def escaped(text: str) -> str:
    """For HTML and SVG, in elements and in attributes."""
    return html.escape(visible(text), quote=True)


def visible(text: str) -> str:
    """What could hide text or turn its direction, or is no character at all, is written out."""
    return "".join([f"\\u{ord(each):04x}" if unicodedata.category(each)[0] == "C" else each for each in text])


def label(text: str) -> str:
    """A name where there is little room: both ends tell names apart better than the beginning alone."""
    shown = visible(text)
    if len(shown) <= LABEL_CHARACTERS:
        return shown
    end = LABEL_CHARACTERS // 2
    return f"{shown[: LABEL_CHARACTERS - end - 1]}…{shown[-end:]}"


def entity_name(entity: str) -> str:
    return entity or "(the namespace itself)"


def short(number: float) -> str:
    """For axes: 1,200 is 1.2k."""
    for size, unit in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"


def size(count: int) -> str:
    for step, unit in _BYTE_UNITS:
        if count >= step:
            return f"{count / step:,.1f} {unit}"
    return f"{count:,} B"


def duration(seconds: int) -> str:
    for step, unit in ((DAY_S, "d"), (3600, "h"), (60, "min")):
        if seconds >= step and seconds % step == 0:
            return f"{seconds // step} {unit}"
    return f"{seconds} s"


def moment(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def tick_moment(second: int, span_s: int) -> str:
    """On an axis of so much time."""
    at = datetime.fromtimestamp(second, timezone.utc)
    if span_s > 2 * DAY_S:
        return at.strftime("%b %d")
    return at.strftime("%H:%M" if span_s >= 1800 else "%H:%M:%S")
