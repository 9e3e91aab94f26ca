"""The reconciliation finds what was planted, and finds nothing where nothing was."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.reconcile import ReconcileOptions, run_reconcile
from tandembus.spark.jobs.reconcile_in_flight import InFlight
from tandembus.spark.jobs.reconcile_result import ReconcileResult
from tests.covers import covers
from tests.spark.audit_writing import WrittenAudit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACKLOG = "contoso/x-servicebus-transfer/0"


def entity(result: ReconcileResult, name: str) -> dict[str, int]:
    """Its counts, but for those that are 0."""
    row: dict[str, Any] = dict(next(one for one in result.entities if one["entity"] == name))
    return {key: value for key, value in row.items() if key not in ("entity", "is_balanced") and value}


def found(result: ReconcileResult, kind: str) -> list[tuple[str, str]]:
    return [(one["entity"], one["message_id"]) for one in result.exceptions if one["kind"] == kind]


@covers("D5")
def test_planted_losses_duplicates_and_phantoms_are_found_and_named(spark: SparkSession, tmp_path: Path) -> None:
    primary = WrittenAudit(tmp_path / "primary" / "audit" / "store-0")
    secondary = WrittenAudit(tmp_path / "secondary" / "audit" / "store-0", "fabrikam", "cd")
    primary.line("began", "orders", {"numbers": [1], "counts": [0]})
    # A message that went well, one pending, one dead-lettered, one expired, one damaged.
    well, _, dead, expired, damaged = primary.take("orders", "well", "pending", "dead", "expired", "damaged")
    primary.leave("orders", well)
    primary.leave("orders", dead, kind="dead_lettered")
    primary.take("orders/$deadletterqueue", "dead", kind="dead_letter")
    primary.leave("orders", expired, kind="expired")
    primary.leave("orders", damaged, kind="damaged")
    # By way of the backlog: one that came home, one that did not, one that came twice, one dropped as a duplicate.
    home, away, twice, doubt = secondary.take(BACKLOG, "home", "away", "twice", "doubt", path="Orders")
    (direct,) = primary.take("orders", "doubt")
    arrivals = primary.take("orders", "home", "twice", "twice")
    primary.take("orders", "doubt", kind="duplicate")
    secondary.leave(BACKLOG, home, away, twice, doubt)
    primary.leave("orders", *arrivals, direct)
    # One settled twice, one settled that nobody sent, one id that the sender used twice.
    (again,) = primary.take("orders", "again")
    primary.leave("orders", again)
    primary.leave("orders", again)
    primary.leave("orders", 4711)
    primary.leave("orders", *primary.take("orders", "reused", "reused"))
    # A scheduled message and a cancelled one; a topic's message.
    later, never = primary.take("orders", "later", "never", kind="scheduled")
    primary.leave("orders", later, kind="left")
    primary.take("orders", "later", kind="activated")
    primary.leave("orders", never, kind="cancelled")
    primary.take("news", "n1", kind="published")
    primary.take("news/Subscriptions/all", "n1", kind="copied")
    # The same lines twice, and one that is torn.
    primary.line("accepted", "other", {"numbers": [1], "ids": ["once"]}, repeats=2)
    primary.text('{"audit":1,"names')

    (tmp_path / "mine").write_text("of somebody else's")

    result = run_reconcile(
        spark, ReconcileOptions([str(tmp_path / "primary"), str(tmp_path / "secondary")], output=str(tmp_path))
    )
    assert (tmp_path / "mine").exists()
    assert entity(result, "orders") == {
        "accepted": 14,
        "settled": 8,
        "pending": 2,
        "dead_lettered": 1,
        "expired": 1,
        "lost": 2,
        "phantom": 1,
        "duplicate": 2,
        "reused": 1,
        "dropped_as_duplicate": 1,
    }
    assert entity(result, "orders/$deadletterqueue") == {"accepted": 1, "pending": 1}
    assert entity(result, "news") == {"accepted": 1, "settled": 1}
    assert entity(result, "news/Subscriptions/all") == {"accepted": 1, "pending": 1}
    assert entity(result, "other") == {"accepted": 1, "pending": 1}
    assert all(one["is_balanced"] for one in result.entities)
    assert found(result, "lost") == [("orders", "away"), ("orders", "damaged")]
    assert found(result, "phantom") == [("orders", "#4711")]
    assert found(result, "duplicate") == [("orders", "again"), ("orders", "twice")]
    assert found(result, "reused") == [("orders", "reused")]
    assert result.skipped_count == 1
    assert not result.is_well()
    kept = [json.loads(line) for path in (tmp_path / "exceptions").glob("*.json") for line in path.open()]
    assert len(kept) == result.exception_count == len(result.exceptions)
    assert json.loads(json.dumps(result.document()))["cut_off"].startswith("2023-11-14T22:1")


@covers("D5", "N15")
def test_late_reordered_unknown_and_unrecorded_sends_are_classes_of_their_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    primary = WrittenAudit(tmp_path / "primary")
    secondary = WrittenAudit(tmp_path / "secondary", "fabrikam", "cd")
    # "first" waits in the backlog while "second" of the same session is sent to the primary.
    (waiting,) = secondary.take(BACKLOG, "first", session="s", path="orders")
    primary.now_ms = secondary.now_ms
    (second,) = primary.take("orders", "second", session="s")
    primary.now_ms += 600_000
    (first,) = primary.take("orders", "first", session="s")
    secondary.leave(BACKLOG, waiting)
    primary.leave("orders", second, first)
    # Lines of a store whose oldest file is gone, and of one that began with messages: no phantoms.
    primary.line("began", "old", {"numbers": [9], "counts": [3]})
    primary.leave("old", 7)
    rolled = WrittenAudit(tmp_path / "rolled", store="ef")
    rolled.record = 100
    rolled.leave("orders", 12)
    sends = [("orders", "first", "accepted"), ("orders", "gone", "accepted"), ("orders", "doubt", "unknown")]
    (tmp_path / "sends.jsonl").write_text(
        "".join(json.dumps({"entity": e, "message_id": i, "outcome": o}) + "\n" for e, i, o in sends)
    )
    primary.take("orders", "after the cut-off")
    cut_off = datetime.fromtimestamp((primary.now_ms - 500) / 1000, timezone.utc)
    folders = [str(tmp_path / name) for name in ("primary", "secondary", "rolled")]
    options = ReconcileOptions(folders, cut_off, late_after_s=500.0, sends=str(tmp_path / "sends.jsonl"))
    result = run_reconcile(spark, options)
    assert entity(result, "orders") == {
        "accepted": 3,
        "settled": 2,
        "lost": 1,
        "late": 2,
        "reordered": 1,
        "unknown_outcome": 1,
        "before_audit": 1,
    }
    assert entity(result, "old") == {"before_audit": 1}
    assert found(result, "reordered") == [("orders", "second")]
    assert found(result, "lost") == [("orders", "gone")]
    assert found(result, "unknown_outcome") == [("orders", "doubt")]
    assert all(one["is_balanced"] for one in result.entities)


@covers("D5")
def test_browsing_finds_what_no_record_tells_and_a_missing_record_proves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    audit = WrittenAudit(tmp_path)
    audit.leave("orders", *audit.take("orders", "a"))
    audit.record += 2
    (here, _) = audit.take("orders", "here", "gone")
    audit.take("elsewhere", "not looked for")
    rows = [("Orders", here, "here", audit.now_ms), ("Orders", 4711, "ghost", audit.now_ms)]
    result = run_reconcile(spark, ReconcileOptions([str(tmp_path)], in_flight=InFlight(rows, ["orders"])))
    assert entity(result, "orders") == {"accepted": 3, "settled": 1, "pending": 1, "lost": 1, "phantom": 1}
    assert entity(result, "elsewhere") == {"accepted": 1, "pending": 1}
    assert found(result, "lost") == [("orders", "gone")]
    assert found(result, "phantom") == [("orders", "ghost")]
    missing = {"kind": "missing_records", "namespace": "contoso", "store": "ab", "count": 2}
    assert result.exceptions[0] == missing
    assert result.missing_records


@covers("D5")
def test_what_is_no_audit_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("no audit\n")
    with pytest.raises(InvalidArgument, match="served with --audit"):
        run_reconcile(spark, ReconcileOptions([str(tmp_path)]))
    with pytest.raises(InvalidArgument, match="no folder or file"):
        run_reconcile(spark, ReconcileOptions([str(tmp_path / "nowhere")]))
