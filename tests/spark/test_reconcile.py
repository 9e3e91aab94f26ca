"""The reconciliation finds what was planted, and nothing else; mostly through the command, as people call it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tandembus.cli.failures import FAILED, NOT_PROVEN
from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.reconcile import ReconcileOptions, run_reconcile
from tandembus.spark.jobs.reconcile_files import audit_paths
from tandembus.spark.jobs.reconcile_in_flight import in_flight_of
from tandembus.spark.jobs.reconcile_records import read_listed, read_records
from tests.covers import covers
from tests.spark.audit_histories import BACKLOG, Histories
from tests.spark.audit_writing import WrittenAudit
from tests.spark.reconciling import figures, found, reconciled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@covers("D5")
def test_planted_losses_duplicates_and_phantoms_are_found_and_named(spark: SparkSession, tmp_path: Path) -> None:
    histories = Histories(tmp_path, seed=7)
    for number in range(60):
        histories.play(f"Orders/{number}", 8)
    primary, secondary = histories.primary, histories.secondary
    # Without an id: of three of the backlog, two came home, or one and another was sent there.
    secondary.leave(BACKLOG, *secondary.take(BACKLOG, "", "", "", path="nameless"))
    primary.take("nameless", "", "")
    # Here one may be lost, and another sent there: nobody can tell.
    secondary.leave(BACKLOG, *secondary.take(BACKLOG, "", "", path="doubtful"))
    primary.take("doubtful", "", "")
    # A backlog queue that was deleted before its syphon was done.
    deleted = BACKLOG.replace("/0", "/1")
    secondary.take(deleted, "brought home", "left behind", path="deleted")
    primary.take("deleted", "brought home")
    secondary.drop(deleted)
    # The same name in the other namespace is another entity.
    secondary.leave("Orders/0", *secondary.take("Orders/0", "m1"))
    # Dead letters, a topic's message, a cancelled one, an entity that was deleted.
    primary.take("nameless/$deadletterqueue", "dead", kind="dead_letter")
    primary.take("news", "n1", "n2", kind="published")
    primary.take("news/Subscriptions/all", "n1", kind="copied")
    primary.leave("late", *primary.take("late", "never", kind="scheduled"), kind="cancelled")
    primary.take("doomed", "d")
    primary.drop("doomed")
    # Of one session: "first" waits in the backlog while "second" is sent to the primary.
    (waiting,) = secondary.take(BACKLOG, "first", session="s", path="late")
    primary.now_ms = secondary.now_ms
    (second,) = primary.take("late", "second", session="s")
    primary.now_ms += 600_000
    (first,) = primary.take("late", "first", session="s")
    secondary.now_ms = primary.now_ms
    secondary.leave(BACKLOG, waiting)
    primary.leave("late", second, first)
    # The same line twice, and one that is still being written.
    primary.line("accepted", "other", {"numbers": [1], "ids": ["once"]}, repeats=2)
    primary.stop()
    secondary.stop()
    primary.text('{"audit":1,"names')
    (tmp_path / "mine").write_text("of somebody else's")
    paths = (tmp_path / "primary", tmp_path / "secondary")
    answer = reconciled(FAILED, *paths, "--output", tmp_path, "--late-after", "500s")
    assert answer["verdict"] == "failed"
    for entity, expected in histories.expected.items():
        assert Counter(figures(answer, entity)) == Counter({k: v for k, v in expected.items() if v}), entity
    assert set(found(answer, "lost")) == {*histories.lost, ("nameless", ""), ("deleted", "left behind")}
    assert figures(answer, "nameless") == {"accepted": 3, "pending": 2, "lost": 1}
    assert figures(answer, "doubtful") == {"accepted": 4, "pending": 2, "unjudged": 2}
    assert figures(answer, "deleted") == {"accepted": 2, "pending": 1, "lost": 1}
    assert figures(answer, "nameless/$deadletterqueue") == {"accepted": 1, "pending": 1}
    assert figures(answer, "Orders/0", "fabrikam") == {"accepted": 1, "settled": 1}
    assert figures(answer, "news") == {"accepted": 2, "settled": 2}
    assert figures(answer, "news/Subscriptions/all") == {"accepted": 1, "pending": 1}
    assert figures(answer, "doomed") == {"accepted": 1, "settled": 1}
    assert figures(answer, "late") == {"accepted": 3, "settled": 3, "late": 2, "reordered": 1}
    assert found(answer, "reordered") == [("late", "second")]
    assert figures(answer, "other") == {"accepted": 1, "pending": 1}
    assert answer["skipped_lines"] == 1
    assert (tmp_path / "mine").exists()
    kept = [json.loads(line) for path in (tmp_path / "exceptions").glob("*.json") for line in path.open()]
    assert len(kept) == answer["exception_count"] == len(answer["exceptions"])
    places = {(one["kind"], one["entity"], one["message_id"]): one["places"] for one in kept}
    assert all(places[one["kind"], one["entity"], one["message_id"]] == one["places"] for one in answer["exceptions"])


@covers("D5", "N15")
def test_what_cannot_be_judged_is_neither_lost_nor_well(spark: SparkSession, tmp_path: Path) -> None:
    # The primary's oldest file is gone: what came home may have been in it.
    rolled = WrittenAudit(tmp_path / "rolled", store="ef")
    rolled.record = rolled.trimmed = 100
    rolled.now_ms += 5000
    rolled.leave("orders", 12)
    secondary = WrittenAudit(tmp_path / "secondary", "fabrikam", "cd")
    secondary.leave(BACKLOG, *secondary.take(BACKLOG, "came home?", path="orders"))
    # For a namespace of which there are no records.
    nowhere = BACKLOG.replace("contoso", "nowhere")
    secondary.leave(nowhere, *secondary.take(nowhere, "came home?", path="orders"))
    # A store that was open without an audit in between: "left?" may have left without a record.
    paused = WrittenAudit(tmp_path / "paused", "paused", "aa")
    paused.take("paused", "left?")
    paused.epoch += 2
    paused.line("began", "paused", {"numbers": [9], "counts": [3]})
    paused.leave("paused", 7)
    paused.take("paused", "new")
    # A record of which one part is damaged, another that is missing, and what is settled without its acceptance.
    holed = WrittenAudit(tmp_path / "holed", "holed", "bb")
    holed.take("holed", "a")
    holed.record += 1
    holed.text('{"audit":1,"namespace":"holed","store":"bb","number":3,"part":0,"parts":2,"at":"never"}\n')
    holed.line("completed", "holed", {"numbers": [4]}, parts=2, part=1)
    holed.leave("holed", 5)
    sends = [("orders", "gone", "accepted"), ("orders", "doubt", "unknown"), ("orders", "n", "?")]
    lines = [json.dumps({"entity": entity, "message_id": i, "outcome": o}) + "\n" for entity, i, o in sends]
    (tmp_path / "sends.jsonl").write_text("".join(lines))
    holed.take("holed", "after the cut-off")
    cut_off = datetime.fromtimestamp((holed.now_ms + 60_000) / 1000, UTC)
    late = WrittenAudit(tmp_path / "paused" / "more", "paused", "dd")
    late.now_ms += 600_000
    late.take("paused", "after the cut-off")
    for audit in (rolled, secondary, paused, holed, late):
        audit.stop()
    folders = [tmp_path / name for name in ("rolled", "secondary", "paused", "holed")]
    arguments = ("--sends", tmp_path / "sends.jsonl", "--cut-off", cut_off.isoformat())
    answer = reconciled(NOT_PROVEN, *folders, *arguments)
    assert answer["verdict"] == "incomplete"
    assert figures(answer, "orders") == {"accepted": 2, "unjudged": 2, "unknown_outcome": 1, "before_audit": 1}
    assert figures(answer, "paused", "paused") == {"accepted": 2, "pending": 1, "unjudged": 1, "before_audit": 1}
    assert figures(answer, "holed", "holed") == {"accepted": 2, "unjudged": 2, "before_audit": 2}
    assert found(answer, "unknown_outcome") == [("orders", "doubt")]
    assert figures(answer, "orders", "nowhere") == {"accepted": 1, "unjudged": 1}
    interrupted, missing, damaged, unrecorded = answer["exceptions"][:4]
    assert interrupted == {"kind": "paused", "namespace": "paused", "store": "aa", "index": 0, "count": 1}
    assert unrecorded == {"kind": "unrecorded", "namespace": "nowhere"}
    assert missing == {"kind": "missing_records", "namespace": "holed", "store": "bb", "index": 0, "count": 2}
    assert damaged == {"kind": "damaged_file", "file": str(tmp_path / "holed" / "00000001.jsonl"), "count": 1}
    assert answer["skipped_sends"] == 1


@covers("D5")
def test_where_records_may_be_missing_it_is_named_and_nothing_is_called_well(
    spark: SparkSession, tmp_path: Path
) -> None:
    def audit(namespace: str, index: int = 0, store_count: int = 1) -> WrittenAudit:
        """Of one settled message."""
        folder = tmp_path / namespace / "audit" / f"store-{index}"
        written = WrittenAudit(folder, namespace, f"{namespace}-{index}", index, store_count)
        written.leave("orders", *written.take("orders", "m"))
        return written

    def go_on(written: WrittenAudit) -> None:
        written.leave("orders", *written.take("orders", f"{written.record}"))

    # All of it is there: two stores, one that gave way to the limit, one that was killed and served again, an upgrade.
    audit("whole", 0, 2).stop()
    other = WrittenAudit(tmp_path / "whole" / "audit" / "store-1", "whole", "whole-1", 1, 2)
    other.leave("orders", *other.take("orders", "other"))
    other.stop()
    trimmed = audit("trimmed")
    gone = trimmed.roll()
    trimmed.trimmed = trimmed.record
    go_on(trimmed)
    trimmed.stop()
    gone.unlink()
    killed = audit("killed-and-served")
    killed.epoch += 1
    go_on(killed)
    killed.stop()
    upgraded = WrittenAudit(tmp_path / "upgraded" / "audit", "upgraded", "upgraded-0")
    upgraded.version = 1
    go_on(upgraded)
    upgraded.version, upgraded.epoch = 2, 2
    upgraded.roll()
    go_on(upgraded)
    upgraded.stop()
    answer = reconciled(0, tmp_path)
    assert (answer["verdict"], answer["exceptions"]) == ("well", [])

    # A folder of a store that is not given.
    audit("half", 0, 2).stop()
    # A file that is cut off: the newest, one that was full, one that is compressed.
    path = audit("cut").stop()
    path.write_bytes(path.read_bytes()[:-200])
    cut = audit("cut-between")
    path = cut.roll()
    path.write_bytes(path.read_bytes()[:-200])
    go_on(cut)
    cut.stop()
    path = audit("packed").stop()
    packed = gzip.compress(path.read_bytes(), mtime=0)
    path.with_suffix(".jsonl.gz").write_bytes(packed[:-40])
    path.unlink()
    # A file that is gone: the oldest, the newest.
    for name in ("no-oldest", "no-newest"):
        written = audit(name)
        oldest = written.roll()
        go_on(written)
        newest = written.stop()
        (oldest if name == "no-oldest" else newest).unlink()
    # Killed, or still served; and by a version that has not said where it ends.
    audit("killed")
    older = WrittenAudit(tmp_path / "older" / "audit", "older", "older-0")
    older.version = 1
    go_on(older)
    # What came home may be among what is missing.
    secondary = WrittenAudit(tmp_path / "secondary" / "audit", "secondary", "secondary-0")
    for name in ("half", "killed"):
        backlog = f"{name}/x-servicebus-transfer/0"
        secondary.leave(backlog, *secondary.take(backlog, "came home?", path="orders"))
    secondary.stop()
    # A backlog was held for a namespace that is not given; what was in it was accepted in a file that gave way.
    secondary = WrittenAudit(tmp_path / "emptied" / "audit", "emptied", "emptied-0")
    secondary.record = secondary.trimmed = 100
    secondary.leave("not-given/x-servicebus-transfer/0", 7)
    secondary.stop()
    send = {"entity": "elsewhere", "message_id": "m", "outcome": "accepted"}
    (tmp_path / "sends").write_text(json.dumps(send) + "\n")
    answer = reconciled(NOT_PROVEN, tmp_path, "--sends", tmp_path / "sends")
    lacking = [one for one in answer["exceptions"] if "message_id" not in one]
    assert {(one["kind"], one["namespace"], one.get("index"), one.get("count")) for one in lacking} == {
        ("missing_store", "half", 1, None),
        ("unknown_end", "cut", 0, None),
        ("missing_records", "cut-between", 0, 1),
        ("unknown_end", "packed", 0, None),
        ("missing_records", "no-oldest", 0, 2),
        ("unknown_end", "no-newest", 0, None),
        ("unknown_end", "killed", 0, None),
        ("completeness_unknown", "older", None, None),
        ("unrecorded", "not-given", None, None),
    }
    assert figures(answer, "orders", "half") == {"accepted": 2, "settled": 1, "unjudged": 1}
    assert figures(answer, "orders", "killed") == {"accepted": 2, "settled": 1, "unjudged": 1}
    assert figures(answer, "elsewhere", "") == {"accepted": 1, "unjudged": 1}


@covers("D5")
def test_only_what_records_and_browsing_both_saw_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    audit = WrittenAudit(tmp_path / "audit")
    audit.leave("orders", *audit.take("orders", "a"))
    here, _, left = audit.take("orders", "here", "gone", "left")
    (ghost,) = audit.take("orders", "there again")
    audit.leave("orders", ghost)
    audit.take("elsewhere", "not looked for")
    # Deleted and made again: what is found there is in the new one. "renewed" was deleted while it was browsed.
    audit.leave("again", *audit.take("again", "old"))
    audit.drop("again")
    audit.take("again", "young")
    audit.take("renewed", "old")
    before = read_records(spark, [str(tmp_path / "audit")])
    before.forget()
    seen_until = {store.store: store.last for store in before.stores}
    assert seen_until == {"ab": audit.record}
    # While it was browsed: one left, one came.
    audit.leave("orders", left)
    audit.take("orders", "new")
    audit.drop("renewed")
    audit.take("renewed", "young")
    now = audit.now_ms
    rows = [
        ("contoso", "Orders", here, "here", now),
        ("contoso", "Orders", left, "left", now),
        ("contoso", "Orders", ghost, "there again", now),
        ("contoso", "Orders", 4711, "ghost", now),
        ("contoso", "Orders", 4712, "before the audit", now - 3_600_000),
        ("contoso", "Orders", 1 << 48 | 5, "of an unknown fragment", now),
        ("contoso", "Orders", 4713, "its record is on its way", now + 500),
        ("contoso", "again", 1, "young", now),
        ("contoso", "renewed", 1, "old", now),
    ]
    # The sender was told twice that "a" was accepted, and sent "here" again when it had no answer.
    told = [("a", "accepted"), ("a", "accepted"), ("here", "unknown"), ("here", "accepted"), ("new", "refused")]
    lines = [json.dumps({"entity": "ORDERS", "message_id": i, "outcome": outcome}) + "\n" for i, outcome in told]
    (tmp_path / "sends").write_text("".join(lines))
    browsed = [("contoso", name) for name in ("orders", "again", "renewed")]
    in_flight = in_flight_of(spark, rows, browsed, seen_until)
    options = ReconcileOptions([str(tmp_path / "audit")], in_flight=in_flight, sends=str(tmp_path / "sends"))
    answer = json.loads(json.dumps(run_reconcile(spark, options).document()))
    assert found(answer, "lost") == [("orders", "a"), ("orders", "gone")]
    assert sorted(found(answer, "phantom")) == [
        ("orders", "ghost"),
        ("orders", "new"),
        ("orders", "of an unknown fragment"),
        ("orders", "there again"),
    ]
    assert figures(answer, "orders")["pending"] == 2
    assert figures(answer, "orders")["before_audit"] == 1
    assert figures(answer, "again") == figures(answer, "renewed") == {"accepted": 2, "settled": 1, "pending": 1}
    assert figures(answer, "elsewhere") == {"accepted": 1, "pending": 1}
    assert answer["cut_off"].startswith("2023-11-14T22:1")


@covers("D5")
def test_every_path_has_records_and_every_file_is_read_or_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        store = WrittenAudit(tmp_path / "data[1]" / "audit" / f"store-{number}", store=f"{number}")
        store.take("orders", "a")
    data = str(tmp_path / "data[1]")
    for name in ("notes/meter", "empty/audit"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "notes" / "meter" / "1.jsonl").write_text("no audit\n")
    for name in ("notes", "empty"):
        with pytest.raises(InvalidArgument, match="served with --audit"):
            run_reconcile(spark, ReconcileOptions([data, str(tmp_path / name)]))
    with pytest.raises(InvalidArgument, match="no folder or file"):
        run_reconcile(spark, ReconcileOptions([str(tmp_path / "nowhere")]))
    with pytest.raises(InvalidArgument, match="nofs:/x: cannot be read"):
        run_reconcile(spark, ReconcileOptions(["nofs:/x"]))
    # A file that is gone before a task reads it.
    listed = audit_paths(spark, [f"file:{data}"])
    gone = tmp_path / "data[1]" / "audit" / "store-1" / "00000001.jsonl"
    gone.unlink()
    records = read_listed(spark, listed)
    records.forget()
    assert [store.store for store in records.stores] == ["0"]
    assert records.unread == [str(gone)]
