"""A manifest may come from anywhere: nothing in it is followed before it is checked."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tandembus.clock import ManualClock
from tandembus.node.upkeep.manifest import (
    MANIFEST_FILE,
    BackupError,
    BackupFile,
    Manifest,
    encode_manifest,
    is_inside,
    read_manifest,
)
from tandembus.node.upkeep.restore import restore_backup
from tests.covers import covers

CONTENT = b"content"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SOUND = BackupFile("meter/00000001.jsonl", len(CONTENT), SHA256, 0o600)


def manifest_of(*files: BackupFile) -> Manifest:
    return Manifest("bus", "1.0", 1_700_000_000.0, 1, files)


def backup_with(folder: Path, *files: BackupFile) -> Path:
    """A folder with such a manifest, and the one file that it can name."""
    source = folder / "backup"
    (source / "meter").mkdir(parents=True)
    (source / "meter" / "00000001.jsonl").write_bytes(CONTENT)
    (source / MANIFEST_FILE).write_bytes(encode_manifest(manifest_of(*files)))
    return source


def restored(source: Path, data: Path) -> None:
    restore_backup(source, data, ManualClock(), lambda _total: lambda _done: None)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    source = backup_with(tmp_path, SOUND)
    assert read_manifest(source) == Manifest("bus", "1.0", 1_700_000_000.0, 1, [SOUND])


@covers("F6")
@pytest.mark.parametrize(
    "path",
    [
        "../key",
        "meter/../../key",
        "/etc/passwd",
        "meter//key",
        "./key",
        "",
        ".",
        "..",
        ".hidden",
        "meter/.ssh",
        "a\\b",
        "a\0b",
        "a\nb",
        "x" * 600,
        "meter/",
        MANIFEST_FILE,
    ],
)
def test_no_path_leads_out_of_the_backup(tmp_path: Path, path: str) -> None:
    assert not is_inside(path)
    source = backup_with(tmp_path, BackupFile(path, len(CONTENT), SHA256, 0o600))
    with pytest.raises(BackupError, match="no path below"):
        restored(source, tmp_path / "data")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup"], "nothing is left behind"


@covers("F6")
@pytest.mark.parametrize(
    "values",
    [
        {"size_bytes": -1},
        {"size_bytes": 1 << 60},
        {"size_bytes": "7"},
        {"size_bytes": 7.0},
        {"size_bytes": True},
        {"mode": 0o4755},
        {"mode": -1},
        {"sha256": "0" * 63},
        {"sha256": None},
        {"path": 7},
    ],
)
def test_values_that_make_no_sense_are_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    fields = {"path": SOUND.path, "size_bytes": SOUND.size_bytes, "sha256": SHA256, "mode": 0o600}
    source = backup_with(tmp_path, BackupFile(**{**fields, **values}))
    with pytest.raises(BackupError, match="damaged"):
        read_manifest(source)


@covers("F6")
def test_a_file_larger_than_the_volume_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    source = backup_with(tmp_path, BackupFile(SOUND.path, 1 << 46, SHA256, 0o600))
    with pytest.raises(BackupError, match="are free"):
        restored(source, tmp_path / "data")


@covers("F6")
@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"7", b'{"format": 1}', b'{"format": 2}', b"[" * 100_000, b"\xff", b"null"]
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / MANIFEST_FILE).write_bytes(raw)
    with pytest.raises(BackupError, match="damaged"):
        read_manifest(tmp_path)


@covers("F6")
def test_any_changed_byte_of_a_manifest_is_noticed(tmp_path: Path) -> None:
    source = backup_with(tmp_path, SOUND)
    raw = (source / MANIFEST_FILE).read_bytes()
    before = read_manifest(source)
    for at in range(len(raw)):
        (source / MANIFEST_FILE).write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        try:
            assert read_manifest(source) == before, "only what means nothing may change, such as a blank"
        except BackupError:
            pass


@covers("F6")
def test_a_folder_without_a_manifest_is_no_backup(tmp_path: Path) -> None:
    source = backup_with(tmp_path, SOUND)
    (source / MANIFEST_FILE).unlink()
    with pytest.raises(BackupError, match="never finished"):
        restored(source, tmp_path / "data")


@covers("F6")
def test_links_in_a_backup_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    source = backup_with(tmp_path, SOUND)
    file = source / SOUND.path
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(BackupError, match="cannot be read"):
        restored(source, tmp_path / "data")
    file.unlink()
    (source / "meter").rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "00000001.jsonl").write_bytes(CONTENT)
    (source / "meter").symlink_to(elsewhere)
    with pytest.raises(BackupError, match="cannot be read"):
        restored(source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@covers("F6")
@pytest.mark.parametrize("content", [b"Content", b"conten", b"content."])
def test_a_file_that_is_not_what_was_backed_up_is_refused(tmp_path: Path, content: bytes) -> None:
    source = backup_with(tmp_path, SOUND)
    (source / SOUND.path).write_bytes(content)
    with pytest.raises(BackupError, match=SOUND.path):
        restored(source, tmp_path / "data")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup"]


def test_a_manifest_is_text_that_people_can_read(tmp_path: Path) -> None:
    document = json.loads(encode_manifest(manifest_of(SOUND)))
    assert document["files"] == [
        {"path": SOUND.path, "size_bytes": 7, "sha256": SHA256, "mode": 0o600},
    ]
