"""What a process is told at its start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandembus.config import ServeSettings
from tandembus.node.doors import Ports
from tandembus.node.orders import Orders, orders_from_document
from tandembus.node.store_folders import store_count, stores_for_new_entities
from tests.covers import covers


@pytest.mark.parametrize("ports", [None, Ports(1, 2, None), Ports(1, 2, 3, (("::1", 4), ("h", 5)))])
def test_orders_arrive_as_they_were_given(tmp_path: Path, ports: Ports | None) -> None:
    orders = Orders(ServeSettings(data=tmp_path, brokers=3, key="k"), bytes(range(32)), 2, 7, ports)
    assert orders_from_document(json.loads(json.dumps(orders.document()))) == orders


@pytest.mark.parametrize(("brokers", "stores"), [(1, 1), (2, 2), (3, 16), (16, 16), (16, 3), (4, 7)])
@covers("P1", "P2")
def test_every_store_has_one_owner_and_the_loads_differ_by_one_at_most(brokers: int, stores: int) -> None:
    settings = ServeSettings(brokers=brokers)
    owned = [Orders(settings, b"", index, stores).stores for index in range(brokers)]
    assert sorted(store for one in owned for store in one) == list(range(stores))
    assert max(map(len, owned)) - min(map(len, owned)) <= 1


@pytest.mark.parametrize(
    ("there", "brokers", "asked", "new", "all_of_them"),
    [
        (0, 0, None, 1, 1),
        (0, 2, None, 2, 2),
        (0, 2, 5, 5, 5),
        (0, 0, 3, 3, 3),
        (4, 2, None, 2, 4),
        (4, 0, None, 4, 4),
        (4, 16, None, 16, 16),
        (4, 0, 2, 2, 4),
    ],
)
@covers("P1")
def test_all_stores_that_exist_are_served_and_new_entities_go_to_those_asked_for(
    tmp_path: Path, there: int, brokers: int, asked: int | None, new: int, all_of_them: int
) -> None:
    for store in range(there):
        (tmp_path / "stores" / str(store)).mkdir(parents=True)
    settings = ServeSettings(data=tmp_path, brokers=brokers, stores=asked)
    assert (stores_for_new_entities(settings), store_count(settings)) == (new, all_of_them)


def test_other_folders_among_the_stores_are_none(tmp_path: Path) -> None:
    for name in ("0", "1", "01", "x", "-1", "2.bak"):
        (tmp_path / "stores" / name).mkdir(parents=True)
    (tmp_path / "stores" / "7").touch()
    assert store_count(ServeSettings(data=tmp_path)) == 2
