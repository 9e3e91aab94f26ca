"""Looking at messages as JSON: by state, session, reason and number, in bounded steps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    message_annotations_section,
    properties_section,
)
from tandembus.amqp.encoding.values import timestamp
from tandembus.broker.locks import DEAD_LETTER, DEFER
from tandembus.clock import ManualClock
from tandembus.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.front_end.http.api.browsing import REASON_MESSAGES, SCAN_MESSAGES
from tandembus.front_end.http.api.message_json import LISTED_BODY_BYTES, SHOWN_BODY_BYTES
from tandembus.interconnect.answers import settle_all
from tandembus.limits import Limits
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.front_end.http.api.asking import ask, bodies, browse, entity_of, error, put_batch, put_in, told
from tests.unit.front_end.http.harness import RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_faults import put as put_fault

SOON = 4_000_000_000_000


@pytest.fixture
async def orders(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, clock=ManualClock()) as running:
        namespace = running.namespace
        await namespace.create_queue(QueueDescription("orders"))
        await namespace.create_queue(QueueDescription("wide", enable_partitioning=True))
        await namespace.create_queue(QueueDescription("talks", requires_session=True))
        await namespace.create_topic(TopicDescription("events"))
        await namespace.create_subscription(SubscriptionDescription("events", "all"))
        yield running


def text(body: str, key: str | None = None, session: str | None = None, at_ms: int | None = None) -> bytes:
    annotations: dict[str, object] = {} if key is None else {"x-opt-partition-key": key}
    if at_ms is not None:
        annotations["x-opt-scheduled-enqueue-time"] = timestamp(at_ms)
    head = message_annotations_section(annotations) if annotations else b""
    return head + properties_section(message_id=body, group_id=session) + data_section(body.encode())


async def settle(running: RunningFrontEnd, path: str, number: int, settlement: int, reason: str | None = None) -> None:
    entity = await entity_of(running, path)
    await entity.requests.ends(MAIN)
    taken = await entity.requests.take_waiting(MAIN, number, number + 1, 1, 1)
    ((lock, _),) = taken.messages
    lock.reason = reason
    await settle_all(entity.traffic, [lock], settlement)


@covers("M4", "B4")
async def test_messages_of_every_state_are_shown_and_stay_as_they_are(orders: RunningFrontEnd) -> None:
    _, deferred, _ = await put_in(orders, "orders", text("a"), text("b"), text("later", at_ms=SOON))
    await settle(orders, "orders", deferred, DEFER)
    for _ in range(2):
        found = await browse(orders, "orders")
        assert [(one["body"]["text"], one["state"]) for one in found] == [
            ("a", "active"),
            ("b", "deferred"),
            ("later", "scheduled"),
        ]
    for state, body in (("active", "a"), ("deferred", "b"), ("scheduled", "later")):
        assert bodies(await browse(orders, "orders", state=state)) == [body]
    assert found[2]["scheduled_for"] == "2096-10-02T07:06:40Z"
    counts = await orders.namespace.counts("orders")
    assert (counts.active, counts.scheduled) == (2, 1)


@covers("M4")
async def test_pages_go_on_where_the_last_one_ended(orders: RunningFrontEnd) -> None:
    numbers = await put_in(orders, "orders", *[text(str(number)) for number in range(7)])
    page = told(await ask(orders, "GET", "messages", path="orders", top=3))
    assert (bodies(page["messages"]), page["next"]) == (["0", "1", "2"], str(numbers[3]))
    page = told(await ask(orders, "GET", "messages", path="orders", top=4, **{"from": page["next"]}))
    assert (bodies(page["messages"]), page["next"]) == (["3", "4", "5", "6"], None)
    assert bodies(await browse(orders, "orders", top=1)) == list("0123456")
    page = told(await ask(orders, "GET", "messages", path="orders", **{"from": numbers[-1] + 1}))
    assert (page["messages"], page["next"], page["scanned"]) == ([], None, 0)


@covers("B4", "M3")
async def test_dead_letters_are_found_by_their_reason_and_their_reasons_counted(orders: RunningFrontEnd) -> None:
    reasons = ["broken", "late", None, "broken", "<script>", ""]
    for place, reason in enumerate(reasons):
        (number,) = await put_in(orders, "orders", text(str(place)))
        await settle(orders, "orders", number, DEAD_LETTER, reason)
    dead = {"sub_queue": "dead-letter"}
    assert bodies(await browse(orders, "orders", **dead)) == ["0", "1", "2", "3", "4", "5"]
    assert bodies(await browse(orders, "orders", **dead, reason="broken", top=1)) == ["0", "3"]
    assert bodies(await browse(orders, "orders", **dead, reason="")) == ["2", "5"]
    (hostile,) = await browse(orders, "orders", **dead, reason="<script>")
    assert hostile["dead_letter_reason"] == "<script>"
    assert told(await ask(orders, "GET", "messages/reasons", path="orders", **dead)) == {
        "reasons": [
            {"reason": None, "count": 2},
            {"reason": "broken", "count": 2},
            {"reason": "<script>", "count": 1},
            {"reason": "late", "count": 1},
        ],
        "scanned": 6,
        "is_complete": True,
    }


async def test_one_call_looks_at_a_bounded_number(orders: RunningFrontEnd) -> None:
    for _ in range(REASON_MESSAGES // SCAN_MESSAGES):
        await put_batch(orders, "orders", SCAN_MESSAGES)
    await put_in(orders, "orders", text("x", at_ms=SOON))
    page = told(await ask(orders, "GET", "messages", path="orders", state="scheduled"))
    assert (page["messages"], page["next"]) == ([], str(SCAN_MESSAGES + 1))
    assert page["scanned"] == SCAN_MESSAGES
    assert bodies(await browse(orders, "orders", state="scheduled")) == ["x"]
    reasons = told(await ask(orders, "GET", "messages/reasons", path="orders"))
    assert (reasons["scanned"], reasons["is_complete"]) == (REASON_MESSAGES, False)


async def test_one_page_holds_a_bounded_number_of_bytes(orders: RunningFrontEnd) -> None:
    large = application_properties_section({f"p{number}": "x" * 1000 for number in range(60)})
    await put_in(orders, "orders", *[large + data_section(b"x" * 100_000) for _ in range(60)])
    page = told(await ask(orders, "GET", "messages", path="orders", top=200))
    assert len(page["messages"]) < 60
    assert page["next"] is not None
    assert len(await browse(orders, "orders", top=200)) == 60


@covers("M4", "P22")
async def test_partitioned_entities_are_walked_fragment_after_fragment(orders: RunningFrontEnd) -> None:
    sent = [str(number) for number in range(40)]
    numbers = await put_in(orders, "wide", *[text(body, key=f"key-{body}") for body in sent])
    found = await browse(orders, "wide", top=7)
    assert sorted(bodies(found)) == sorted(sent)
    assert [int(one["sequence_number"]) for one in found] == sorted(numbers)
    assert [one["fragment"] for one in found] == [number >> 48 for number in sorted(numbers)]
    one = told(await ask(orders, "GET", "message", path="wide", sequence_number=max(numbers)))
    assert one["sequence_number"] == str(max(numbers))


@covers("P22")
async def test_while_a_fragment_is_out_the_others_are_shown(orders: RunningFrontEnd) -> None:
    sent = [str(number) for number in range(40)]
    numbers = await put_in(orders, "wide", *[text(body, key=f"key-{body}") for body in sent])
    out = numbers[0] >> 48
    fault = {"target": f"fragment/wide/{out}", "kind": "unavailable"}
    assert (await put_fault(orders, "out", fault)).status == 201
    page = told(await ask(orders, "GET", "messages", path="wide", top=200))
    expected = sorted([number for number in numbers if number >> 48 != out])
    assert [int(one["sequence_number"]) for one in page["messages"]] == expected
    assert page["is_partial"]
    status, detail = error(await ask(orders, "GET", "message", path="wide", sequence_number=numbers[0]))
    assert (status, "not every fragment" in detail) == (500, True)
    assert not told(await ask(orders, "GET", "messages/reasons", path="wide"))["is_complete"]


async def test_sessions_are_listed_and_looked_into(orders: RunningFrontEnd) -> None:
    for session in ("b", "a", "b"):
        await put_in(orders, "talks", text(f"of {session}", session=session))
    page = told(await ask(orders, "GET", "sessions", path="talks"))
    assert (sorted(page["sessions"]), page["has_more"]) == (["a", "b"], False)
    first = told(await ask(orders, "GET", "sessions", path="talks", top=1))
    rest = told(await ask(orders, "GET", "sessions", path="talks", top=1, skip=1))
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert sorted(first["sessions"] + rest["sessions"]) == ["a", "b"]
    assert bodies(await browse(orders, "talks", session="b")) == ["of b", "of b"]
    assert await browse(orders, "talks", session="c") == []
    assert error(await ask(orders, "GET", "sessions", path="orders"))[0] == 400


async def test_messages_of_a_queue_without_sessions_are_found_by_their_session_too(orders: RunningFrontEnd) -> None:
    await put_in(orders, "orders", text("a", session="s"), text("b"), text("c", session="s"))
    assert bodies(await browse(orders, "orders", session="s")) == ["a", "c"]


async def test_one_message_is_shown_with_its_body_and_a_list_with_its_beginning(orders: RunningFrontEnd) -> None:
    body = "x" * 100_000
    (number,) = await put_in(orders, "orders", data_section(body.encode()))
    (listed,) = await browse(orders, "orders")
    assert (len(listed["body"]["text"]), listed["body"]["is_truncated"]) == (LISTED_BODY_BYTES, True)
    one = told(await ask(orders, "GET", "message", path="orders", sequence_number=number))
    assert (one["body"]["text"], one["body"]["is_truncated"]) == (body, False)
    assert error(await ask(orders, "GET", "message", path="orders", sequence_number=number + 1))[0] == 404


async def test_the_body_of_one_message_is_cut_too(tmp_path: Path) -> None:
    limits = Limits(max_message_size_bytes=4 * SHOWN_BODY_BYTES)
    async with running_front_end(tmp_path, limits=limits) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        (number,) = await put_in(running, "orders", data_section(b"x" * (SHOWN_BODY_BYTES + 1)))
        one = told(await ask(running, "GET", "message", path="orders", sequence_number=number))
        assert (len(one["body"]["text"]), one["body"]["is_truncated"]) == (SHOWN_BODY_BYTES, True)
        assert one["body"]["size_bytes"] == SHOWN_BODY_BYTES + 1


async def test_entities_that_are_disabled_or_forward_can_be_looked_at(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_queue(QueueDescription("off", status=EntityStatus.RECEIVE_DISABLED))
    await put_in(orders, "off", text("a"))
    assert bodies(await browse(orders, "off")) == ["a"]


async def test_a_subscription_is_looked_at_and_a_topic_only_where_it_has_messages(orders: RunningFrontEnd) -> None:
    await put_in(orders, "events", text("a"), text("later", at_ms=SOON))
    assert bodies(await browse(orders, "events/subscriptions/all")) == ["a"]
    assert bodies(await browse(orders, "Events/Subscriptions/ALL")) == ["a"]
    assert bodies(await browse(orders, "events", state="scheduled")) == ["later"]
    assert error(await ask(orders, "GET", "messages", path="events", sub_queue="dead-letter"))[0] == 400


async def test_looking_is_metered(orders: RunningFrontEnd) -> None:
    await put_in(orders, "orders", text("a"), text("b"))
    await browse(orders, "orders")
    rows = [row for row in orders.meter.totals().since_start if row.operation == "peek"]
    assert [(row.entity, row.count.messages) for row in rows] == [("orders", 2)]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"path": "nothing"}, 404),
        ({"path": "orders/$management"}, 404),
        ({"path": "orders", "top": "0"}, 400),
        ({"path": "orders", "top": "201"}, 400),
        ({"path": "orders", "top": "1e1"}, 400),
        ({"path": "orders", "from": "-1"}, 400),
        ({"path": "orders", "from": str(2**63)}, 400),
        ({"path": "orders", "state": "dead"}, 400),
        ({"path": "orders", "sub_queue": "x"}, 400),
        ({"path": "orders", "session": "x" * 129}, 400),
    ],
)
async def test_what_is_no_such_request_is_refused(orders: RunningFrontEnd, query: dict[str, str], status: int) -> None:
    assert error(await ask(orders, "GET", "messages", None, **query))[0] == status
