"""Takes the pictures of the dashboard that the documents show: `make screenshots`, or with a folder to put them in."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tools.sample_pair import Side, fail_over, fill, running_pair, traffic

IMAGES = Path(__file__).parent.parent / "docs" / "images"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
WIDTH = 1280
QUALITY = 80
SETTLES_MS = 10_000.0
"""So that charts have some seconds to show."""


@dataclass(frozen=True)
class Shot:
    name: str
    place: str
    shows: str
    """A text that is there when the page is complete."""
    height: int = 800


SHOTS = (
    Shot("overview", "overview", "contoso-backup", 900),
    Shot("entities", "entities", "shipments", 620),
    Shot("entity", "entity?path=orders", "Fragments", 1000),
    Shot("messages", "entity?path=orders&tab=messages", "Active", 700),
    Shot("dead-letters", "entity?path=invoices&tab=messages&view=dead-letter", "PaymentRefused", 700),
    Shot("rules", "entity?path=events/subscriptions/large&tab=rules", "above-500", 480),
    Shot("pair", "pair", "shipments", 900),
    Shot("faults", "faults", "shipments-drill", 480),
    Shot("cost", "cost", "backlog", 900),
)


def take(page: Page, address: str, shot: Shot, folder: Path) -> None:
    page.set_viewport_size({"width": WIDTH, "height": shot.height})
    page.goto(f"{address}#/{shot.place}")
    page.get_by_text(shot.shows).filter(visible=True).first.wait_for()
    page.wait_for_timeout(SETTLES_MS)
    file = folder / f"{shot.name}.webp"
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").save(file, quality=QUALITY, method=6)
    print(f"{file}: {file.stat().st_size / 1024:.0f} KiB")


def take_all(primary: Side, folder: Path) -> None:
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        sys.exit("there is no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(color_scheme="light")
        page.goto(primary.http_address)
        page.get_by_label("Connection string").fill(primary.connection_string)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", level=1, name="Overview").wait_for()
        for shot in SHOTS:
            take(page, primary.http_address, shot, folder)
        browser.close()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, running_pair(Path(data)) as (primary, secondary):
        fill(primary)
        fail_over(primary, secondary)
        with traffic(primary):
            take_all(primary, folder)


if __name__ == "__main__":
    main()
