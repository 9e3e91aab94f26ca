"""What of the usage job is plain Python: which files are meant, steps of time, its result as JSON, its tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.cli.failures import WRONG_USAGE
from tandembus.cli.spark_usage import show_bill
from tandembus.errors import InvalidArgument
from tandembus.metering.bills import PriceBook, Used
from tandembus.metering.price_files import list_text, load_prices, parse_prices, shipped_lists
from tandembus.metering.price_texts import prices_text
from tandembus.spark.jobs.report import render_report
from tandembus.spark.jobs.usage import MAX_LINES, MAX_STEPS, UsageOptions, check_bound, step_for
from tandembus.spark.jobs.usage_files import is_local, local_files, of_the_meter, shown_name
from tandembus.spark.jobs.usage_result import (
    Earlier,
    Gap,
    Kept,
    Point,
    SkippedLine,
    UsageResult,
    bill_document,
    from_document,
    read_kept,
    read_result,
    to_document,
    write_result,
)
from tests.covers import covers

BOOK = PriceBook([load_prices()])
DAY = date(2026, 11, 16)
NOON = 1_794_830_400
BACKLOG = "contoso/x-servicebus-transfer/0"


def used(namespace: str, entity: str, operation: str, reason: str, count: int, units: int = 1) -> Used:
    return Used(namespace, entity, operation, reason, DAY, count, count, count * units, 100 * count)


RESULT = UsageResult(
    files=2,
    records=6,
    period=(NOON, NOON + 90),
    used=(
        used("contoso", "orders", "send", "normal", 10),
        used("contoso", "", "manage", "normal", 1),
        used("contoso", "orders\x1b[2J", "send", "syphon", 5, 2),
        used("backup", BACKLOG, "send", "failover", 6, 2),
        used("backup", BACKLOG, "receive", "syphon", 5, 2),
        used("backup", BACKLOG, "complete", "syphon", 5),
    ),
    step_s=1,
    points=(Point(NOON, "contoso", "send", "normal", 10, 10, 1000),),
    gaps=(Gap("contoso", NOON + 20, NOON + 30),),
    skipped=2,
    skipped_files=(("/data/meter/00000001.jsonl", 2),),
    skipped_lines=(SkippedLine("/data/meter/00000001.jsonl", 7), SkippedLine("/data/meter/00000001.jsonl", 9)),
    earlier=(Earlier("contoso", "send", "normal", 3, 3, 3, 30),),
)


@covers("D4")
def test_a_result_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    path = write_result(RESULT, tmp_path / "bill")
    assert read_result(path) == read_result(tmp_path / "bill") == RESULT


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1}', json.dumps({**to_document(RESULT), "used": [{}]})]
)
def test_another_file_is_no_result(text: str, tmp_path: Path) -> None:
    file = tmp_path / "usage.json"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match=r"usage"):
        read_result(file)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_result(tmp_path / "none.json")


def test_figures_in_a_result_are_whole_numbers() -> None:
    with pytest.raises(InvalidArgument):
        from_document({**to_document(RESULT), "records": 1.5})


@covers("D4")
def test_a_bill_for_programs_has_every_digit() -> None:
    document = bill_document(RESULT, RESULT.bill(BOOK))
    assert json.loads(json.dumps(document)) == document
    assert document["total"] == {
        "operations": 48,
        "charged": 48,
        "operations_cost": "0.00003840",
        "base_hours": 1,
        "base_cost": "0.0135",
        "cost": "0.01353840",
    }
    failover = document["failover"]
    assert isinstance(failover, dict)
    assert (failover["messages_diverted"], failover["messages_home"], failover["messages_waiting"]) == (6, 5, 1)
    assert failover["further_operations"] == 12 + 10 + 5


@covers("D4")
def test_a_result_is_kept_with_its_prices_and_other_operations(tmp_path: Path) -> None:
    later = tmp_path / "later.toml"
    later.write_text(list_text("us").replace("2026-11-15", "2027-01-01").replace('"us"', '"o\\"urs \\u007f"'))
    book = PriceBook([load_prices(), load_prices(str(later))])
    write_result(RESULT, tmp_path / "bill", RESULT.bill(book, 0))
    later.unlink()
    kept = read_kept(tmp_path / "bill")
    assert kept.book is not None
    assert (kept.result, kept.book.lists, kept.others) == (RESULT, book.lists, 0)
    write_result(RESULT, tmp_path / "bill")
    assert read_kept(tmp_path / "bill") == Kept(RESULT)


@pytest.mark.parametrize("changed", [{"prices": "us"}, {"prices": ["name = 3"]}, {"other_operations": "0"}])
def test_damaged_prices_of_a_result_are_told(changed: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "usage.json").write_text(json.dumps({**to_document(RESULT), **changed}))
    with pytest.raises(InvalidArgument, match=r"usage\.json: "):
        read_kept(tmp_path)


@pytest.mark.parametrize("name", shipped_lists())
def test_a_price_list_is_the_same_after_it_was_kept(name: str) -> None:
    prices = load_prices(name)
    assert parse_prices(prices_text(prices), name) == prices
    bare = replace(prices, premium=None, standard=replace(prices.standard, base_per_month=None, connections=()))
    assert parse_prices(prices_text(bare), name) == bare


@covers("D4")
def test_the_four_charges_are_shown_also_where_one_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The syphon on Spark receives nothing from the backlog."""
    looked_at = [each for each in RESULT.used if each.operation != "receive"]
    rows = (*looked_at, used("backup", BACKLOG, "peek", "syphon", 5, 2))
    result = UsageResult(1, 6, (NOON, NOON), rows, 1, ())
    show_bill(result, result.bill(BOOK), rows=2)
    shown = capsys.readouterr().out
    line = next(each for each in shown.splitlines() if "2 receive from the backlog" in each)
    assert line.split()[5:] == ["-", "0", "-", "0.00"]
    assert "what line 2 would be stands under peeks" in shown
    page = render_report(result, result.bill(BOOK), None, "A report")
    assert "2 receive from the backlog" in page
    assert "what line 2 would be stands under peeks" in page
    assert "charged four times" not in page


@covers("D4")
def test_a_bill_for_people_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    show_bill(RESULT, RESULT.bill(BOOK), rows=2)
    shown = capsys.readouterr().out
    for text in (
        "2 lines could not be read",
        "/data/meter/00000001.jsonl, line 7",
        "contoso: a process was killed",
        "2026-11-16 12:00:20 and 2026-11-16 12:00:30",
        "3 operations were counted in files that are not here",
        "1 send to the backlog",
        "1 message sent to the backlog and not home yet",
        "others",
        "base charge, 1 hour",
    ):
        assert text in shown
    assert "\x1b" not in shown


def test_a_bill_of_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    empty = UsageResult(1, 0, None, (), 1, ())
    show_bill(empty, empty.bill(BOOK), rows=2)
    assert "nothing was counted" in capsys.readouterr().out


# Files.


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    return path


@covers("D4")
def test_a_data_folder_means_the_meters_of_all_its_processes(tmp_path: Path) -> None:
    wanted = [
        touch(tmp_path / "meter" / "00000001.jsonl"),
        touch(tmp_path / "meter" / "00000002.jsonl.gz"),
        touch(tmp_path / "meter" / "front-end-1" / "00000001.jsonl"),
    ]
    touch(tmp_path / "meter" / "running")
    touch(tmp_path / "audit" / "00000001.jsonl")
    for given in (tmp_path, tmp_path / "meter"):
        assert [each.shown for each in local_files(given)] == [str(each) for each in wanted]
    assert [each.shown for each in local_files(wanted[0])] == [str(wanted[0])]


@covers("D4")
def test_of_a_parent_folder_only_files_of_meters_are_read(tmp_path: Path) -> None:
    wanted = [
        touch(tmp_path / "moved.jsonl"),
        touch(tmp_path / "primary" / "meter" / "00000001.jsonl"),
        touch(tmp_path / "secondary" / "meter" / "front-end-1" / "00000001.jsonl"),
    ]
    touch(tmp_path / "primary" / "audit" / "store-0" / "00000001.jsonl")
    touch(tmp_path / "secondary" / "audit" / "store-0" / "00000001.jsonl")
    touch(tmp_path / "secondary" / "00000001.jsonl")
    assert [each.shown for each in local_files(tmp_path)] == [str(each) for each in wanted]


def test_the_audit_is_not_taken_for_a_meter_that_has_no_files_yet(tmp_path: Path) -> None:
    touch(tmp_path / "audit" / "00000001.jsonl")
    (tmp_path / "meter").mkdir()
    assert local_files(tmp_path) == []


def test_of_an_address_too() -> None:
    wanted = ["hdfs://archive/primary/meter/1.jsonl", "hdfs://archive/secondary/meter/broker-0/1.jsonl"]
    audits = ["hdfs://archive/primary/audit/store-0/1.jsonl", "hdfs://archive/secondary/audit/store-0/1.jsonl"]
    assert of_the_meter([*audits, *wanted]) == wanted
    assert of_the_meter(["s3a://meter/moved/1.jsonl"]) == ["s3a://meter/moved/1.jsonl"]


def test_names_are_no_patterns_for_spark(tmp_path: Path) -> None:
    file = touch(tmp_path / "a[b]*" / "00000001.jsonl")
    found = local_files(tmp_path / "a[b]*")
    assert [each.shown for each in found] == [str(file)]
    assert found[0].spark_name.endswith(r"a\[b\]\*/00000001.jsonl")


def test_addresses_are_told_apart_from_paths(tmp_path: Path) -> None:
    assert is_local(str(tmp_path))
    assert not is_local("hdfs://archive/meter")
    assert is_local(str(tmp_path / "none"))
    assert shown_name("file:///a%20b/c.jsonl") == "/a b/c.jsonl"
    assert shown_name("s3a://a/b.jsonl") == "s3a://a/b.jsonl"


def test_a_job_needs_files() -> None:
    with pytest.raises(InvalidArgument, match="no metering files are given"):
        UsageOptions(())


def test_a_bill_that_the_driver_could_not_hold_is_refused() -> None:
    check_bound(MAX_LINES)
    with pytest.raises(InvalidArgument, match=r"1,000,001 lines.*give fewer files at a time"):
        check_bound(MAX_LINES + 1)


# Time.


@pytest.mark.parametrize(
    ("span_s", "grain_s", "step_s"),
    [(1, 1, 1), (240, 1, 1), (241, 1, 2), (90, 60, 60), (86_400, 1, 600), (30 * 86_400, 60, 14_400)],
)
def test_time_is_told_in_few_enough_steps(span_s: int, grain_s: int, step_s: int) -> None:
    assert step_for((NOON, NOON + span_s - 1), grain_s) == step_s


def test_even_millennia_are_told_in_few_enough_steps() -> None:
    assert 253_402_300_799 // step_for((0, 253_402_300_799), 1) <= MAX_STEPS
    assert step_for(None, 1) == 1


# The command line, as far as it does without Spark.


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing argument"),
        (["x", "--prices", "nowhere.toml"], "neither one of our price lists"),
        (["x", "--prices", "us", "--prices", "us"], "same date"),
        (["x", "--prices", "us", "--prices", "china"], "same date|different currencies"),
        (["x", "--other-operations", "-1"], "not in the range"),
    ],
)
def test_wrong_usage_is_told_before_spark_is_started(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(main, ["spark", "usage", *arguments])
    assert result.exit_code == 2
    assert any(each in result.output for each in reason.split("|"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["usage", "nosuch"],
        ["usage", ".", "nosuch"],
        ["report", "nosuch"],
        ["reconcile", "nosuch"],
        ["reconcile", ".", "--sends", "nosuch"],
    ],
)
def test_a_path_with_nothing_at_it_is_told_before_spark_is_started(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["spark", *arguments])
    assert result.exit_code == WRONG_USAGE
    assert "nosuch: there is no such folder or file" in result.stderr
    assert "starting Spark" not in result.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [("usage", "no metering files"), ("report", "no metering files"), ("reconcile", "no audit files")],
)
def test_a_folder_without_the_files_of_a_job_is_told_before_spark_is_started(
    command: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("of something else")
    result = CliRunner().invoke(main, ["spark", command, str(tmp_path)])
    assert result.exit_code == WRONG_USAGE
    assert told in " ".join(result.stderr.split())
    assert "starting Spark" not in result.stderr


@covers("D4")
def test_a_bill_of_the_primary_alone_says_that_the_meter_of_the_backlog_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = replace(RESULT, used=tuple([each for each in RESULT.used if each.namespace == "contoso"]))
    for result, is_missing in ((alone, True), (RESULT, False)):
        bill = result.bill(BOOK)
        show_bill(result, bill, 10)
        told = " ".join(capsys.readouterr().out.split())
        failover = bill_document(result, bill)["failover"]
        assert isinstance(failover, dict)
        page = " ".join(render_report(result, bill, None, "x").split())
        text = "5 messages came home, and of those sent to the backlog only 0 are in these records"
        assert [text in each for each in (told, str(failover["missing"]), page)] == [is_missing] * 3


@covers("D6")
@pytest.mark.parametrize("master", [["--master", "spark://nobody:7077"], ["--conf", "spark.master=yarn"]])
@pytest.mark.parametrize(
    "arguments",
    [
        ["usage", "HERE"],
        ["report", "HERE"],
        ["reconcile", "HERE"],
        ["reconcile", "file:///there", "--output", "HERE"],
        ["reconcile", "file:///there", "--sends", "HERE"],
        ["capture", "orders", "--output", "HERE"],
        ["capture", "orders", "--output", "file:///there", "--checkpoint", "HERE"],
        ["capture", "--compact", "HERE", "--output", "file:///there"],
    ],
)
def test_files_of_this_machine_alone_are_neither_read_nor_written_by_a_cluster(
    arguments: list[str], master: list[str], tmp_path: Path
) -> None:
    given = [str(tmp_path) if each == "HERE" else each for each in arguments]
    result = CliRunner().invoke(main, ["spark", *given, *master])
    assert result.exit_code == WRONG_USAGE
    assert f"file://{tmp_path.resolve()} if they are at that place on each" in " ".join(result.stderr.split())


def test_lists_by_date_make_one_bill(tmp_path: Path) -> None:
    later = tmp_path / "later.toml"
    later.write_text(list_text("us").replace("2026-11-15", "2027-01-01"))
    made = RESULT.bill(PriceBook([load_prices(), load_prices(str(later))]))
    assert [each.as_of for each in made.book.lists] == [date(2026, 11, 15), date(2027, 1, 1)]
