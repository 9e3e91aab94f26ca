"""Audit records as files: whole pages, each once, whatever a crash leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.message import parse_message
from tandembus.store.audit_files import AuditFiles
from tandembus.store.audit_trail import ACCEPTED, COMPLETED, AuditTrail, page_of
from tandembus.store.messaging_store import AuditPage
from tests.covers import covers

MARKS = ("stream", "rolled", "ended")
STORE = bytes(range(16))
NOW_MS = 1_700_000_000_000


def page(number: int, count: int = 2) -> AuditPage:
    """So many messages accepted, the first of them completed."""
    trail = AuditTrail()
    trail.name(7, 3, "orders")
    for index in range(1, count + 1):
        message = parse_message(properties_section(f"{number}-{index}", group_id="s") + data_section(b"x"))
        trail.opens(ACCEPTED, 7, 0, number * 100 + index, message, 0, False)
    trail.closes(COMPLETED, 7, 0, number * 100 + 1, 2)
    return AuditPage(number, 5, NOW_MS, page_of([trail]))


def files(folder: Path, file_bytes: int = 1 << 20, file_count: int = 4) -> AuditFiles:
    return AuditFiles(folder, "contoso", file_bytes, file_count)


def all_lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def lines(folder: Path) -> list[dict[str, object]]:
    """Those of pages."""
    return [line for line in all_lines(folder) if line["kind"] not in MARKS]


def marks(folder: Path) -> list[tuple[object, object]]:
    return [(line["kind"], line["number"]) for line in all_lines(folder) if line["kind"] in MARKS]


@covers("D5")
def test_a_line_has_all_messages_to_which_the_same_happened(tmp_path: Path) -> None:
    files(tmp_path).append(STORE, [page(1)])
    accepted, completed = lines(tmp_path)
    assert accepted == {
        "audit": 2,
        "namespace": "contoso",
        "store": STORE.hex(),
        "number": 1,
        "part": 0,
        "parts": 2,
        "at": NOW_MS,
        "epoch": 5,
        "kind": "accepted",
        "fragment": 7,
        "lane": 0,
        "entity": "orders",
        "numbers": [3 << 48 | 101, 3 << 48 | 102],
        "ids": ["1-1", "1-2"],
        "sessions": ["s", "s"],
    }
    assert completed["kind"] == "completed"
    assert completed["numbers"] == [3 << 48 | 101]
    assert completed["counts"] == [2]


@covers("D5")
def test_a_page_without_entries_keeps_its_number(tmp_path: Path) -> None:
    files(tmp_path).append(STORE, [AuditPage(1, 5, NOW_MS, b""), page(2)])
    assert [line["number"] for line in lines(tmp_path)] == [1, 2, 2]
    assert files(tmp_path).last_number(STORE) == 2


@covers("D5")
def test_a_page_of_which_a_part_was_written_is_cut_off_and_written_again(tmp_path: Path) -> None:
    first = files(tmp_path)
    first.append(STORE, [page(1), page(2)])
    first.finish(STORE, 2)
    path = tmp_path / "00000001.jsonl"
    whole = path.read_bytes()
    written = lines(tmp_path)
    for size_bytes in range(len(whole) + 1):
        path.write_bytes(whole[:size_bytes])
        again = files(tmp_path)
        last = again.last_number(STORE)
        assert b'"kind":"ended"' not in path.read_bytes(), "it goes on, so this is not the end"
        if last < 2:
            again.append(STORE, [page(number) for number in (1, 2) if number > last])
        assert lines(tmp_path) == written


@covers("D5")
def test_files_are_rolled_and_the_oldest_give_way(tmp_path: Path) -> None:
    rolled = files(tmp_path, file_bytes=1, file_count=2)
    for number in range(1, 6):
        rolled.append(STORE, [page(number)])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["00000004.jsonl", "00000005.jsonl"]
    assert marks(tmp_path) == [("stream", 3), ("rolled", 4), ("stream", 4), ("rolled", 5)]
    assert [line["trimmed"] for line in all_lines(tmp_path) if line["kind"] == "stream"] == [2, 3]
    assert rolled.last_number(STORE) == 5


@covers("D5")
def test_files_say_which_store_they_are_of_and_where_they_end(tmp_path: Path) -> None:
    one = AuditFiles(tmp_path, "contoso", 1 << 20, 4, index=1, store_count=3)
    one.append(STORE, [page(1)])
    one.append(STORE, [page(2)])
    one.finish(STORE, 2)
    head = {"audit": 2, "namespace": "contoso", "store": STORE.hex()}
    assert all_lines(tmp_path)[0] == {**head, "number": 0, "kind": "stream", "index": 1, "stores": 3, "trimmed": 0}
    assert all_lines(tmp_path)[-1] == {**head, "number": 2, "kind": "ended"}
    again = files(tmp_path)
    assert again.last_number(STORE) == 2
    again.append(STORE, [page(3)])
    assert marks(tmp_path) == [("stream", 0), ("stream", 2)], "opened again, it has no end"
    # Another store in the same place leaves what is known of the first one.
    again.finish(STORE, 3)
    other = files(tmp_path)
    assert other.last_number(bytes(16)) == 0
    other.append(bytes(16), [page(1)])
    assert marks(tmp_path) == [("stream", 0), ("stream", 2), ("ended", 3), ("stream", 0)]


@covers("D5")
def test_records_that_others_have_taken_away_have_not_given_way(tmp_path: Path) -> None:
    def trimmed(number: int, file_count: int = 9) -> object:
        """As a new writer says when it begins."""
        written = files(tmp_path, 1, file_count)
        written.last_number(STORE)
        written.append(STORE, [page(number)])
        return [line["trimmed"] for line in all_lines(tmp_path) if line["kind"] == "stream"][-1]

    assert [trimmed(number) for number in range(1, 5)] == [0, 0, 0, 0]
    (tmp_path / "00000001.jsonl").unlink()
    assert trimmed(5) == 0
    assert trimmed(6, file_count=3) == 3, "the setting has changed"
    assert trimmed(7) == 3
    for path in tmp_path.iterdir():
        path.unlink()
    assert trimmed(8) == 0


@covers("D5")
def test_what_an_earlier_version_has_removed_has_given_way(tmp_path: Path) -> None:
    """It did not say so."""
    files(tmp_path).append(STORE, [page(7)])
    path = tmp_path / "00000001.jsonl"
    path.write_bytes(b"".join([line for line in path.read_bytes().splitlines(keepends=True) if b"stream" not in line]))
    files(tmp_path).append(STORE, [page(8)])
    assert all_lines(tmp_path)[2]["trimmed"] == 6


@covers("D5")
def test_the_numbers_of_another_store_do_not_count(tmp_path: Path) -> None:
    files(tmp_path).append(STORE, [page(3)])
    assert files(tmp_path).last_number(bytes(16)) == 0
    assert files(tmp_path / "nowhere").last_number(STORE) == 0
