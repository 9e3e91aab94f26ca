"""What the system allows a namespace, beside what it needs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tandembus.cli.diagnosis.finding import Level
from tandembus.cli.diagnosis.limits import available_bytes, examine, map_size, memory, open_files, processors
from tandembus.cli.diagnosis.served import Served, memory_of
from tandembus.config import Limits, ServeSettings
from tests.unit.cli.diagnosis.told import assert_ok, assert_told

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
UNLIMITED = resource.RLIM_INFINITY
MEMINFO = "MemTotal:       2097152 kB\nMemFree:          1024 kB\nMemAvailable:   1048576 kB\n"


def put_file(folder: Path, size_bytes: int) -> None:
    """As large as that, without taking any room."""
    folder.mkdir(parents=True)
    with (folder / "data.mdb").open("wb") as file:
        file.truncate(size_bytes)


def test_fewer_open_files_than_connections_are_told() -> None:
    finding = open_files(Limits(max_connections=1_000), 1_255)
    assert_told(finding, Level.WARNING, "open files", "1,255; 1,000 connections need 1,256", "`ulimit -Hn 1256`")


@pytest.mark.parametrize(("most", "text"), [(1_256, "1,256;"), (UNLIMITED, "no limit;")])
def test_enough_open_files_are_fine(most: int, text: str) -> None:
    assert_ok(open_files(Limits(max_connections=1_000), most), "open files", text)


def test_less_memory_than_the_windows_of_all_brokers_is_told(tmp_path: Path) -> None:
    limits = Limits(broker_window_bytes=100 * MIB, uncommitted_bytes_limit=20 * MIB)
    wanted = 3 * 120 * MIB + 5 * 96 * MIB
    settings = ServeSettings(data=tmp_path, brokers=3, front_ends=2, limits=limits)
    finding = memory(settings, wanted - 1)
    assert_told(finding, Level.WARNING, "memory", "up to 840.0 MiB are needed", "lower limits.broker_window_bytes")
    assert_ok(memory(settings, wanted), "memory", "840.0 MiB available")


def test_one_process_needs_the_memory_of_one(tmp_path: Path) -> None:
    assert_ok(memory(ServeSettings(data=tmp_path), (256 + 64 + 96) * MIB), "memory")
    assert memory(ServeSettings(data=tmp_path), (256 + 64 + 96) * MIB - 1).level is Level.WARNING


def test_where_no_memory_is_told_there_is_nothing_to_warn_of(tmp_path: Path) -> None:
    assert_ok(memory(ServeSettings(data=tmp_path), None), "memory", "what is there cannot be told")


@pytest.mark.parametrize(
    ("meminfo", "cgroups", "available"),
    [
        (MEMINFO, ["", ""], GIB),
        (MEMINFO, ["max\n", ""], GIB),
        (MEMINFO, ["536870912\n", ""], 512 * MIB),
        (MEMINFO, ["", "536870912\n"], 512 * MIB),
        (MEMINFO, ["", "9223372036854771712\n"], GIB),
        ("", ["", "9223372036854771712\n"], None),
        ("", ["536870912\n", ""], 512 * MIB),
        ("MemTotal: 2097152 kB\n", ["max\n", ""], None),
        ("MemAvailable:\nMemAvailable: much\n", ["\n", "-1\n"], None),
        ("", ["", ""], None),
    ],
)
def test_the_least_of_what_machine_and_control_group_allow_is_available(
    meminfo: str, cgroups: list[str], available: int | None
) -> None:
    assert available_bytes(meminfo, cgroups) == available


def test_what_the_namespace_holds_already_is_available_to_it_within_its_control_group() -> None:
    assert available_bytes(MEMINFO, ["max\n"], held=300 * MIB) == GIB + 300 * MIB
    assert available_bytes(MEMINFO, [f"{GIB}\n"], held=300 * MIB) == GIB


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the memory of a process")
def test_the_memory_of_a_process_is_what_it_holds_for_itself() -> None:
    before = memory_of(os.getpid())
    held = bytearray(os.urandom(MIB)) * 64
    assert memory_of(os.getpid()) - before > 48 * MIB
    del held
    assert memory_of(2**22 + 1) == 0  # more than any system has


def test_a_store_that_nears_the_end_of_its_map_is_told(tmp_path: Path) -> None:
    settings = ServeSettings(data=tmp_path, limits=Limits(store_map_size_bytes=100 * MIB))
    put_file(tmp_path / "stores" / "0", 80 * MIB)
    assert_ok(map_size(settings, UNLIMITED), "map size", "the largest store has 80.0 MiB")
    put_file(tmp_path / "stores" / "1", 80 * MIB + 1)
    finding = map_size(settings, UNLIMITED)
    assert_told(finding, Level.WARNING, "map size", "100.0 MiB for each of 2", "Raise limits.store_map_size_bytes")


@pytest.mark.parametrize("place", ["catalog", "stores/0/catalog"])
def test_a_catalog_that_nears_the_end_of_its_own_map_is_told(tmp_path: Path, place: str) -> None:
    limits = Limits(store_map_size_bytes=TIB, catalog_map_size_bytes=10 * MIB)
    settings = ServeSettings(data=tmp_path, limits=limits)
    put_file(tmp_path / place, 9 * MIB)
    finding = map_size(settings, UNLIMITED)
    assert_told(finding, Level.WARNING, "map size", "9.0 MiB of 10.0 MiB", "Raise limits.catalog_map_size_bytes")


def test_a_catalog_is_not_taken_for_a_store(tmp_path: Path) -> None:
    limits = Limits(store_map_size_bytes=64 * MIB, catalog_map_size_bytes=256 * MIB)
    put_file(tmp_path / "catalog", 60 * MIB)
    assert_ok(map_size(ServeSettings(data=tmp_path, limits=limits), UNLIMITED), "map size", "has 0 bytes")


def test_too_little_address_space_for_the_smallest_maps_is_a_problem(tmp_path: Path) -> None:
    least = (256 + 64 + 96) * MIB
    finding = map_size(ServeSettings(data=tmp_path), least - 1)
    assert_told(finding, Level.PROBLEM, "map size", "limited to 416.0 MiB", "`ulimit -v unlimited`")
    assert map_size(ServeSettings(data=tmp_path), least).level is Level.WARNING


def test_address_space_that_makes_maps_smaller_is_told(tmp_path: Path) -> None:
    finding = map_size(ServeSettings(data=tmp_path), 100 * GIB)
    assert_told(finding, Level.WARNING, "map size", "address space is limited to 100.0 GiB", "`ulimit -v unlimited`")


def test_a_limit_of_address_space_that_holds_all_maps_is_fine(tmp_path: Path) -> None:
    assert_ok(map_size(ServeSettings(data=tmp_path), 2 * TIB), "map size")
    assert_ok(map_size(ServeSettings(data=tmp_path, stores=4), 5 * TIB), "map size")


def test_several_stores_in_a_process_whose_maps_do_not_all_fit_are_a_problem(tmp_path: Path) -> None:
    finding = map_size(ServeSettings(data=tmp_path, stores=4), 4 * TIB)
    assert_told(finding, Level.PROBLEM, "map size", "for each of 4", "lower limits.store_map_size_bytes until all fit")
    spread = ServeSettings(data=tmp_path, stores=4, brokers=4)
    assert map_size(spread, 100 * GIB).level is Level.WARNING
    uneven = ServeSettings(data=tmp_path, stores=5, brokers=4)
    assert map_size(uneven, 100 * GIB).level is Level.PROBLEM


def test_many_more_busy_processes_than_processors_are_told(tmp_path: Path) -> None:
    settings = ServeSettings(data=tmp_path, brokers=3, front_ends=2)
    assert_told(processors(settings, 2), Level.WARNING, "processors", "2 for 5 busy processes", "Fewer --brokers")
    even = ServeSettings(data=tmp_path, brokers=2, front_ends=2)
    assert_ok(processors(even, 2), "processors", "2 for 4 busy processes")
    assert_ok(processors(ServeSettings(data=tmp_path), 1), "processors", "1 for 1 busy process")


def test_everything_is_looked_at_with_and_without_a_namespace_that_runs(tmp_path: Path) -> None:
    for pid in (None, os.getpid()):
        subjects = [one.subject for one in examine(ServeSettings(data=tmp_path), Served(pid, None))]
        assert subjects == ["open files", "memory", "map size", "processors"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere address space cannot be limited")
def test_the_limits_of_the_process_are_those_that_are_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tandembus", "doctor", "--json", "--data", str(tmp_path / "data")]
    command += ["--amqp-port", "0", "--http-port", "0", "--amqps-port", "off"]
    limited = ["sh", "-c", 'ulimit -v 8388608 && ulimit -n 777 && exec "$@"', "sh", *command]
    result = subprocess.run(limited, capture_output=True, text=True, check=False)
    found = {one["subject"]: one for one in json.loads(result.stdout)["findings"] if one["area"] == "limits"}
    assert found["open files"]["level"] == found["map size"]["level"] == "warning"
    assert found["open files"]["text"].startswith("777;")
    assert found["map size"]["text"].endswith("address space is limited to 8.0 GiB")
