"""What Spark's log holds for a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tandembus.errors import InvalidArgument
from tandembus.spark.source.offsets import batch_ending_at, check_offset, initial_offset, offset_after
from tests.covers import covers


def test_an_offset_holds_the_batch_that_ends_there() -> None:
    batch = {"orders": {0: [(1, 5), (7, 7)], 12: [(3, 4)]}, "t/subscriptions/s": {0: [(9, 9)]}}
    offset = offset_after(initial_offset("contoso", "copier"), batch, "copier")
    again = json.loads(json.dumps(offset))
    assert again == offset
    assert again["e"] == 1
    assert batch_ending_at(again) == batch
    assert batch_ending_at(initial_offset("contoso", "copier")) == {}


@covers("D1")
def test_the_checkpoint_of_another_namespace_is_refused() -> None:
    offset = initial_offset("contoso.example.net", "copier")
    check_offset(offset, "contoso.example.net", "copier")
    with pytest.raises(InvalidArgument, match=r"belongs to the namespace 'contoso.*namespaceId=contoso\.example\.net"):
        check_offset(offset, "fabrikam.example.net", "copier")


def test_a_checkpoint_of_a_later_version_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="version 2"):
        check_offset({"v": 2, "n": "contoso", "e": 0, "b": {}}, "contoso", "copier")


@pytest.mark.parametrize("offset", [17, "17", [], {"orders": {"0": 23}}, {"v": 1, "n": "contoso"}])
def test_the_checkpoint_of_another_source_is_refused(offset: Any) -> None:
    with pytest.raises(InvalidArgument, match="a query with another source"):
        check_offset(offset, "contoso", "copier")


@covers("D1")
def test_the_checkpoint_of_another_owner_is_refused_and_one_that_names_none_goes_on() -> None:
    offset = initial_offset("contoso", "copier")
    with pytest.raises(InvalidArgument, match=r"belongs to the owner 'copier'.*owner=copier"):
        check_offset(offset, "contoso", "other")
    del offset["o"]
    check_offset(offset, "contoso", "other")
    assert offset_after(offset, {}, "other")["o"] == "other"
