"""What is done with many messages at once: resubmit, move or delete those that were chosen, or all for one reason.

A message leaves where it is only when it is durable where it goes (`resubmission.py`). Progress is told while it is
made, and whether all this is still allowed is asked again with every slice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiohttp import web

from tandembus.broker.locks import COMPLETE
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, Unauthorized
from tandembus.front_end.amqp.entity_link import send_checks
from tandembus.front_end.http.access import SUPPLEMENTARY, Access
from tandembus.front_end.http.api.message_json import STATES
from tandembus.front_end.http.api.places import address_of, check_can_take_out, place_of, sequence_number
from tandembus.front_end.http.api.routes import Route, read_document
from tandembus.front_end.http.api.scanning import Scan, Wanted
from tandembus.front_end.http.progress_stream import End, ProgressStream
from tandembus.front_end.http.request import check_is_there
from tandembus.front_end.http.resubmission import Resubmission, count_moved
from tandembus.front_end.http.taking import SLICE_MESSAGES, Progress, Taking
from tandembus.interconnect.answers import settle_all
from tandembus.metering.meter import Meter
from tandembus.metering.slot import DELETE_BATCH, NORMAL
from tandembus.namespace.entity import Entity
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import EntityAddress, SubQueue, home_of
from tandembus.security.claims import Claims, Right

MAX_FAILURES: Final = 100
"""That are told one by one."""
EVERYTHING: Final = 2**63 - 1
DELETED_AT_ONCE: Final = 1_000
_KEYS: Final = frozenset(("action", "sequence_numbers", "reason", "to"))


class Action(Enum):
    RESUBMIT = "resubmit"
    MOVE = "move"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked for."""

    action: Action
    numbers: tuple[int, ...] | None
    """None: all that wait."""
    reason: str | None
    """Of those, the dead letters with this one; empty: without one."""
    to: str | None


def read_task(document: Mapping[str, object], max_numbers: int) -> Task:
    unknown = document.keys() - _KEYS
    if unknown:
        raise InvalidArgument(f"'{min(unknown)[:64]}' is an unknown key; known are {', '.join(sorted(_KEYS))}.")
    reason, to = document.get("reason"), document.get("to")
    for name, value in (("reason", reason), ("to", to)):
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{name} must be a text, or null.")
    numbers = _numbers(document.get("sequence_numbers"), max_numbers)
    if numbers is not None and reason is not None:
        raise InvalidArgument("Either sequence_numbers or a reason can be given: the other is null.")
    return Task(_action(document.get("action")), numbers, _text(reason), _text(to) or None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _action(name: object) -> Action:
    try:
        return Action(name)
    except ValueError:
        known = ", ".join([action.value for action in Action])
        raise InvalidArgument(f"action: '{str(name)[:64]}' is none of {known}.") from None


def _numbers(document: object, most: int) -> tuple[int, ...] | None:
    """An empty list is a mistake, and must not mean everything."""
    if document is None:
        return None
    if not isinstance(document, list) or not 1 <= len(document) <= most:
        raise InvalidArgument(f"sequence_numbers must be null, or a list of 1 to {most} of them.")
    numbers = tuple([sequence_number(one, "sequence_numbers") for one in document])
    if len(set(numbers)) != len(numbers):
        raise InvalidArgument("A number stands twice in sequence_numbers.")
    return numbers


class Acting:
    def __init__(self, namespace: Namespace, access: Access, meter: Meter) -> None:
        self._namespace = namespace
        self._access = access
        self._meter = meter

    def routes(self) -> list[Route]:
        return [Route("POST", "messages/act", self._act)]

    async def _act(self, request: web.Request) -> web.StreamResponse:
        address = place_of(request)
        claims = self._access.check(request, Right.LISTEN, address.claim_path)
        limits = self._namespace.limits
        document = await read_document(request, limits.max_management_body_bytes)
        task = read_task(document, limits.max_management_messages)
        source = await self._namespace.entity(address.key)
        source.check_can_receive(address.sub_queue.lane)
        source.accessed_at = self._namespace.clock.now()
        with source.in_use():
            if task.action is Action.DELETE:
                return await self._delete(request, source, address, task, claims)
            return await self._move(request, source, address, task, claims)

    # Moving.

    async def _move(
        self, request: web.Request, source: Entity, address: EntityAddress, task: Task, claims: Claims
    ) -> web.StreamResponse:
        lane = address.sub_queue.lane
        check_can_take_out(source, lane)
        target_address = _target(address, task)
        proof = self._access.check_target(request, SUPPLEMENTARY, claims, target_address.claim_path)
        target = await self._namespace.entity(target_address.key)
        target.check_can_send()
        checks = send_checks(target, self._namespace.limits)
        resubmission = Resubmission(source, lane, target, task.to is None, checks)
        progress = Progress(max_refusals=MAX_FAILURES)

        def check() -> None:
            check_is_there(request)
            self._check_is_current(claims, proof)
            check_can_take_out(source, lane)
            target.check_can_send()

        def count(moved: int, moved_bytes: int) -> None:
            count_moved(self._meter, source, target, moved, moved_bytes)

        if task.numbers is None and task.reason is None:
            parts = resubmission.run(progress, EVERYTHING)
        else:
            is_chosen = task.numbers is not None
            picked = Taking(source, lane).slices(self._picked(source, lane, task, check), progress, is_chosen)
            parts = resubmission.run_picked(progress, picked)
        with target.in_use():
            stream = ProgressStream(_line, count, check, f"moving messages of '{source.name}'")
            return await stream.run(request, progress, parts)

    async def _picked(self, source: Entity, lane: int, task: Task, check: Callable[[], None]) -> AsyncIterator[int]:
        """Those that are there now: what comes while this goes on is left for another time."""
        scan = Scan(source, lane, self._namespace.limits, self._meter)
        scan.check = check
        await scan.stop_at_ends()
        if task.numbers is not None:
            for number in task.numbers:
                yield number
            return
        async for one in scan.messages(0, Wanted(state=STATES.index("active"), reason=task.reason)):
            yield one.sequence_number

    def _check_is_current(self, *claims: Claims) -> None:
        if not all(self._access.is_current(one) for one in claims):
            raise Unauthorized("The token has expired or is no longer valid.")

    # Deleting.

    async def _delete(
        self, request: web.Request, source: Entity, address: EntityAddress, task: Task, claims: Claims
    ) -> web.StreamResponse:
        lane = address.sub_queue.lane
        if task.to is not None:
            raise InvalidArgument("What is deleted goes nowhere: 'to' must be null.")
        progress = Progress(max_refusals=MAX_FAILURES)

        def check() -> None:
            check_is_there(request)
            self._check_is_current(claims)
            source.check_can_receive(lane)

        def count(deleted: int, _size_bytes: int) -> None:
            self._meter.count(source.entry.key, DELETE_BATCH, NORMAL, deleted, deleted, 0)

        if task.numbers is not None:
            parts = self._delete_chosen(source, lane, task.numbers, progress)
        elif task.reason is not None:
            parts = self._delete_picked(source, lane, self._picked(source, lane, task, check), progress)
        else:
            parts = self._delete_waiting(source, lane, progress)
        stream = ProgressStream(_line, count, check, f"deleting messages of '{source.name}'")
        return await stream.run(request, progress, parts)

    async def _delete_chosen(
        self, source: Entity, lane: int, numbers: tuple[int, ...], progress: Progress
    ) -> AsyncIterator[None]:
        """In whatever state they are, but not what somebody holds."""
        for place, number in enumerate(numbers):
            try:
                await source.requests.delete_one(lane, number)
                progress.moved += 1
            except BusError as error:
                progress.refuse(number, error)
            if place % SLICE_MESSAGES == SLICE_MESSAGES - 1:
                yield

    async def _delete_picked(
        self, source: Entity, lane: int, picked: AsyncIterator[int], progress: Progress
    ) -> AsyncIterator[None]:
        async for held in Taking(source, lane).slices(picked, progress, is_chosen=False):
            await settle_all(source.traffic, [lock for lock, _ in held], COMPLETE)
            progress.moved += len(held)
            yield

    async def _delete_waiting(self, source: Entity, lane: int, progress: Progress) -> AsyncIterator[None]:
        before_ms = self._namespace.clock.now_ms() + 1
        while deleted := await source.requests.delete_batch(lane, DELETED_AT_ONCE, before_ms):
            progress.moved += deleted
            yield


def _target(address: EntityAddress, task: Task) -> EntityAddress:
    is_main = address.sub_queue is SubQueue.MAIN
    if task.action is Action.RESUBMIT and is_main:
        raise InvalidOperation("Only dead letters can be resubmitted: sub_queue must say which.")
    if task.action is Action.MOVE and task.to is None:
        raise InvalidArgument("'to' must say where the messages are moved.")
    target = address_of(task.to or home_of(address))
    if target.sub_queue is not SubQueue.MAIN:
        raise InvalidOperation("Messages can be moved to a queue or topic.")
    return target


def _line(progress: Progress, end: End | None) -> dict[str, object]:
    line: dict[str, object] = {"done": progress.moved, "failed": progress.refused}
    if end is not None:
        failures = [{"sequence_number": str(number), "error": error} for number, error in progress.refusals]
        line |= {"failures": failures, "end": True, "error": end.error}
    return line
