"""The volume of the data folder, as the system tells of it and as it behaves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tandembus.cli.diagnosis.disk import SYNCS, examine, file_system, room, syncing
from tandembus.cli.diagnosis.finding import Level
from tandembus.clock import SystemClock
from tandembus.config import Limits, ServeSettings
from tests.unit.cli.diagnosis.told import about, assert_ok, assert_told
from tests.volumes import files_limited_to

ROOT = "/dev/sda1 / ext4 rw,relatime 0 0\n"
KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@dataclass
class SlowClock:
    """Every look at it takes as long as a sync is to take."""

    step_s: float
    at: float = 0.0

    def now(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return int(self.at * 1000)

    def monotonic(self) -> float:
        self.at += self.step_s
        return self.at


def volume(size: int, free: int, files: int = 1_000_000, free_files: int = 900_000) -> os.statvfs_result:
    blocks, left = size // KIB, free // KIB
    return os.statvfs_result((KIB, KIB, blocks, left, left, files, free_files, free_files, 0, 255))


@pytest.fixture
def closed_folder(tmp_path: Path) -> Iterator[Path]:
    """One that this user cannot write to: for root that takes a volume that nobody can write to."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    if os.geteuid() != 0:
        yield folder
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no volume can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs"]
)
@pytest.mark.parametrize("options", ["rw", "ro"])
def test_a_network_file_system_is_a_problem_whether_it_can_be_written_or_not(
    tmp_path: Path, kind: str, options: str
) -> None:
    finding = file_system(tmp_path, f"{ROOT}server:/x {tmp_path} {kind} {options},vers=4 0 0\n")
    assert_told(finding, Level.PROBLEM, "file system", f"network file system ({kind})", "on a disk of this machine")


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_file_system_in_memory_is_told(tmp_path: Path, kind: str) -> None:
    finding = file_system(tmp_path, f"{ROOT}none {tmp_path} {kind} rw 0 0\n")
    assert_told(finding, Level.WARNING, "file system", f"in memory ({kind})", "on a disk with --data")


def test_the_image_of_a_container_is_told(tmp_path: Path) -> None:
    finding = file_system(tmp_path, "overlay / overlay rw,lowerdir=/a 0 0\n")
    assert_told(finding, Level.WARNING, "file system", "image of a container", "Mount a volume")


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "overlay"])
def test_a_volume_that_cannot_be_written_is_a_problem_of_whatever_kind_it_is(tmp_path: Path, kind: str) -> None:
    finding = file_system(tmp_path, f"{ROOT}/dev/sdb {tmp_path} {kind} ro,relatime 0 0\n")
    assert_told(finding, Level.PROBLEM, "file system", "read-only", "Mount it for writing")


def test_an_option_that_only_begins_like_read_only_is_another(tmp_path: Path) -> None:
    assert_ok(file_system(tmp_path, "/dev/sda1 / ext4 rw,errors=remount-ro,rootcontext=x 0 0\n"), "file system", "ext4")


def test_the_innermost_mount_counts_wherever_it_stands(tmp_path: Path) -> None:
    mounts = f"server:/x {tmp_path} nfs4 rw 0 0\n{ROOT}tmpfs {tmp_path.parent} tmpfs rw 0 0\n"
    assert file_system(tmp_path, mounts).level is Level.PROBLEM


def test_of_two_mounts_in_one_place_the_later_hides_the_other(tmp_path: Path) -> None:
    mounts = f"{ROOT}auto {tmp_path} autofs rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n"
    assert file_system(tmp_path, mounts).level is Level.PROBLEM


def test_a_mount_beside_the_folder_whose_name_begins_alike_means_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data-of-mine"
    folder.mkdir()
    assert_ok(file_system(folder, f"{ROOT}server:/x {tmp_path}/data nfs4 rw 0 0\n"), "file system", "ext4")


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a b", "a\\040b"),
        ("a\tb", "a\\011b"),
        ("a\nb", "a\\012b"),
        ("a\\b", "a\\134b"),
        ("a#b", "a\\043b"),
        ("a\\040b", "a\\134040b"),
        ("a\u00a0b\u2028c\x0bd", "a\u00a0b\u2028c\x0bd"),
    ],
)
def test_a_place_with_signs_that_are_told_in_another_way_is_found(tmp_path: Path, name: str, escaped: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    mounts = f"{ROOT}tmpfs {tmp_path}/{escaped} tmpfs rw 0 0\n"
    assert_told(file_system(folder, mounts), Level.WARNING, "file system", "in memory", "--data")


def test_a_place_whose_name_is_no_text_is_found(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff\xfe")
    folder.mkdir()
    assert file_system(folder, f"{ROOT}tmpfs {folder} tmpfs rw 0 0\n").level is Level.WARNING


@pytest.mark.parametrize("line", ["", "nonsense", "a b", "none /", "none / ", "none  ext4 rw 0 0"])
def test_a_line_that_is_no_mount_is_passed_over(tmp_path: Path, line: str) -> None:
    assert_ok(file_system(tmp_path, f"{ROOT}{line}\n"), "file system", "ext4")


def test_a_mount_without_options_is_one(tmp_path: Path) -> None:
    assert_ok(file_system(tmp_path, "none / xfs\n"), "file system", "xfs")


def test_where_no_mounts_are_told_the_kind_is_unknown(tmp_path: Path) -> None:
    assert_ok(file_system(tmp_path, ""), "file system", "of an unknown kind")


def test_less_room_than_the_reserve_is_a_problem() -> None:
    finding = room(volume(size=100 * GIB, free=256 * MIB - KIB), Limits())
    assert_told(finding, Level.PROBLEM, "room", "less than the reserve of 256.0 MiB", "Make room on the volume")


def test_a_reserve_that_is_set_counts_instead() -> None:
    assert room(volume(size=100 * GIB, free=40 * GIB), Limits(store_reserve_bytes=50 * GIB)).level is Level.PROBLEM
    assert room(volume(size=100 * GIB, free=40 * GIB), Limits(store_reserve_bytes=GIB)).level is Level.OK


def test_the_reserve_is_a_share_of_the_map_where_that_is_smaller_than_the_volume() -> None:
    small = Limits(store_map_size_bytes=1000 * MIB)
    assert room(volume(size=100 * GIB, free=50 * MIB - KIB), small).level is Level.PROBLEM
    assert room(volume(size=100 * GIB, free=50 * MIB), small).level is Level.WARNING


@pytest.mark.parametrize(("size", "free"), [(100 * GIB, 10 * GIB), (2000 * MIB, 400 * MIB), (20 * TIB, 16 * GIB)])
def test_little_room_is_told(size: int, free: int) -> None:
    finding = room(volume(size, free - KIB), Limits())
    assert_told(finding, Level.WARNING, "room", "free of", "Make room")
    assert_ok(room(volume(size, free + KIB), Limits()), "room", "free of")


@pytest.mark.parametrize("free", [2 * GIB, 90 * GIB])
def test_a_volume_that_takes_no_more_files_is_a_problem_however_much_room_it_has(free: int) -> None:
    finding = room(volume(100 * GIB, free, files=1000, free_files=99), Limits())
    assert_told(finding, Level.PROBLEM, "room", "hardly any file", "Remove files")


def test_a_volume_that_counts_no_files_has_room_for_them() -> None:
    assert_ok(room(volume(100 * GIB, 90 * GIB, files=0, free_files=0), Limits()), "room")


@pytest.mark.parametrize(
    ("sync_s", "level", "text", "advice"),
    [
        (0.000_01, Level.WARNING, "which no disk can do", "Does the volume really sync?"),
        (0.021, Level.WARNING, "21.00 ms", "a faster disk"),
        (0.201, Level.PROBLEM, "201.00 ms", "use another disk"),
    ],
)
def test_a_sync_that_takes_too_long_or_no_time_at_all_is_told(
    tmp_path: Path, sync_s: float, level: Level, text: str, advice: str
) -> None:
    assert_told(syncing(tmp_path, SlowClock(sync_s)), level, "sync", text, advice)


@pytest.mark.parametrize("sync_s", [0.000_03, 0.002, 0.019])
def test_a_sync_as_disks_do_it_is_fine_and_leaves_nothing_behind(tmp_path: Path, sync_s: float) -> None:
    clock = SlowClock(sync_s)
    assert_ok(syncing(tmp_path, clock), "sync", "write and sync of 4 KiB")
    assert clock.at == pytest.approx(sync_s * 2 * SYNCS)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_where_nothing_can_be_written_is_a_problem_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with files_limited_to(8 * KIB):
        finding = syncing(tmp_path, SystemClock())
    assert_told(finding, Level.PROBLEM, "sync", f"nothing can be written to {tmp_path}", "Make room")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_place_of_the_data_folder_is_a_problem(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = examine(ServeSettings(data=tmp_path / place), SystemClock())
    assert_told(finding, Level.PROBLEM, "data folder", "file is not a folder", "another folder with --data")


@pytest.mark.parametrize("below", [".", "not-yet-there"])
def test_a_folder_that_this_user_cannot_write_to_is_a_problem(closed_folder: Path, below: str) -> None:
    findings = list(examine(ServeSettings(data=closed_folder / below), SystemClock()))
    finding = about("data folder", findings)
    why = ("its volume is read-only", "Mount it") if os.geteuid() == 0 else ("by this user", "as a user who may")
    assert_told(finding, Level.PROBLEM, "data folder", *why)
    assert "sync" not in [one.subject for one in findings]


def test_what_a_killed_backup_or_restore_left_behind_is_told_in_the_folder_and_beside_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "data.partial-1").mkdir(parents=True)
    (tmp_path / "kept.partial-2").mkdir()
    (tmp_path / "kept").mkdir()
    left = [one for one in examine(ServeSettings(data=data), SystemClock()) if one.subject == "leftovers"]
    assert [Path(one.text.split(" is ")[0]).name for one in left] == ["data.partial-1", "kept.partial-2"]
    for finding in left:
        assert_told(
            finding, Level.WARNING, "leftovers", "has not ended", "If none is running now, it was killed: remove it"
        )


def test_a_restore_into_a_volume_that_has_not_ended_is_a_problem_and_nobody_is_told_to_remove_a_part_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "data.partial-1" / "stores").mkdir(parents=True)
    finding = about("leftovers", examine(ServeSettings(data=tmp_path), SystemClock()))
    advice = f"remove everything in {tmp_path}, and restore the backup again"
    assert_told(finding, Level.PROBLEM, "leftovers", "it is not served", advice)


def test_a_damaged_catalog_that_was_replaced_is_told(tmp_path: Path) -> None:
    (tmp_path / "catalog.damaged-1").mkdir()
    finding = about("leftovers", examine(ServeSettings(data=tmp_path), SystemClock()))
    assert_told(finding, Level.WARNING, "leftovers", "catalog.damaged-1 is a damaged catalog", "Keep it or remove it")


def test_a_folder_that_is_not_there_yet_is_neither_made_nor_measured(tmp_path: Path) -> None:
    subjects = [one.subject for one in examine(ServeSettings(data=tmp_path / "data"), SystemClock())]
    assert subjects == ["file system", "room", "stores"]
    assert list(tmp_path.iterdir()) == []
