"""The dashboard in a real Chromium, as somebody uses it: by what is written on the screen, and the keyboard."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.integration.serving import RunningNamespace

WIDE = (1280, 900)
NARROW = (390, 844)
SHOTS = Path(os.environ.get("SCREENSHOTS", ".build/screenshots"))
"""Pictures to look at, made on the way."""
SHOWS_WITHIN_MS = 20_000.0


@dataclass
class Screen:
    """One tab, and everything in it that went wrong."""

    page: Page
    address: str
    troubles: list[str] = field(default_factory=list)
    expected_statuses: set[int] = field(default_factory=set)
    """Of refusals that the test brings about: the browser tells each of them as an error."""

    def watch(self) -> None:
        self.page.on("console", lambda told: self._told(told.type, told.text))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))

    def _told(self, kind: str, text: str) -> None:
        if kind not in ("error", "warning"):
            return
        status = re.search(r"status of (\d{3})", text)
        if status is None or int(status[1]) not in self.expected_statuses:
            self.troubles.append(f"{kind}: {text}")

    def sign_in(self, connection_string: str) -> None:
        self.page.goto(self.address)
        self.page.get_by_label("Connection string").fill(connection_string)
        self.page.get_by_role("button", name="Sign in").click()
        self.expect_title("Overview")

    def go(self, place: str) -> None:
        """A page by its address, such as 'entity?path=orders'."""
        self.page.goto(f"{self.address}#/{place}")

    def expect_title(self, title: str) -> None:
        expect(self.page.get_by_role("heading", level=1, name=title)).to_be_visible()

    def panel(self, name: str) -> Locator:
        return self.page.get_by_role("region", name=name, exact=True)

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width


@contextlib.contextmanager
def screen(
    browser: Browser, namespace: RunningNamespace, size: tuple[int, int] = WIDE, scheme: str = "light"
) -> Iterator[Screen]:
    """A browser that knows nothing yet. At its end nothing may have gone wrong that nobody saw."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        accept_downloads=True,
    )
    context.set_default_timeout(SHOWS_WITHIN_MS)
    shown = Screen(context.new_page(), f"{namespace.http_url}/")
    shown.watch()
    # The first question, who is signed in, is answered with 401: that is how the page learns that nobody is.
    shown.expected_statuses.add(401)
    try:
        yield shown
        assert shown.troubles == []
    finally:
        context.close()
