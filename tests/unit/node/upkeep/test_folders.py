"""Folders that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tandembus.errors import StoreUnavailable
from tandembus.node.store_folders import PARTIAL, require_whole
from tandembus.node.upkeep.folders import NewFolder
from tests.covers import covers

FILES = ("catalog/data.mdb", "key", "meter/1", "stores/0/data.mdb")
PARTS = ("catalog", "key", "meter", "stores")


def fill(folder: NewFolder) -> None:
    for name in FILES:
        os.close(folder.create(name, 0o600))


def names_in(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@covers("F6")
@pytest.mark.parametrize("is_mounted", [False, True])
def test_a_folder_takes_its_place_when_all_of_it_is_there(tmp_path: Path, is_mounted: bool) -> None:
    place = tmp_path / "data"
    if is_mounted:
        place.mkdir()
    with NewFolder(place, is_mounted) as folder:
        fill(folder)
        assert not (place / "key").exists()
        folder.finish()
    assert names_in(place) == list(PARTS)
    assert names_in(tmp_path) == ["data"]
    require_whole(place)


@covers("F6")
@pytest.mark.parametrize("is_mounted", [False, True])
def test_what_is_left_earlier_leaves_nothing(tmp_path: Path, is_mounted: bool) -> None:
    place = tmp_path / "data"
    place.mkdir()
    with NewFolder(place, is_mounted) as folder:
        fill(folder)
    assert names_in(place) == []
    assert names_in(tmp_path) == ["data"]


@covers("F6")
def test_a_volume_in_which_something_stands_in_the_way_is_left_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "volume"
    (place / "meter" / "mine").mkdir(parents=True)
    with NewFolder(place, is_mounted=True) as folder:
        fill(folder)
        with pytest.raises(OSError, match="not empty"):
            folder.finish()
    assert names_in(place) == ["meter"]
    assert names_in(place / "meter") == ["mine"]


@covers("F6")
@pytest.mark.parametrize("moved", range(len(PARTS)))
def test_a_volume_that_is_filled_in_part_is_not_used(tmp_path: Path, moved: int) -> None:
    """As a restore leaves it that is killed between two of its moves."""
    partial = tmp_path / f"data{PARTIAL}0123abcd"
    for name in FILES:
        (partial / name).parent.mkdir(parents=True, exist_ok=True)
        (partial / name).touch()
    for name in PARTS[:moved]:
        (partial / name).rename(tmp_path / name)
    with pytest.raises(StoreUnavailable, match="restore the backup again"):
        require_whole(tmp_path)


@covers("F6")
def test_all_has_moved_if_the_folder_it_came_from_is_empty(tmp_path: Path) -> None:
    (tmp_path / f"data{PARTIAL}0123abcd").mkdir()
    (tmp_path / "catalog").mkdir()
    require_whole(tmp_path)
