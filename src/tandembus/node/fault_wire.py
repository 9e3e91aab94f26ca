"""Injected faults over the control connections: a front end asks, the first process decides and tells all others."""

from __future__ import annotations

import json
from typing import Any, Final, final

from tandembus.errors import MalformedData, NotSupported
from tandembus.faults.board import FaultBoard
from tandembus.faults.desk import FaultDesk
from tandembus.faults.fault import Fault, read_fault
from tandembus.node.remote_administration import Ask

FAULTS: Final = "faults"
"""All that stand: told to every process."""
ASK_FAULT: Final = "fault"
"""A front end's wish for one."""
ASK_TIMEOUT_S: Final = 60.0


def faults_to_wire(board: FaultBoard) -> str:
    return json.dumps(board.to_records())


def take_faults(board: FaultBoard, value: object) -> None:
    """What another process's board says holds here from now on."""
    records = json.loads(value) if isinstance(value, str) else None
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise MalformedData("no faults where faults must be")
    board.replace(records)


@final
class RemoteDesk:
    """Implements `FaultDesk` in a front end: answered when all processes feel the change, this one included."""

    def __init__(self, ask: Ask) -> None:
        self._ask_supervisor = ask

    async def put(self, fault: Fault) -> bool:
        return bool(await self._ask("put", fault.id, fault.document()))

    async def remove(self, fault_id: str) -> None:
        await self._ask("remove", fault_id)

    async def clear(self) -> int:
        return int(await self._ask("clear"))

    async def _ask(self, operation: str, *arguments: object) -> Any:
        answer = await self._ask_supervisor(ASK_FAULT, [operation, json.dumps(arguments)], ASK_TIMEOUT_S)
        if not isinstance(answer, str):
            raise MalformedData("an answer about faults that is none")
        return json.loads(answer)


async def answer_fault(desk: FaultDesk, value: object) -> str:
    """The other end of a `RemoteDesk`."""
    operation, text = value if isinstance(value, list) and len(value) == 2 else (None, None)
    arguments = json.loads(text) if isinstance(text, str) else None
    match operation, arguments:
        case "put", [str(fault_id), document]:
            return json.dumps(await desk.put(read_fault(fault_id, document)))
        case "remove", [str(fault_id)]:
            await desk.remove(fault_id)
            return json.dumps(None)
        case "clear", []:
            return json.dumps(await desk.clear())
    raise NotSupported("This version does not know what is wanted of faults.")
