"""The report, as far as it can be read without a browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.errors import InvalidArgument
from tandembus.metering.bills import PriceBook, Used, day_of
from tandembus.metering.price_files import load_prices
from tandembus.spark.jobs.reconcile_judging import SUMS
from tandembus.spark.jobs.reconcile_result import ReconcileResult, Verdict
from tandembus.spark.jobs.report import ReportOptions, run_report
from tandembus.spark.jobs.report_reconciliation import read_reconciliation
from tandembus.spark.jobs.report_timeline import LEFT, RIGHT, WIDTH, Timeline, levels, timeline
from tandembus.spark.jobs.usage_result import Earlier, Gap, UsageResult, write_result
from tests.covers import covers
from tests.unit.spark.reports import HOSTILE, NOON, outage, page, point, reconciliation, used_by

EMPTY = UsageResult(1, 0, None, (), 1, ())
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """What a browser would make of a page: elements in order, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def named(names: list[str]) -> list[tuple[str, set[str]]]:
    """The elements, with their attributes, of a page on which these names stand wherever names can."""
    rows = [Used(name, name, name, name, day_of(NOON), 1, 1, len(names) - place, 1) for place, name in enumerate(names)]
    gaps = tuple(Gap(name, NOON, NOON) for name in names)
    skipped = tuple((name, 1) for name in names)
    result = UsageResult(1, 1, (NOON, NOON), tuple(rows), 1, (), gaps, len(names), skipped)
    return [(tag, set(attributes)) for tag, attributes in Reader(page(result, None, title=" ".join(names))).elements]


@covers("D4")
def test_fifty_hostile_names_make_the_same_page_as_harmless_ones() -> None:
    parts = (
        "<script>a()</script>",
        "</svg><b>",
        '"><img src=x onerror=a>',
        "' onload='a",
        "<!--",
        "]]>",
        "&#60;b&#62;",
    )
    hostile = [f"{first}{second}{number:02}" for number, (first, second) in enumerate(product(parts, repeat=2))]
    hostile.append("</title></style></head>49")
    assert len(hostile) == 50
    assert named(hostile) == named([f"name {number:02}" for number in range(50)])


@covers("D4")
def test_a_page_is_well_formed_and_has_nothing_that_loads_or_runs() -> None:
    read = Reader(page(outage(), reconciliation(lost=3), title=HOSTILE[0]))
    assert read.open == []
    kinds = {tag for tag, _ in read.elements}
    assert not kinds & {"script", "img", "iframe", "object", "embed", "form", "base"}
    for tag, attributes in read.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert not {"href", "src"} & set(attributes), tag


@covers("D4")
def test_names_are_shown_as_they_are() -> None:
    read = Reader(page(outage(), reconciliation(lost=3)))
    for name in HOSTILE[:3]:
        assert name in read.text
    assert "\u202e" not in read.text
    assert "\\u202e reversed \\u0000 \\u001b[2J" in read.text


@covers("D4", "N13")
def test_every_part_of_the_report_is_there() -> None:
    read = Reader(page(outage(), reconciliation()))
    for heading in (
        "The bill",
        "What the failover cost",
        "Timeline",
        "Backlog and syphon",
        "Reconciliation",
        "Nothing was lost",
        "1 send to the backlog",
        "others",
        "2,750 of 2,750 messages were brought home (100 %)",
        "At most 2,750 messages waited; 0 at the end",
    ):
        assert heading in read.text, heading
    charts = [attributes for tag, attributes in read.elements if tag == "svg"]
    assert len(charts) == 2
    for chart in charts:
        assert chart["role"] == "img"
        assert chart["aria-labelledby"]


@covers("D4")
def test_a_loss_is_not_overlooked() -> None:
    read = Reader(page(outage(), reconciliation(lost=3)))
    assert "3 lost, 0 phantoms." in read.text
    assert "Nothing was lost" not in read.text


def reconciled(
    verdict: Verdict, exceptions: Sequence[dict[str, object]] = (), exception_count: int | None = None, **figures: int
) -> dict[str, object]:
    """A document as the job writes it; the verdict it would come to is the given one."""
    rows = [
        {"namespace": name, "entity": "orders", **dict.fromkeys(SUMS, 0), "accepted": 7, "settled": 7, **figures}
        for name in ("contoso", "fabrikam")
    ]
    count = len(exceptions) if exception_count is None else exception_count
    found = ReconcileResult(rows, exceptions, count, datetime.fromtimestamp(NOON, UTC), 4, 2)
    document = found.document(exactly_once=True)
    assert document["verdict"] == verdict.value
    return document


def shown(document: dict[str, object], folder: Path) -> Reader:
    file = folder / "reconciled.json"
    file.write_text(json.dumps(document))
    return Reader(page(outage(), read_reconciliation(file)))


def notes(read: Reader) -> list[str]:
    """The kinds of the notes: what is coloured, and how."""
    kinds = [str(attributes.get("class")).split() for _, attributes in read.elements]
    return [kind[1] for kind in kinds if kind[0] == "note" and len(kind) > 1]


@covers("D4")
def test_the_verdict_is_that_of_the_job(tmp_path: Path) -> None:
    failed = shown(reconciled(Verdict.FAILED, duplicate=1), tmp_path)
    assert notes(failed) == ["bad"]
    assert "2 duplicates, where each message was to be settled exactly once" in failed.text
    assert "0 phantoms, 2 duplicates" in failed.text
    assert "Nothing was lost" not in failed.text
    well = shown({**reconciled(Verdict.FAILED, duplicate=1), "verdict": "well"}, tmp_path)
    assert notes(well) == ["good"]
    assert "and nothing was received that nobody sent. Settled more than once: 2." in well.text


@covers("D4")
def test_what_could_not_be_judged_is_said(tmp_path: Path) -> None:
    unreached: dict[str, object] = {
        "kind": "unreached",
        "namespace": "fabrikam",
        "entity": "orders",
        "fragment": 3,
        "reason": "it is out",
    }
    read = shown(reconciled(Verdict.INCOMPLETE, [unreached], settled=4, unjudged=3), tmp_path)
    assert notes(read) == ["bad"]
    lacks = "Nothing is proven: messages that could not be judged: 6; places that could not be browsed: 1."
    assert lacks in read.text
    assert "of 14 accepted; nothing is proven" in read.text
    assert "unjudged 3" in {attributes.get("title") for _, attributes in read.elements}, "in the chart"
    assert "fragment 3, reason it is out" in read.text
    assert "Lines of the sender's record that could not be compared: 2" in read.text


@covers("D4")
def test_a_reconciliation_without_all_records_is_no_proof(tmp_path: Path) -> None:
    place = {"namespace": "contoso", "entity": "orders", "sequence_number": 7, "state": None}
    exceptions: list[dict[str, object]] = [
        {"kind": "missing_records", "namespace": "contoso", "store": "store-0", "count": 5},
        {"kind": "late", "entity": "orders", "message_id": "a", "settled_at": None, "places": [place]},
    ]
    text = shown(reconciled(Verdict.INCOMPLETE, exceptions, 9), tmp_path).text
    assert "Nothing is proven: places where audit records are missing: 1." in text
    assert "Nothing was lost" not in text
    assert "The first 2 of 9 exceptions" in text
    assert "places namespace contoso, entity orders, sequence number 7" in text
    assert "Lines of audit files that could not be read: 4" in text


@covers("D4")
def test_a_report_of_nothing_says_so() -> None:
    read = Reader(page(EMPTY))
    for text in (
        "Nothing was counted",
        "The backlog was empty all the time",
        "Not given",
    ):
        assert text in read.text


def test_a_report_without_a_failover_says_so() -> None:
    points = [point(NOON, "contoso", "send", "normal", 5)]
    quiet = UsageResult(1, 1, (NOON, NOON), tuple(used_by(points)), 1, tuple(points))
    assert "No message went through a backlog" in Reader(page(quiet)).text


# Time.


@covers("D4")
def test_the_backlog_is_as_deep_as_what_came_less_what_was_settled() -> None:
    times = timeline(outage())
    assert times is not None
    assert (times.depth[44], times.depth[45], times.depth[99], times.depth[105], times.depth[109]) == (
        0,
        50,
        2750,
        2200,
        0,
    )
    assert times.home_so_far[-1] == times.diverted_so_far[-1] == 2750


def test_what_was_in_the_backlog_before_the_first_record_is_known_from_what_leaves_it() -> None:
    points = [point(NOON + 1, "backup", "complete", "syphon", 30)]
    seen = UsageResult(1, 1, (NOON, NOON + 2), tuple(used_by(points)), 1, tuple(points))
    times = timeline(seen)
    assert times is not None
    assert times.depth == [30, 0, 0]


def test_what_was_in_the_backlog_before_the_first_record_is_known_from_the_files_before_it() -> None:
    points = [point(NOON + 1, "backup", "complete", "syphon", 30)]
    earlier = (
        Earlier("backup", "send", "failover", 70, 70, 70, 0),
        Earlier("backup", "complete", "syphon", 20, 20, 20, 0),
    )
    seen = UsageResult(1, 1, (NOON, NOON + 2), tuple(used_by(points)), 1, tuple(points), earlier=earlier)
    times = timeline(seen)
    assert times is not None
    assert times.depth == [50, 20, 20]


@pytest.mark.parametrize(
    ("largest", "ticks"), [(0, [0, 1]), (3, [0, 1, 2, 3]), (9, [0, 5, 10]), (400, [0, 100, 200, 300, 400])]
)
def test_axes_have_round_figures(largest: int, ticks: list[int]) -> None:
    assert levels([largest]) == ticks


@pytest.mark.parametrize("largest", [5, 7, 11, 99, 101, 12_345, 10**15])
def test_axes_reach_the_largest_value(largest: int) -> None:
    ticks = levels([largest - 5], [5])
    assert ticks[-1] >= largest
    assert len(ticks) <= 6


@pytest.mark.parametrize("span_s", [1, 47, 600, 86_400, 30 * 86_400, 3000 * 86_400])
def test_moments_on_an_axis_are_few_and_within_it(span_s: int) -> None:
    none = [0]
    ticks = list(Timeline(NOON + 7, span_s, none, none, none, none, none, 0).ticks())
    assert 1 <= len(ticks) <= 11
    assert all(LEFT <= x <= WIDTH - RIGHT for x, _ in ticks)


# Files and the command.


def kept(folder: Path) -> Path:
    return write_result(outage(), folder / "bill")


@covers("D4")
def test_a_report_is_made_without_spark_from_what_the_usage_job_kept(tmp_path: Path) -> None:
    output = tmp_path / "reports" / "outage.html"
    found = tmp_path / "reconciled.json"
    found.write_text(json.dumps(reconciled(Verdict.WELL)))
    arguments = ["--usage", str(kept(tmp_path)), "--reconciliation", str(found), "--output", str(output)]
    result = CliRunner().invoke(main, ["spark", "report", *arguments])
    assert result.exit_code == 0, result.output
    assert str(output) in result.stdout
    assert "Nothing was lost" in output.read_text()
    assert list(output.parent.iterdir()) == [output]
    again = CliRunner().invoke(main, ["spark", "report", "--json", *arguments])
    assert json.loads(again.stdout) == {"report": str(output)}


@covers("D4")
def test_a_report_has_the_bill_that_was_kept_unless_other_prices_are_given(tmp_path: Path) -> None:
    result = outage()
    kept = write_result(result, tmp_path / "bill", result.bill(PriceBook([load_prices("china")]), 0))
    output = tmp_path / "report.html"
    for arguments, told in (
        ([], ("china", "CNY", "Each month is priced beside 0 other operations")),
        (
            ["--prices", "us", "--other-operations", "7"],
            ("us", "USD", "Each month is priced beside 7 other operations"),
        ),
    ):
        options = ["--usage", str(kept), "--output", str(output), *arguments]
        assert CliRunner().invoke(main, ["spark", "report", *options]).exit_code == 0
        text = Reader(output.read_text()).text
        for each in told:
            assert each in text, each


@pytest.mark.parametrize("arguments", [[], ["data", "--usage", "."]])
def test_a_report_is_made_of_one_thing_or_the_other(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["spark", "report", *arguments])
    assert result.exit_code == 2
    assert "Give metering files" in result.output


def test_a_reconciliation_that_is_none_is_told_before_spark_is_started(tmp_path: Path) -> None:
    kept = write_result(outage(), tmp_path / "bill", outage().bill(PriceBook([load_prices()])))
    metered = tmp_path / "00000001.jsonl"
    metered.touch()
    result = CliRunner().invoke(main, ["spark", "report", str(metered), "--reconciliation", str(kept)])
    assert result.exit_code == 2
    assert "no result of `tandembus spark reconcile --json`" in " ".join(result.stderr.split())
    assert "starting Spark" not in result.stderr


def test_metering_files_need_a_session(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="session"):
        run_report(None, ReportOptions(tmp_path / "x.html", paths=("data",)))
    with pytest.raises(InvalidArgument, match="one of them"):
        ReportOptions(tmp_path / "x.html")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON"),
        ("[]", "no result"),
        ('{"entities": 3}', "no result"),
        ('{"entities": []}', "no verdict"),
        ('{"verdict": "fine", "entities": []}', "no verdict"),
        ('{"verdict": ["well"], "entities": []}', "no verdict"),
        ('{"verdict": "well", "entities": [3]}', "expected to be objects"),
        ('{"verdict": "well", "entities": [{"entity": "orders", "lost": "3"}]}', "lost of 'orders' is no count"),
        ('{"verdict": "well", "entities": [{"entity": "orders", "lost": -3}]}', "is no count"),
    ],
)
def test_another_file_is_no_reconciliation(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "reconciled.json"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match=reason):
        read_reconciliation(file)
