"""What is made of the queues of a secondary: whose they are, which are in use, and whether somebody receives."""

from __future__ import annotations

import pytest

from tandembus.pairing.status import SyphonState, backlogs_in, syphon_state, used_count
from tests.covers import covers


@covers("N2")
def test_backlog_queues_are_told_by_their_path_and_belong_to_their_primary() -> None:
    paths = [
        "orders",
        "contoso/x-servicebus-transfer/0",
        "Contoso/X-ServiceBus-Transfer/12",
        "shop.one/x-servicebus-transfer/3",
        "contoso/x-servicebus-transfer/01",
        "contoso/x-servicebus-transfer/x",
        "contoso/x-servicebus-transfer/",
        "x-servicebus-transfer/4",
        "contoso/x-servicebus-transfer/5/more",
    ]
    assert backlogs_in(paths) == {
        "contoso": {0: "contoso/x-servicebus-transfer/0", 12: "Contoso/X-ServiceBus-Transfer/12"},
        "shop.one": {3: "shop.one/x-servicebus-transfer/3"},
    }


@covers("N3")
@pytest.mark.parametrize(
    ("indexes", "asked", "used"),
    [([], None, 0), ([0, 1, 2], None, 3), ([0, 1, 7], None, 2), ([1], None, 0), ([0, 1, 7], 5, 5), ([0, 1, 7], 1, 1)],
)
def test_queues_beyond_those_that_senders_use_are_extra(indexes: list[int], asked: int | None, used: int) -> None:
    assert used_count(indexes, asked) == used


@covers("N11")
@pytest.mark.parametrize(
    ("receivers", "state"),
    [
        ([1, 2, 1], SyphonState.AT_WORK),
        ([1, 0, 1], SyphonState.PARTLY),
        ([0, 0], SyphonState.NONE),
        ([], SyphonState.NONE),
        ([None, 1], SyphonState.UNKNOWN),
        ([None], SyphonState.UNKNOWN),
    ],
)
def test_a_syphon_is_at_work_when_somebody_receives_from_every_queue(
    receivers: list[int | None], state: SyphonState
) -> None:
    assert syphon_state(receivers) is state
