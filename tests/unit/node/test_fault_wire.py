"""Faults between processes: asked for by one, decided by another, told to all."""

from __future__ import annotations

import pytest

from tandembus.clock import ManualClock
from tandembus.errors import BusError, EntityNotFound, InvalidArgument, MalformedData, NotSupported, QuotaExceeded
from tandembus.faults.board import FaultBoard
from tandembus.faults.desk import LocalDesk
from tandembus.faults.fault import read_fault
from tandembus.node.fault_wire import RemoteDesk, answer_fault, faults_to_wire, take_faults
from tests.covers import covers

FAULT = read_fault("f1", {"target": "store/0", "kind": "slow", "latency_ms": 5, "for_s": 10})


class Elsewhere:
    """The process that decides, and one that follows it."""

    def __init__(self) -> None:
        clock = ManualClock()
        self.board, self.copy = FaultBoard(clock, max_faults=1), FaultBoard(clock)
        self.desk = LocalDesk(self.board, self._publish)
        self.remote = RemoteDesk(self._ask)

    async def _publish(self) -> None:
        take_faults(self.copy, faults_to_wire(self.board))

    async def _ask(self, _name: str, value: object, _timeout_s: float) -> object:
        return await answer_fault(self.desk, value)


@covers("B3")
async def test_what_is_asked_for_from_afar_holds_everywhere_when_it_is_answered() -> None:
    elsewhere = Elsewhere()
    assert await elsewhere.remote.put(FAULT) is True
    assert await elsewhere.remote.put(FAULT) is False
    for board in (elsewhere.board, elsewhere.copy):
        assert [each.fault for each in board.standing()] == [FAULT]
    with pytest.raises(QuotaExceeded):
        await elsewhere.remote.put(read_fault("f2", {"target": "namespace", "kind": "throttled"}))
    await elsewhere.remote.remove("f1")
    assert elsewhere.copy.standing() == []
    with pytest.raises(EntityNotFound):
        await elsewhere.remote.remove("f1")
    await elsewhere.remote.put(FAULT)
    assert await elsewhere.remote.clear() == 1
    assert elsewhere.copy.standing() == []


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, NotSupported),
        ([], NotSupported),
        (["put", "[]"], NotSupported),
        (["put", '["f1", {}]'], InvalidArgument),
        (["remove", "[7]"], NotSupported),
        (["explode", "[]"], NotSupported),
    ],
)
async def test_what_nobody_can_have_asked_for_is_refused(value: object, error: type[BusError]) -> None:
    with pytest.raises(error):
        await answer_fault(Elsewhere().desk, value)


@pytest.mark.parametrize("value", [None, "{}", "[7]", 7])
def test_what_are_no_faults_is_not_taken_for_none(value: object) -> None:
    board = FaultBoard(ManualClock())
    board.put(FAULT)
    with pytest.raises(MalformedData):
        take_faults(board, value)
    assert len(board.standing()) == 1
