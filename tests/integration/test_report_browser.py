"""The report in a real browser: what people see, and what names of entities must not do there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.covers import covers
from tests.integration.browser import Page, browsing, find_chromium
from tests.unit.spark.reports import HOSTILE, outage, page, reconciliation

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
TITLE = "The outage"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("report")
    file = folder / "report.html"
    file.write_text(page(outage(), reconciliation(lost=3), title=TITLE), encoding="utf-8")
    assert CHROMIUM is not None
    with browsing(CHROMIUM, folder / "profile") as tab:
        tab.open(file)
        yield tab


@covers("D4")
def test_nothing_is_loaded_and_nothing_goes_wrong(report: Page) -> None:
    asked = [each["request"]["url"] for each in report.of("Network.requestWillBeSent")]
    assert [address for address in asked if not address.startswith(("file:", "data:"))] == []
    assert report.of("Runtime.exceptionThrown") == []
    assert [each["entry"]["text"] for each in report.of("Log.entryAdded")] == []


@covers("D4")
def test_names_are_seen_and_not_executed(report: Page) -> None:
    assert report.value("document.title") == TITLE
    assert report.value("document.scripts.length + document.images.length") == 0
    shown = report.value("document.body.innerText")
    for name in HOSTILE[:3]:
        assert name in shown


@covers("D4")
def test_the_charts_are_drawn_and_no_text_leaves_them(report: Page) -> None:
    charts = report.value(
        """[...document.querySelectorAll('svg')].map(chart => {
            const seen = chart.getBoundingClientRect(), box = chart.viewBox.baseVal;
            const texts = [...chart.querySelectorAll('text')].map(text => [text.textContent, text.getBBox()]);
            const marks = [...chart.querySelectorAll('rect, path')].map(mark => mark.getBBox());
            return {
                width: seen.width, height: seen.height, marks: marks.filter(mark => mark.width || mark.height).length,
                outside: texts.filter(([_, at]) => at.x < 0 || at.y < 0 || at.x + at.width > box.width
                    || at.y + at.height > box.height).map(([text]) => text),
                small: texts.filter(([_, at]) => !at.height).length,
            };
        })"""
    )
    assert len(charts) == 2
    for chart in charts:
        assert chart["width"] > 300
        assert chart["height"] > 40
        assert chart["marks"] >= 2
        assert (chart["outside"], chart["small"]) == ([], 0)


@covers("D4")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_a_screen_and_a_telephone(report: Page, width: int) -> None:
    report.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    assert report.value("document.documentElement.scrollWidth") <= width


@covers("D4")
def test_light_and_dark_each_have_readable_colours(report: Page) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        report.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        style = "getComputedStyle(document.body)"
        grounds[scheme] = (report.value(f"{style}.backgroundColor"), report.value(f"{style}.color"))
    assert grounds["light"] == ("rgb(255, 255, 255)", "rgb(29, 36, 51)")
    assert grounds["dark"] == ("rgb(18, 21, 28)", "rgb(232, 235, 242)")


@covers("D4")
def test_it_can_be_printed(report: Page) -> None:
    printed = report.call("Page.printToPDF", printBackground=False)["data"]
    assert len(printed) > 10_000
