"""What a reconciliation says to people, and what verdict it comes to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from tandembus.cli.spark_reconcile import COLUMNS, namespaces_to_browse, show
from tandembus.security.key_file import ensure_key
from tandembus.spark.jobs.reconcile_judging import SUMS
from tandembus.spark.jobs.reconcile_result import ReconcileResult, Verdict
from tests.covers import covers

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def result(exceptions: list[dict[str, Any]] | None = None, **figures: int) -> ReconcileResult:
    row = {"namespace": "contoso", "entity": "orders", **dict.fromkeys(SUMS, 0), **figures}
    listed = exceptions or []
    return ReconcileResult([row], listed, len(listed) + 30, NOW, 2, 3)


@covers("D5")
@pytest.mark.parametrize(
    ("found", "verdict", "exactly_once"),
    [
        (result(accepted=5, settled=5), Verdict.WELL, Verdict.WELL),
        (result(duplicate=1), Verdict.WELL, Verdict.FAILED),
        (result(lost=1), Verdict.FAILED, Verdict.FAILED),
        (result(phantom=1, unjudged=1), Verdict.FAILED, Verdict.FAILED),
        (result(unjudged=1), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "missing_records"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "damaged_file"}], duplicate=1), Verdict.INCOMPLETE, Verdict.FAILED),
        (result([{"kind": "unread_file"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "unrecorded"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "missing_store"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "unknown_end"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "completeness_unknown"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "paused"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "unreached"}]), Verdict.INCOMPLETE, Verdict.INCOMPLETE),
        (result([{"kind": "late"}], late=1), Verdict.WELL, Verdict.WELL),
    ],
)
def test_a_verdict_is_well_only_where_all_could_be_judged(
    found: ReconcileResult, verdict: Verdict, exactly_once: Verdict
) -> None:
    assert found.verdict() is verdict
    assert found.verdict(exactly_once=True) is exactly_once
    assert found.document(exactly_once=True)["verdict"] == exactly_once.value


@covers("D5")
def test_people_are_told_what_could_not_be_judged_and_where_messages_were(capsys: pytest.CaptureFixture[str]) -> None:
    place = {"namespace": "contoso", "entity": "orders", "sequence_number": 7, "state": "lost"}
    message = {"entity": "orders", "message_id": "a", "count": 1, "first_at": None, "settled_at": None}
    exceptions: list[dict[str, Any]] = [
        {"kind": "missing_records", "namespace": "contoso", "store": "ab", "index": 0, "count": 2},
        {"kind": "missing_store", "namespace": "contoso", "index": 1},
        {
            "kind": "unknown_end",
            "namespace": "contoso",
            "store": "ab",
            "index": 0,
            "number": 7,
            "at": "2026-11-16T00:00:00.000Z",
        },
        {"kind": "completeness_unknown", "namespace": "contoso", "store": "cd", "index": None},
        {"kind": "paused", "namespace": "contoso", "store": "ef", "index": 0, "count": 1},
        {"kind": "damaged_file", "file": "audit/1.jsonl", "count": 1},
        {"kind": "unread_file", "file": "audit/2.jsonl"},
        {"kind": "unrecorded", "namespace": "localhost"},
        {"kind": "unreached", "namespace": "contoso", "entity": "orders", "fragment": 3, "reason": "it is out"},
        {"kind": "unreached", "namespace": "contoso", "entity": "news", "fragment": None, "reason": "not found"},
        {"kind": "lost", **message, "places": [place]},
        {"kind": "unknown_outcome", **message, "places": []},
    ]
    show(result(exceptions), "folder", exactly_once=False)
    told = " ".join(capsys.readouterr().out.split())
    for sentence in (
        "nothing is proven: something is missing, or could not be judged",
        "missing records: 2 of store 0 (ab) of contoso",
        "no records of messaging store 1 of contoso: give its folder audit/store-1, too",
        "unknown end: the records of store 0 (ab) of contoso stop at number 7 (2026-11-16T00:00:00.000Z)",
        "completeness unknown: the records of store (cd) of contoso are of an earlier version",
        "interrupted: store 0 (ef) of contoso was open without an audit, or put back from a copy, 1 time",
        "damaged: 1 line of audit/1.jsonl",
        "not read: audit/2.jsonl",
        "no records of localhost, which a backlog is held for: give its data folder, too.",
        "give them names (`tandembus serve --name`)",
        "not browsed: orders fragment 3 of contoso: it is out",
        "not browsed: news of contoso: not found",
        "lost: orders a (orders 7 lost)",
        "unknown outcome: orders a (no record)",
        "and 30 more exceptions: all of them in folder/exceptions",
        "2 lines could not be read and did not count",
        "3 lines of the sender's record said nothing that could be compared",
    ):
        assert sentence in told
    assert all(name in SUMS for name in COLUMNS)


@covers("D5")
def test_that_json_is_bounded_is_told_with_where_all_exceptions_are(capsys: pytest.CaptureFixture[str]) -> None:
    show(result(), None, exactly_once=False)
    told = " ".join(capsys.readouterr().out.split())
    assert "all of them with --output FOLDER; --json has as many as --exceptions says" in told


@covers("D5")
def test_what_is_to_be_browsed_is_by_default_what_up_keeps_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=r"no namespace in \./tandembus-data or \./tandembus-data-secondary"):
        namespaces_to_browse(None, None)
    for place, folder in enumerate(("tandembus-data", "tandembus-data-secondary")):
        facts = {"name": folder, "host": "localhost", "amqp_port": 1000 + place, "amqps_port": None, "http_port": 1}
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "namespace.json").write_text(json.dumps(facts))
        ensure_key(tmp_path / folder)
    primary, secondary = namespaces_to_browse(None, None)
    assert ("localhost:1000" in primary, "localhost:1001" in secondary) == (True, True)
    assert namespaces_to_browse(primary, None) == [primary]
