"""How well every text of a page can be told from what is behind it, as WCAG 2 counts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

OFFENDERS: Final = (Path(__file__).parent / "contrast.js").read_text()


def offenders(page: Page) -> list[str]:
    """Texts that are hard to read. A page without any text would prove nothing."""
    found: Any = page.evaluate(OFFENDERS)
    assert found["count"] > 3, found
    return list(found["offenders"])
