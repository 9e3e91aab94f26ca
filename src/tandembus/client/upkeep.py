"""What a tandembus namespace does beyond every Service Bus: delete one message, resubmit dead letters by itself.

Other services do not know these requests and say so with `EntityNotFound` or `NotSupported`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tandembus.client.addresses import SubQueue, address_of
from tandembus.client.atom_requests import AtomRequests
from tandembus.errors import BusError

REFUSALS: Final = "refusals"


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """How far it is. `refusals` are the first of the reasons, told at the end."""

    moved: int
    refused: int
    refusals: tuple[str, ...] = ()


class Upkeep:
    """Works on the messages of an entity without receiving them."""

    def __init__(self, requests: AtomRequests) -> None:
        self._requests: Final = requests

    async def delete_message(self, entity: str, sequence_number: int, sub_queue: SubQueue | None = None) -> None:
        """`MessageNotFound` if there is none, `MessageLockLost` or `InvalidOperation` if somebody is at it."""
        await self._requests.send("DELETE", f"{address_of(entity, sub_queue)}/messages/{sequence_number}")

    async def resubmit(
        self,
        entity: str,
        to: str | None = None,
        max_messages: int | None = None,
        sub_queue: SubQueue = SubQueue.DEAD_LETTER,
    ) -> AsyncIterator[Resubmitted]:
        """Move dead letters to where they came from or to another entity, step by step, without losing one.

        Nothing has happened when the first step fails to come.
        """
        query = "" if to is None else f"&to={quote(to, safe='')}"
        query += "" if max_messages is None else f"&max={max_messages}"
        path = f"{address_of(entity, sub_queue)}/$resubmit"
        is_over = False
        async for line in self._requests.lines("POST", path, query):
            if line.get("error"):
                raise BusError(f"{line['error']} ({_number(line, 'moved')} were moved until then)")
            is_over = bool(line.get("done"))
            yield Resubmitted(_number(line, "moved"), _number(line, "refused"), _refusals_in(line))
        if not is_over:
            raise BusError("the answer ended before its end: look how many dead letters are left")


def _number(line: Mapping[str, object], name: str) -> int:
    value = line.get(name)
    return value if isinstance(value, int) else 0


def _refusals_in(line: Mapping[str, object]) -> tuple[str, ...]:
    found = line.get(REFUSALS)
    entries = found if isinstance(found, list) else []
    return tuple([str(entry.get("error") or "") for entry in entries if isinstance(entry, dict)])
