"""Counters, today's bill and what a failover has cost, as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tandembus.clock import ManualClock
from tandembus.descriptions import QueueDescription
from tandembus.errors import StoreUnavailable
from tandembus.front_end.http.api.cost_watch import KEPT_S, USED_PATH
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.metering.paired_costs import diverted
from tandembus.metering.price_files import load_prices
from tandembus.metering.slot import COMPLETE, FAILOVER, PING, RECEIVE, SEND, SYPHON
from tandembus.pair_view.signs import Sign
from tandembus.pair_view.view import view_to_document
from tests.covers import covers
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.pair_view.told import START, queue, signs, view

BACKLOG = "contoso/x-servicebus-transfer/0"
PRICES = load_prices("us")


@dataclass
class Paired:
    """A primary whose clock stands at 100 s of the story, and what its partner says."""

    running: RunningFrontEnd
    clock: ManualClock
    asked: list[str]
    used: Mapping[str, object] | Exception

    async def ask(self, path: str) -> Mapping[str, object]:
        self.asked.append(path)
        if not path.startswith(USED_PATH):
            taken = signs("orders", {Sign.DIVERTED: [(10, 50, 20)], Sign.TAKEN: [(60, 70, 20)]}, "contoso")
            return view_to_document(view("backup", self.clock.now() - START, taken, queues=[queue("contoso")]))
        if isinstance(self.used, Exception):
            raise self.used
        return self.used


@pytest.fixture
async def paired(tmp_path: Path) -> AsyncIterator[Paired]:
    clock = ManualClock(START + 1.0)
    made: list[Paired] = []

    async def ask(path: str) -> Mapping[str, object]:
        return await made[0].ask(path)

    surroundings = Surroundings(meter_folder=tmp_path / "meter", ask_partner=ask)
    async with running_front_end(tmp_path, clock=clock, surroundings=surroundings) as running:
        made.append(Paired(running, clock, [], used_by_the_secondary(20)))
        yield made[0]


def used_by_the_secondary(messages: int) -> Mapping[str, object]:
    day = "2023-11-14"
    return {
        "rows": [
            [day, BACKLOG, SEND, FAILOVER, messages, messages, messages, 2048 * messages],
            [day, BACKLOG, RECEIVE, SYPHON, messages, messages, messages, 2048 * messages],
            [day, BACKLOG, COMPLETE, SYPHON, messages, messages, messages, 0],
            [day, "fabrikam/x-servicebus-transfer/0", SEND, FAILOVER, 999, 999, 999, 0],
        ],
        "is_complete": True,
    }


async def ask(running: RunningFrontEnd, path: str = "/$api/cost") -> Any:
    reply = await running.request("GET", path)
    assert reply.status == 200, reply.text
    return json.loads(reply.body)


@covers("B4", "D4")
async def test_counters_are_told_live_by_operation_and_reason(front_end: RunningFrontEnd) -> None:
    for name in ("orders", "bills"):
        await front_end.namespace.create_queue(QueueDescription(name))
        assert (await front_end.request("POST", f"/{name}/messages", b"x")).status == 201
    found = await ask(front_end)
    sent = [row for row in found["counters"] if row["operation"] == "send"]
    assert [(row["reason"], row["calls"], row["messages"], row["operations"]) for row in sent] == [("normal", 2, 2, 2)]
    assert found["since"] <= found["at"]
    assert found["failover"] is None


@covers("B4", "D4")
async def test_todays_bill_is_that_of_today_by_the_prices_that_are_asked_for(paired: Paired) -> None:
    meter = paired.running.meter
    meter.count("orders", SEND, "normal", 1_000, 1_000, 0)
    paired.clock.advance(86_400.0)
    meter.flush()
    meter.count("orders", SEND, "normal", 3_000, 3_000, 0)
    meter.count("orders", SEND, PING, 10, 10, 0)
    paired.clock.advance(5.0)
    meter.flush()
    paired.clock.advance(KEPT_S)
    today = (await ask(paired.running, "/$api/cost?prices=us"))["today"]
    assert (today["date"], today["operations"]) == ("2023-11-15", 3_010)
    lines = {line["what"]: (line["quantity"], Decimal(line["cost"])) for line in today["lines"]}
    each = PRICES.further_operations_cost(PRICES.included_operations, 1)
    assert lines["send"] == (3_000, 3_000 * each)
    assert lines["send (ping)"] == (10, 10 * each)
    assert lines["base charge, by the hour"] == (23, PRICES.base_cost(23))
    assert Decimal(today["total"]) == 3_010 * each + PRICES.base_cost(23)


@covers("B4", "D4", "N13")
async def test_a_failover_costs_what_the_calculator_tells_of_both_namespaces(paired: Paired) -> None:
    meter = paired.running.meter
    paired.clock.advance(60.0)
    meter.flush()
    meter.count("orders", SEND, SYPHON, 20, 20, 2048 * 20)
    meter.count("orders", SEND, PING, 4, 4, 0)
    meter.flush()
    paired.clock.advance(15.0)
    meter.flush()
    failover = (await ask(paired.running))["failover"]
    expected = diverted(20, 2048, PRICES.counting)
    assert (failover["since"], failover["until"]) == ("2023-11-14T22:13:30Z", None)
    assert failover["operations"] == expected.operations + 4
    each = PRICES.further_operations_cost(PRICES.included_operations, 1)
    assert Decimal(failover["without"]) == expected.normal_operations * each
    assert Decimal(failover["extra"]) == (expected.further_operations + 4) * each
    assert Decimal(failover["total"]) == Decimal(failover["without"]) + Decimal(failover["extra"])
    lines = {line["what"]: line["quantity"] for line in failover["lines"]}
    assert lines["1 send to the backlog"] == lines["3 send to the primary"] == 20, "another primary's are not ours"
    assert lines["pings accepted"] == 4
    assert sum([Decimal(line["cost"]) for line in failover["lines"]]) == Decimal(failover["extra"])
    assert not failover["is_partial"]


@covers("B4")
@pytest.mark.parametrize(
    "answer",
    [
        StoreUnavailable("away"),
        {},
        {"rows": [["2023-11-14", "a", "steal", "normal", 1, 1, 1, 1]]},
        {"rows": [["2023-11-14", "a", "send", "normal", 1, 1, 1, -1]]},
        {"rows": [["someday", "a", "send", "normal", 1, 1, 1, 1]]},
        {"rows": [[1]]},
        {"rows": [["2023-11-14", None, "send", "normal", 1, 1, 1, True]]},
        {"rows": [[]] * 20_001},
    ],
)
async def test_without_the_partners_part_the_own_is_told_and_that_it_is_not_all(
    paired: Paired, answer: Mapping[str, object] | Exception
) -> None:
    paired.used = answer
    paired.clock.advance(70.0)
    paired.running.meter.flush()
    paired.running.meter.count("orders", SEND, PING, 4, 4, 0)
    paired.running.meter.flush()
    failover = (await ask(paired.running))["failover"]
    assert (failover["operations"], failover["is_partial"]) == (4, True)


@covers("B4")
async def test_the_partner_is_told_what_was_used_and_asks_nobody(paired: Paired) -> None:
    paired.running.meter.count("orders", SEND, PING, 4, 4, 0)
    paired.running.meter.count("orders", SEND, "normal", 400, 400, 0)
    paired.running.meter.flush()
    found = await ask(paired.running, f"{USED_PATH}?since={int(START)}")
    assert found == {"rows": [["2023-11-14", "orders", "send", "ping", 1, 4, 4, 0]], "is_complete": True}
    assert paired.asked == []
    assert (await ask(paired.running, f"{USED_PATH}?since=0&until=1"))["rows"] == []


@covers("B4", "M15")
@pytest.mark.parametrize("path", ["/$api/cost", f"{USED_PATH}?since=0"])
async def test_only_who_may_manage_the_namespace_is_told(front_end: RunningFrontEnd, path: str) -> None:
    assert (await front_end.request("GET", path, token=None)).status == 401
    other = front_end.token(policy="sender", key="c2VuZA==")
    assert (await front_end.request("GET", path, token=other)).status == 401


@covers("B4", "M15")
@pytest.mark.parametrize(
    "path",
    [
        "/$api/cost?prices=/etc/passwd",
        "/$api/cost?prices=../us",
        "/$api/cost?prices=",
        USED_PATH,
        f"{USED_PATH}?since=x",
        f"{USED_PATH}?since=-1",
        f"{USED_PATH}?since=0&until=99999999999999",
    ],
)
async def test_no_file_and_no_time_but_the_known_ones_can_be_asked_for(front_end: RunningFrontEnd, path: str) -> None:
    reply = await front_end.request("GET", path)
    assert reply.status == 400, reply.text
    assert "passwd" not in reply.text or "none of the price lists" in reply.text
