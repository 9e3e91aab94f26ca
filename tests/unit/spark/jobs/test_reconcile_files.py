"""Which files are an audit's, and which of them were not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tandembus.spark.jobs.reconcile_files import address_of, audit_roots, unread_files
from tests.covers import covers


@covers("D5")
def test_where_there_are_folders_of_audits_all_else_is_something_else() -> None:
    data = ["/d/audit/store-0/1.jsonl", "/d/audit/store-1/1.jsonl.gz", "/d/meter/1.jsonl", "/d/store/data.mdb"]
    assert audit_roots("/d", data) == {"/d/audit": data[:2]}
    assert audit_roots("/", ["/d/audit/1.jsonl", "/e/audit/1.jsonl", "/e/2.jsonl"]) == {
        "/d/audit": ["/d/audit/1.jsonl"],
        "/e/audit": ["/e/audit/1.jsonl"],
    }


@covers("D5")
def test_an_audit_folder_or_a_file_of_it_stands_for_itself() -> None:
    assert audit_roots("/d/audit", ["/d/audit/1.jsonl", "/d/audit/store-0/2.jsonl", "/d/audit/_x/3.jsonl"]) == {
        "/d/audit": ["/d/audit/1.jsonl", "/d/audit/store-0/2.jsonl"]
    }
    assert audit_roots("/d/audit/1.jsonl", ["/d/audit/1.jsonl"]) == {"/d/audit/1.jsonl": ["/d/audit/1.jsonl"]}
    assert audit_roots("/d", ["/d/store/data.mdb"]) == {}


@covers("D5")
def test_a_file_that_was_not_read_is_told_unless_it_is_the_oldest_of_its_store() -> None:
    listed = dict.fromkeys([f"/{store}/{number}.jsonl" for store in "abc" for number in range(1, 5)], 10)
    read = {"/a/3.jsonl", "/a/4.jsonl", "/a/5.jsonl", "/b/1.jsonl", "/b/3.jsonl"}
    everything_of_c = [name for name in listed if name.startswith("/c/")]
    assert unread_files(listed, read) == ["/b/2.jsonl", "/b/4.jsonl", *everything_of_c]
    assert unread_files({"/d/1.jsonl": 0}, ()) == [], "there was nothing to be read"


@covers("D5")
def test_a_path_of_this_machine_is_looked_for_here_whatever_spark_takes_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data[1]").mkdir()
    monkeypatch.chdir(tmp_path)
    assert address_of("data[1]") == f"file:{tmp_path}/data[1]"
    for elsewhere in (f"file:{tmp_path}", "hdfs://archive/audit"):
        assert address_of(elsewhere) == elsewhere
