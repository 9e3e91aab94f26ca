"""The picture of a pair as JSON: asked of one namespace, which asks its partner."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tandembus.clock import ManualClock
from tandembus.descriptions import QueueDescription
from tandembus.errors import StoreUnavailable
from tandembus.faults.fault import read_fault
from tandembus.front_end.http.api.pair import KEPT_S, NOT_YET, STALE_S, VIEW_PATH
from tandembus.front_end.http.rest_message import BATCH_TYPE
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.pair_view.signs import EntitySigns, Sign
from tandembus.pair_view.view import Seen, view_from_document, view_to_document
from tests.covers import covers
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.pair_view.told import START, signs, view

BACKLOG = "fabrikam/x-servicebus-transfer/0"


class Partner:
    """The other namespace, as far as it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Mapping[str, object] | Exception = StoreUnavailable("nobody listens there")

    async def ask(self, path: str) -> Mapping[str, object]:
        self.asked.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def partner() -> Partner:
    return Partner()


@pytest.fixture
async def paired(tmp_path: Path, partner: Partner) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, surroundings=Surroundings(ask_partner=partner.ask)) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        yield running


async def ask(running: RunningFrontEnd, path: str = "/$api/pair") -> Any:
    reply = await running.request("GET", path)
    assert reply.status == 200, reply.text
    return json.loads(reply.body)


async def divert(running: RunningFrontEnd, path: str) -> None:
    """As a paired client does, over HTTP."""
    if running.namespace.catalog.find_queue(BACKLOG) is None:
        await running.namespace.create_queue(QueueDescription(BACKLOG))
    batch = json.dumps([{"Body": "x", "UserProperties": {"x-ms-path": path}}])
    reply = await running.request("POST", f"/{BACKLOG}/messages", batch, {"Content-Type": BATCH_TYPE})
    assert reply.status == 201, reply.text


def break_down(running: RunningFrontEnd, target: str) -> None:
    running.namespace.faults.put(read_fault("drill", {"target": target, "kind": "unavailable"}))


@covers("B4")
async def test_a_namespace_that_is_part_of_no_pair_says_so(front_end: RunningFrontEnd) -> None:
    found = await ask(front_end)
    assert found.pop("at")
    assert found == {
        "name": "contoso",
        "role": "none",
        "partner": None,
        "entities": [],
        "backlog": {"queues": [], "active": 0, "dead_letter": 0, "is_limited": False, "oldest_at": None, "age_s": None},
        "syphon": {"links": 0, "moved": 0, "rate_per_s": 0.0, "eta_s": None},
        "is_partial": False,
    }


@covers("B4", "N8")
async def test_what_arrives_in_a_backlog_queue_is_told_by_its_destination(paired: RunningFrontEnd) -> None:
    for path in ("orders", "orders", "events"):
        await divert(paired, path)
    found = await ask(paired)
    assert (found["role"], found["is_partial"]) == ("secondary", True)
    assert found["partner"] == {"name": None, "state": "unreachable", "reason": "nobody listens there"}
    entities = {one["path"]: one for one in found["entities"]}
    assert set(entities) == {"orders", "events"}
    orders = entities["orders"]
    assert (orders["primary"], orders["state"], orders["diverted"], orders["waiting"]) == (
        "fabrikam",
        "failed-over",
        2,
        2,
    )
    assert [one["state"] for one in orders["segments"]] == ["failed-over"]
    assert orders["since"] == orders["segments"][0]["from"]
    assert orders["segments"][0]["to"] is None
    assert orders["pings"] == {"accepted": 0, "refused": 0, "last_at": None}
    (queue,) = found["backlog"]["queues"]
    assert (queue["path"], queue["active"], queue["receivers"]) == (BACKLOG, 3, 0)
    assert found["backlog"]["active"] == 3
    assert found["backlog"]["oldest_at"] == queue["oldest_at"] is not None
    assert 0.0 <= found["backlog"]["age_s"] < 60.0


@covers("B4", "P19")
async def test_a_backlog_queue_that_is_out_of_reach_is_told_without_counts(paired: RunningFrontEnd) -> None:
    await divert(paired, "orders")
    break_down(paired, f"entity/{BACKLOG}")
    found = await ask(paired)
    (queue,) = found["backlog"]["queues"]
    for part in (found["backlog"], queue):
        assert (part["active"], part["dead_letter"], part["is_limited"]) == (None, None, True)
    assert (queue["scheduled"], queue["size_bytes"]) == (None, None)
    assert [one["waiting"] for one in found["entities"]] == [None]
    assert found["syphon"]["eta_s"] is None
    again = view_from_document(await ask(paired, VIEW_PATH))
    assert [(one.counts, one.is_limited) for one in again.queues] == [(None, True)]


@covers("B4", "N10")
async def test_the_partners_view_completes_the_story(paired: RunningFrontEnd, partner: Partner) -> None:
    await divert(paired, "orders")
    now = paired.clock.now()
    seen = signs("orders", {Sign.REFUSED: [(0, 1, 2)], Sign.PING_REFUSED: [(2, 3, 2)]})
    partner.answer = view_to_document(view("fabrikam", 3.5, seen))
    found = await ask(paired)
    assert partner.asked == [VIEW_PATH]
    assert found["partner"] == {"name": "fabrikam", "state": "available", "reason": None}
    (orders,) = found["entities"]
    assert [one["state"] for one in orders["segments"]][:1] == ["failing"]
    assert orders["pings"]["refused"] == 2
    assert abs(paired.clock.now() - now) < 60.0
    assert not found["is_partial"]


@covers("B4")
@pytest.mark.parametrize("answer", [{}, {"name": 7}, {"error": {"status": 404}}])
async def test_a_partner_that_answers_with_something_else_is_as_good_as_away(
    paired: RunningFrontEnd, partner: Partner, answer: Mapping[str, object]
) -> None:
    partner.answer = answer
    found = await ask(paired)
    assert found["partner"]["state"] == "unreachable"
    assert found["partner"]["reason"]


@covers("B4")
async def test_nobody_waits_for_a_partner_that_hangs(tmp_path: Path) -> None:
    """What it said before is told as long as it is fresh."""
    hangs = asyncio.Event()
    clock = ManualClock(START)

    async def ask_partner(_path: str) -> Mapping[str, object]:
        if hangs.is_set():
            await asyncio.Event().wait()
        return view_to_document(view("fabrikam", clock.now() - START))

    async with running_front_end(tmp_path, clock=clock, surroundings=Surroundings(ask_partner=ask_partner)) as running:
        assert (await ask(running))["partner"]["state"] == "available"
        hangs.set()
        assert (await ask(running))["partner"]["state"] == "available"
        clock.advance(STALE_S + 1.0)
        found = (await ask(running))["partner"]
        assert (found["state"], found["reason"]) == ("unreachable", NOT_YET)


@covers("B4", "N5")
async def test_sends_that_a_fault_refuses_are_told_as_failing(paired: RunningFrontEnd) -> None:
    break_down(paired, "entity/orders")
    reply = await paired.request("POST", "/orders/messages", b"x")
    assert reply.status == 500
    (orders,) = (await ask(paired))["entities"]
    assert (orders["path"], orders["state"], orders["primary"]) == ("orders", "failing", "contoso")


@covers("B4")
async def test_the_own_view_asks_nobody(paired: RunningFrontEnd, partner: Partner) -> None:
    """Two partners that asked each other for more would never come to an end."""
    found = await ask(paired, VIEW_PATH)
    assert found["name"] == "contoso"
    assert partner.asked == []


@covers("B4")
async def test_many_who_look_at_once_cost_as_much_as_one(paired: RunningFrontEnd) -> None:
    await divert(paired, "orders")
    assert KEPT_S > 0.0
    first = await ask(paired, VIEW_PATH)
    assert (await ask(paired, VIEW_PATH))["at"] == first["at"]


@covers("B4")
async def test_many_who_look_at_once_ask_the_partner_once(tmp_path: Path, partner: Partner) -> None:
    clock, surroundings = ManualClock(START), Surroundings(ask_partner=partner.ask)
    async with running_front_end(tmp_path, clock=clock, surroundings=surroundings) as running:
        await asyncio.gather(ask(running), ask(running))
        await ask(running)
        assert partner.asked == [VIEW_PATH]
        clock.advance(KEPT_S)
        await ask(running)
        assert partner.asked == [VIEW_PATH, VIEW_PATH]


class WatchedSigns(list[EntitySigns]):
    """Knows which threads have looked through it."""

    def __init__(self, *found: EntitySigns) -> None:
        super().__init__(found)
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[EntitySigns]:
        self.threads.add(threading.get_ident())
        return super().__iter__()


@covers("B4")
@pytest.mark.parametrize("path", ["/$api/pair", VIEW_PATH])
async def test_the_story_of_many_entities_is_made_beside_the_loop(tmp_path: Path, path: str) -> None:
    watched = WatchedSigns(signs("orders", {Sign.REFUSED: [(0, 1, 2)]}))

    async def seen() -> Seen:
        return Seen(START, watched)

    async with running_front_end(tmp_path, surroundings=Surroundings(pair=seen)) as running:
        await ask(running, path)
    assert watched.threads
    assert threading.get_ident() not in watched.threads


@covers("B4", "M15")
@pytest.mark.parametrize("path", ["/$api/pair", VIEW_PATH])
async def test_only_who_may_manage_the_namespace_is_told(paired: RunningFrontEnd, path: str) -> None:
    assert (await paired.request("GET", path, token=None)).status == 401
    other = paired.token(policy="sender", key="c2VuZA==")
    assert (await paired.request("GET", path, token=other)).status == 401
    narrow = paired.token("orders")
    assert (await paired.request("GET", path, token=narrow)).status == 401
    assert (await paired.request("POST", path)).status == 405


@covers("B4", "B3")
async def test_it_is_told_also_while_a_fault_says_that_the_namespace_is_out(paired: RunningFrontEnd) -> None:
    break_down(paired, "namespace")
    assert (await ask(paired))["role"] == "none"
