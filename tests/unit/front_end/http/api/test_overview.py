"""The namespace at one glance, and its partner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tandembus.descriptions import AuthorizationRule, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import StoreUnavailable
from tandembus.faults.fault import read_fault
from tandembus.front_end.http.api.census import OTHERS_PER_LOOK, CensusTaker
from tandembus.front_end.http.api.overview import PARTNER_PATH, unreachable
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.http.topology import TopologyQuery
from tandembus.interconnect.requests import Counts
from tandembus.namespace.entries import Entry
from tests.covers import covers
from tests.unit.front_end.http.api.browser import Browser, document_of
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end

OTHER = {**unreachable("fabrikam", ""), "state": "available", "reason": None, "queues": 7}


async def looked_at(browser: Browser, query: str = "") -> tuple[dict[str, Any], dict[str, Any] | None]:
    reply = await browser.ask("GET", f"overview{query}")
    assert reply.status == 200, reply.text
    document = document_of(reply)
    return cast(dict[str, Any], document["namespace"]), cast(dict[str, Any] | None, document["partner"])


@covers("B4")
async def test_an_overview_counts_entities_messages_and_traffic(browser: Browser) -> None:
    front_end = browser.front_end
    await front_end.namespace.create_queue(QueueDescription("orders"))
    await front_end.namespace.create_topic(TopicDescription("events"))
    for name in ("one", "two"):
        await front_end.namespace.create_subscription(SubscriptionDescription("events", name))
    for path in ("orders", "orders", "events"):
        await front_end.request("POST", f"/{path}/messages", "hello")
    await front_end.request("DELETE", "/orders/messages/head?timeout=1")
    await browser.sign_in()
    own, partner = await looked_at(browser)
    assert partner is None
    assert (own["name"], own["state"], own["reason"], own["faults"]) == ("contoso", "available", None, 0)
    assert (own["queues"], own["topics"], own["subscriptions"], own["counted_entities"]) == (1, 1, 2, 4)
    assert (own["active"], own["scheduled"], own["dead_letter"]) == (1 + 2, 0, 0)
    assert own["size_bytes"] > 0
    assert (own["counters"]["sent"], own["counters"]["received"]) == (3, 1)
    assert set(own) == set(unreachable(None, ""))


@covers("B4", "M15")
async def test_counts_and_reasons_are_for_those_who_may_know_them(tmp_path: Path) -> None:
    async def topology(_query: TopologyQuery) -> Mapping[str, object]:
        return {
            "brokers": [{"index": 0, "state": "ready", "pid": 7}],
            "stores": [{"index": 3, "state": "unavailable", "reason": "/var/lib is gone"}],
            "front_ends": [{"connections": 2}, {"connections": 3}],
        }

    async with running_front_end(tmp_path, surroundings=Surroundings(topology)) as front_end:
        for right in ("Send", "Listen", "Manage"):
            rule = AuthorizationRule(right, f"a2V5IG9mIG9uZSBy{right}", "", frozenset([right]))
            await front_end.namespace.put_policy(rule)
            browser = Browser(front_end)
            await browser.sign_in(right, rule.primary_key)
            own, _ = await looked_at(browser)
            assert (own["state"], own["connections"]) == ("limited", 5)
            assert own["brokers"] == [{"index": 0, "state": "ready"}]
            reason = "/var/lib is gone" if right == "Manage" else None
            assert own["stores"] == [{"index": 3, "state": "unavailable", "reason": reason}]
            assert own["reason"] == (f"Messaging store 3: {reason}" if reason else None)
            assert (own["active"] is None) == (right == "Send")


@covers("B4", "B3")
async def test_an_overview_tells_faults_and_is_told_also_of_a_namespace_that_is_out(browser: Browser) -> None:
    await browser.sign_in()
    await browser.request("PUT", "/$faults/all", {"target": "namespace", "kind": "unavailable"})
    own, _ = await looked_at(browser)
    assert (own["state"], own["faults"]) == ("unreachable", 1)
    assert own["reason"]


class OtherNamespace:
    """Answers what a test says, when it says so."""

    def __init__(self) -> None:
        self.answer: Mapping[str, object] | StoreUnavailable = {"namespace": OTHER}
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked: list[str] = []

    async def ask(self, path: str) -> Mapping[str, object]:
        self.asked.append(path)
        await self.may_answer.wait()
        if isinstance(self.answer, StoreUnavailable):
            raise StoreUnavailable(str(self.answer))
        return self.answer

    def surroundings(self) -> Surroundings:
        return Surroundings(ask_partner=self.ask, partner_name=lambda: "fabrikam")


@covers("B4")
async def test_the_partner_is_shown_to_those_who_may_manage(tmp_path: Path) -> None:
    other = OtherNamespace()
    async with running_front_end(tmp_path, surroundings=other.surroundings()) as front_end:
        browser = Browser(front_end)
        await browser.sign_in("sender", "c2VuZA==")
        assert (await looked_at(browser))[1] is None
        assert document_of(await browser.ask("GET", "session"))["partner"] is None
        await browser.sign_in()
        assert document_of(await browser.ask("GET", "session"))["partner"] == "fabrikam"
        assert other.asked == []
        assert (await looked_at(browser))[1] == OTHER
        assert other.asked == [PARTNER_PATH]
        # Two that asked for each other's partners would never come to an end.
        assert (await looked_at(browser, "?alone=1"))[1] is None


@covers("B4")
async def test_a_partner_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path) -> None:
    other = OtherNamespace()
    other.may_answer.clear()
    async with running_front_end(tmp_path, surroundings=other.surroundings()) as front_end:
        browser = Browser(front_end)
        await browser.sign_in()
        for _ in range(3):
            own, partner = await looked_at(browser)
            assert own["state"] == "available"
            assert partner == unreachable("fabrikam", "It has not answered yet.")
        assert len(other.asked) == 1  # and is not asked again meanwhile


@covers("B4")
async def test_what_a_partner_tells_beside_the_point_is_not_passed_on(tmp_path: Path) -> None:
    for answer, state, reason in (
        ({"namespace": {**OTHER, "more": "<script>"}}, "available", None),
        ({"namespace": {"name": "x"}}, "unreachable", "Its answer is not one of a namespace."),
        ({"namespace": ["x"]}, "unreachable", "Its answer is not one of a namespace."),
        ({}, "unreachable", "Its answer is not one of a namespace."),
        (StoreUnavailable("It cannot be reached."), "unreachable", "It cannot be reached."),
    ):
        other = OtherNamespace()
        other.answer = cast(Mapping[str, object] | StoreUnavailable, answer)
        async with running_front_end(tmp_path, surroundings=other.surroundings()) as front_end:
            browser = Browser(front_end)
            await browser.sign_in()
            _, partner = await looked_at(browser)
            assert partner is not None
            assert (partner["name"], partner["state"], partner["reason"]) == ("fabrikam", state, reason)
            assert set(partner) == set(OTHER)


async def census_of(front_end: RunningFrontEnd, counted: list[str]) -> CensusTaker:
    async def count(entry: Entry) -> list[Counts | None]:
        counted.append(entry.key)
        return [Counts(active=1, size_bytes=10)]

    return CensusTaker(front_end.namespace, count, front_end.clock)


@covers("B4", "M13")
async def test_of_many_entities_only_a_few_are_counted_at_each_look(front_end: RunningFrontEnd) -> None:
    for number in range(2 * OTHERS_PER_LOOK + 1):
        await front_end.namespace.create_queue(QueueDescription(f"q{number:03}"))
    counted: list[str] = []
    taker = await census_of(front_end, counted)
    census = await taker.look()
    assert counted == [f"q{number:03}" for number in range(OTHERS_PER_LOOK)]
    assert (census.counted_entities, census.active, census.size_bytes) == (25, 25, 250)
    assert await taker.look() == census  # within the same second nothing is counted again
    assert len(counted) == OTHERS_PER_LOOK


@covers("B4")
async def test_a_census_becomes_whole_and_forgets_what_was_deleted(front_end: RunningFrontEnd) -> None:
    for number in range(OTHERS_PER_LOOK + 5):
        await front_end.namespace.create_queue(QueueDescription(f"q{number:03}"))
    taker = await census_of(front_end, [])
    for _ in range(2):
        await taker._look()
    assert (await taker.look()).counted_entities == OTHERS_PER_LOOK + 5
    await front_end.namespace.delete_queue("q003")
    assert (await taker.look()).active == OTHERS_PER_LOOK + 4
    await taker.stop()


@covers("B4", "P19")
async def test_what_cannot_be_counted_any_more_is_not_in_the_sums(front_end: RunningFrontEnd) -> None:
    answers: list[list[Counts | None]] = [[Counts(active=1), Counts(active=2)], [Counts(active=1), None], [None, None]]

    async def count(_entry: Entry) -> list[Counts | None]:
        return answers.pop(0)

    await front_end.namespace.create_queue(QueueDescription("orders"))
    taker = CensusTaker(front_end.namespace, count, front_end.clock)
    for told in ((1, 1, 3), (1, 0, 1), (0, 0, 0)):
        await taker._look()
        census = taker._census
        assert (census.known_entities, census.counted_entities, census.active) == told


@covers("B4", "P19")
async def test_when_nothing_can_be_counted_the_sums_are_unknown_and_not_0(browser: Browser) -> None:
    namespace = browser.front_end.namespace
    await browser.sign_in()
    own, _ = await looked_at(browser)
    assert (own["active"], own["counted_entities"]) == (0, 0), "there is nothing to count"
    await namespace.create_queue(QueueDescription("orders"))
    namespace.faults.put(read_fault("drill", {"target": "entity/orders", "kind": "unavailable"}))
    own, _ = await looked_at(browser)
    assert own["counted_entities"] == 0
    assert [own[name] for name in ("active", "scheduled", "dead_letter", "size_bytes")] == [None] * 4


@covers("B4")
async def test_what_is_in_use_is_counted_first(front_end: RunningFrontEnd) -> None:
    for number in range(OTHERS_PER_LOOK + 5):
        await front_end.namespace.create_queue(QueueDescription(f"q{number:03}"))
    last = f"q{OTHERS_PER_LOOK + 4:03}"
    (await front_end.namespace.entity(last)).accessed_at = front_end.clock.now()
    counted: list[str] = []
    await (await census_of(front_end, counted)).look()
    assert counted[0] == last
    assert counted.count(last) == 1
