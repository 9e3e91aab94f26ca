"""The dashboard in a real Chromium, as somebody uses it: by what is written on the screen, and the keyboard."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Dialog, Locator, Page, StorageState, expect

from tests.integration.serving import RunningNamespace

WIDE = (1280, 900)
NARROW = (390, 844)
SHOTS = Path(os.environ.get("SCREENSHOTS", ".build/screenshots"))
"""Pictures to look at, made on the way."""
SHOWS_WITHIN_MS = 20_000.0
FETCH = """async ([method, route, document]) => {
    const headers = { "X-Tandembus": "1", "Content-Type": "application/json" };
    const body = document === null ? undefined : JSON.stringify(document);
    return (await fetch(route, { method, headers, body })).status;
}"""


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
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("dialog", lambda dialog: self._asked_somebody(dialog))

    def _told(self, kind: str, text: str) -> None:
        if kind not in ("error", "warning"):
            return
        status = re.search(r"status of (\d{3})", text)
        if status is None or int(status[1]) not in self.expected_statuses:
            self.troubles.append(f"{kind}: {text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.troubles.append(f"request to somewhere else: {url}")

    def _asked_somebody(self, dialog: Dialog) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def sign_in(self, connection_string: str, title: str = "Overview") -> None:
        self.page.goto(self.address)
        self.page.get_by_label("Connection string").fill(connection_string)
        self.button("Sign in").click()
        self.expect_title(title)

    def open(self) -> None:
        """Where somebody is signed in already."""
        self.page.goto(self.address)
        self.expect_title("Overview")

    def go(self, place: str) -> None:
        """A page by its address, such as 'entity?path=orders'."""
        self.page.goto(f"{self.address}#/{place}")

    def expect_title(self, title: str) -> None:
        expect(self.page.get_by_role("heading", level=1, name=title)).to_be_visible()

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def dialog(self, name: str) -> Locator:
        return self.page.get_by_role("dialog", name=name, exact=True)

    def figure(self, label: str) -> Locator:
        """The value below a label, the first of the page."""
        return self.page.locator(".figure", has=self.page.get_by_text(label, exact=True)).first.locator(".value")

    def row(self, table: str, text: str) -> Locator:
        return self.page.get_by_role("table", name=table, exact=True).get_by_role("row").filter(has_text=text)

    def status_of(self, method: str, route: str, document: object = None) -> int:
        """What the page's own script gets for a request that no button of it would make."""
        return int(self.page.evaluate(FETCH, [method, route, document]))

    def panel(self, name: str) -> Locator:
        return self.page.get_by_role("region", name=name, exact=True)

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        width: int = self.page.locator("html").evaluate("(page) => page.scrollWidth - page.clientWidth")
        return width


@contextlib.contextmanager
def screen(
    browser: Browser,
    namespace: RunningNamespace,
    size: tuple[int, int] = WIDE,
    scheme: str = "light",
    kept: StorageState | None = None,
) -> Iterator[Screen]:
    """A browser that knows nothing yet, or only what was `kept` of another. At its end nothing may have gone wrong
    that nobody saw."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        accept_downloads=True,
        storage_state=kept,
    )
    context.set_default_timeout(SHOWS_WITHIN_MS)
    shown = Screen(context.new_page(), f"{namespace.http_url}/")
    shown.watch()
    try:
        yield shown
        assert shown.troubles == [], "\n".join(shown.troubles)
    finally:
        context.close()
