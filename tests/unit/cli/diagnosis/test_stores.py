"""What is told of the parts of a data folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tandembus.cli.diagnosis.finding import Finding, Level
from tandembus.cli.diagnosis.served import Served
from tandembus.cli.diagnosis.stores import condition, examine
from tandembus.node.upkeep.check import Part
from tandembus.store.embedded import EmbeddedSettings, LmdbStore
from tandembus.store.embedded.keys import BODY_TREE, body_key
from tandembus.store.messaging_store import MAIN, Changes, Place
from tests.contract.samples import FRAGMENT, sends
from tests.unit.cli.diagnosis.told import about, assert_ok, assert_told
from tests.unit.store.embedded.raw import flip

SETTINGS = EmbeddedSettings(map_bytes=1 << 30, commit_mode="loop")
STOPPED = Served(None, None)


def begun(_size_bytes: int) -> Callable[[int], None]:
    return lambda _done: None


def looked_at(data: Path, is_deep: bool = False) -> list[Finding]:
    return list(examine(data, STOPPED, is_deep, begun))


def damaged_part(count: int) -> Part:
    part = Part("stores/0", quarantined_count=1)
    for number in range(1, count + 1):
        part.damaged(f"damage {number}")
    return part


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "damage 1"),
        (3, "damage 1; damage 2; damage 3"),
        (1_004, "damage 1; damage 2; damage 3; and 1,001 more"),
    ],
)
def test_damage_is_a_problem_and_much_of_it_is_counted(count: int, text: str) -> None:
    finding = condition(damaged_part(count), is_deep=False)
    assert_told(finding, Level.PROBLEM, "stores/0", text, "`tandembus restore` brings a backup back")
    assert finding.text == text


def test_messages_that_were_put_aside_are_told() -> None:
    finding = condition(Part("stores/0", quarantined_count=1_234), is_deep=False)
    assert_told(finding, Level.WARNING, "stores/0", "1,234 messages put aside as damaged", "look at its health")


@pytest.mark.parametrize(
    ("part", "is_deep", "text"),
    [
        (Part("catalog", record_count=1_200), False, "1,200 records"),
        (Part("catalog", record_count=2), True, "2 records, every one verified"),
        (Part("stores/0", record_count=3, epoch=7), False, "epoch 7"),
        (Part("stores/0", record_count=3, epoch=7), True, "3 records, every one verified"),
    ],
)
def test_a_part_without_damage_is_fine(part: Part, is_deep: bool, text: str) -> None:
    assert_ok(condition(part, is_deep), part.name)
    assert condition(part, is_deep).text == text


@pytest.mark.parametrize("is_deep", [False, True])
async def test_a_store_that_put_a_message_aside_is_told_and_a_catalog_that_is_missing_is_a_problem(
    tmp_path: Path, is_deep: bool
) -> None:
    folder = tmp_path / "stores" / "0"
    store = LmdbStore.open(folder, SETTINGS)
    await store.commit(sends([1, 2, 3]))
    await store.close()
    flip(folder, BODY_TREE, body_key(FRAGMENT, MAIN, 2), 777)
    store = LmdbStore.open(folder, SETTINGS)
    changes = Changes()
    changes.quarantined = [Place(FRAGMENT, MAIN, 2)]
    await store.commit(changes)
    await store.close()
    findings = looked_at(tmp_path, is_deep)
    assert_told(about("catalog", findings), Level.PROBLEM, "catalog", "it is missing", "`tandembus restore`")
    if not is_deep:  # looked at closely, samples without a head are damage as well
        assert_told(about("stores/0", findings), Level.WARNING, "stores/0", "1 message put aside", "keep backups")


def test_before_the_first_start_there_is_nothing_and_that_is_fine(tmp_path: Path) -> None:
    findings = looked_at(tmp_path / "data")
    assert_ok(about("namespace", findings), "namespace", "not running")
    assert_ok(about("data", findings), "data", "the first start makes it")
    assert len(findings) == 2


def test_a_namespace_that_runs_is_named_by_its_process(tmp_path: Path) -> None:
    (finding, _) = examine(tmp_path, Served(os.getpid(), None), False, begun)
    assert_ok(finding, "namespace", f"running, process {os.getpid()}")
