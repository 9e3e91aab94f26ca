"""Many messages at once: resubmitted, moved, deleted, exported; one sent again in place of the original."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    data_section,
    header_section,
)
from tandembus.broker.locks import COMPLETE, DEAD_LETTER, DEFER
from tandembus.clock import ManualClock
from tandembus.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tandembus.errors import Unauthorized
from tandembus.front_end.http.taking import Progress, Taking
from tandembus.interconnect.answers import settle_all
from tandembus.limits import Limits
from tandembus.security.claims import Policy, Right
from tandembus.store import messaging_store
from tests.covers import covers
from tests.unit.front_end.http.api.asking import (
    JSON,
    ask,
    ask_with,
    bodies,
    browse,
    entity_of,
    error,
    lines,
    put_batch,
    put_in,
    told,
    url,
)
from tests.unit.front_end.http.api.test_browsing import SOON, settle, text
from tests.unit.front_end.http.harness import ROOT, RunningFrontEnd, running_front_end
from tests.unit.front_end.http.test_faults import put as put_fault

DEAD = {"sub_queue": "dead-letter"}
SHAPES = pytest.mark.parametrize("path", ["orders", "wide", "events/subscriptions/all"])


@pytest.fixture
async def orders(tmp_path: Path) -> AsyncIterator[RunningFrontEnd]:
    async with running_front_end(tmp_path, clock=ManualClock()) as running:
        namespace = running.namespace
        await namespace.create_queue(QueueDescription("orders"))
        await namespace.create_queue(QueueDescription("other"))
        await namespace.create_queue(QueueDescription("once", requires_duplicate_detection=True))
        await namespace.create_queue(QueueDescription("wide", enable_partitioning=True))
        await namespace.create_queue(QueueDescription("talks", requires_session=True))
        await namespace.create_topic(TopicDescription("events"))
        await namespace.create_subscription(SubscriptionDescription("events", "all"))
        yield running


async def die(running: RunningFrontEnd, path: str, *reasons: str | None, start: int = 0) -> list[str]:
    """Dead letters with these reasons; the sequence numbers that they have there."""
    home = path.split("/")[0]
    for place, reason in enumerate(reasons, start):
        await put_in(running, home, text(str(place), key=f"key-{place}"))
        (waiting,) = await browse(running, path, state="active")
        await settle(running, path, int(waiting["sequence_number"]), DEAD_LETTER, reason)
    dead = await browse(running, path, **DEAD)
    return [one["sequence_number"] for one in sorted(dead, key=lambda one: int(one["body"]["text"]))]


async def act(running: RunningFrontEnd, path: str, document: dict[str, Any], **query: object) -> dict[str, Any]:
    """What the last line says."""
    *parts, last = lines(await ask(running, "POST", "messages/act", document, path=path, **query))
    assert all(part.keys() == {"done", "failed"} for part in parts)
    assert last.pop("end") is True
    return last


def done(count: int, *failures: tuple[str, str]) -> dict[str, Any]:
    told = [{"sequence_number": number, "error": text} for number, text in failures]
    return {"done": count, "failed": len(failures), "failures": told, "error": None}


async def shown(running: RunningFrontEnd, path: str, **query: object) -> list[str]:
    return sorted(bodies(await browse(running, path, **query)))


# Resubmitting and moving.


@covers("B4", "M3")
@SHAPES
async def test_chosen_dead_letters_go_back_and_the_others_stay(orders: RunningFrontEnd, path: str) -> None:
    numbers = await die(orders, path, "a", "b", "a", None)
    task = {"action": "resubmit", "sequence_numbers": [numbers[1], numbers[3]]}
    assert await act(orders, path, task, **DEAD) == done(2)
    assert await shown(orders, path) == ["1", "3"]
    assert await shown(orders, path, **DEAD) == ["0", "2"]
    for one in await browse(orders, path):
        assert (one["dead_letter_reason"], one["delivery_count"]) == (None, 0)


@covers("B4", "M3")
@SHAPES
async def test_all_dead_letters_of_one_reason_go_back(orders: RunningFrontEnd, path: str) -> None:
    await die(orders, path, "a", "b", "a", None)
    assert await act(orders, path, {"action": "resubmit", "reason": "a"}, **DEAD) == done(2)
    assert await shown(orders, path) == ["0", "2"]
    assert await act(orders, path, {"action": "resubmit", "reason": ""}, **DEAD) == done(1)
    assert await shown(orders, path) == ["0", "2", "3"]
    assert await act(orders, path, {"action": "resubmit"}, **DEAD) == done(1)
    assert await shown(orders, path, **DEAD) == []


@SHAPES
async def test_dead_letters_are_moved_elsewhere(orders: RunningFrontEnd, path: str) -> None:
    numbers = await die(orders, path, "a", "b")
    assert await act(orders, path, {"action": "move", "sequence_numbers": numbers, "to": "other"}, **DEAD) == done(2)
    assert await shown(orders, "other") == ["0", "1"]
    assert await shown(orders, path, **DEAD) == []


async def test_waiting_messages_are_moved_with_what_they_have(orders: RunningFrontEnd) -> None:
    marked = application_properties_section({"DeadLetterReason": "mine"})
    mortal = header_section(durable=True, ttl_ms=60_000)
    numbers = await put_in(orders, "orders", mortal + marked + data_section(b"a"), text("b"))
    task = {"action": "move", "to": "other", "sequence_numbers": [str(numbers[0])]}
    assert await act(orders, "orders", task) == done(1)
    (moved,) = await browse(orders, "other")
    assert (moved["body"]["text"], moved["dead_letter_reason"], moved["time_to_live_s"]) == ("a", "mine", 60.0)
    assert await act(orders, "orders", {"action": "move", "to": "other"}) == done(1)
    assert await shown(orders, "orders") == []


async def test_deferred_messages_are_moved_when_they_are_chosen(orders: RunningFrontEnd) -> None:
    (number,) = await put_in(orders, "orders", text("a"))
    await settle(orders, "orders", number, DEFER)
    assert await act(orders, "orders", {"action": "move", "to": "other"}) == done(0)
    task = {"action": "move", "to": "other", "sequence_numbers": [str(number)]}
    assert await act(orders, "orders", task) == done(1)
    assert await shown(orders, "other") == ["a"]


@covers("B4")
async def test_what_cannot_be_moved_stays_and_is_named(orders: RunningFrontEnd) -> None:
    numbers = await die(orders, "orders", "a", "b", "c", "d")
    await put_in(orders, "once", text("1"))
    lane = messaging_store.DEAD_LETTER
    entity = await entity_of(orders, "orders")
    await entity.requests.take_waiting(lane, int(numbers[2]), int(numbers[2]) + 1, 1, 1)  # somebody has it
    task = {"action": "move", "to": "once", "sequence_numbers": [*numbers, "999"]}
    told = await act(orders, "orders", task, **DEAD)
    assert (told["done"], told["failed"], told["error"]) == (2, 3, None)
    why = {failure["sequence_number"]: failure["error"] for failure in told["failures"]}
    assert why.keys() == {numbers[1], numbers[2], "999"}
    assert "duplicate" in why[numbers[1]]
    assert "somebody has it" in why[numbers[2]]
    assert await shown(orders, "orders", **DEAD) == ["1", "2"]


async def test_while_a_fragment_is_out_the_others_are_moved(orders: RunningFrontEnd) -> None:
    numbers = await die(orders, "wide", *["a"] * 12)
    out = int(numbers[0]) >> 48
    assert (await put_fault(orders, "f", {"target": f"fragment/wide/{out}", "kind": "unavailable"})).status == 201
    there = [number for number in numbers if int(number) >> 48 != out]
    told = await act(orders, "wide", {"action": "move", "to": "other", "sequence_numbers": numbers}, **DEAD)
    assert (told["done"], told["failed"]) == (len(there), len(numbers) - len(there))
    assert (await orders.request("DELETE", "/$faults/f")).status == 200
    assert len(await browse(orders, "wide", **DEAD)) == len(numbers) - len(there)
    assert len(await browse(orders, "other")) == len(there)


async def test_progress_is_told_slice_by_slice(orders: RunningFrontEnd) -> None:
    await put_batch(orders, "orders", 250)
    reply = await ask(orders, "POST", "messages/act", {"action": "move", "to": "other"}, path="orders")
    assert [(line["done"], line["failed"]) for line in lines(reply)] == [(100, 0), (200, 0), (250, 0), (250, 0)]
    moves = [row for row in orders.meter.totals().since_start if (row.entity, row.operation) == ("other", "send")]
    assert [row.count.messages for row in moves] == [250]


async def test_it_ends_when_the_claim_does(orders: RunningFrontEnd) -> None:
    await put_batch(orders, "orders", 2_000)
    token = orders.token(policy="mover", key="bW92ZQ==")
    mover = Policy("mover", "bW92ZQ==", "", frozenset([Right.SEND, Right.LISTEN]))
    root = orders.authorizer.policies()[ROOT]
    orders.authorizer.set_policies("", [root, mover])
    async with aiohttp.ClientSession() as session:
        task = json.dumps({"action": "move", "to": "other"})
        target = f"http://127.0.0.1:{orders.port}{url('messages/act', path='orders')}"
        async with session.post(target, data=task, headers={**JSON, "Authorization": token}) as response:
            assert json.loads(await response.content.readline())["done"] == 100
            orders.authorizer.set_policies("", [root])
            rest = [json.loads(line) for line in (await response.content.read()).splitlines()]
    assert "no longer valid" in rest[-1]["error"]
    left, moved = len(await browse(orders, "orders", top=200)), len(await browse(orders, "other", top=200))
    assert (left + moved, rest[-1]["done"]) == (2_000, moved)
    assert left > 0


# Deleting.


@SHAPES
async def test_chosen_messages_are_deleted(orders: RunningFrontEnd, path: str) -> None:
    numbers = await die(orders, path, "a", "b", "c")
    task = {"action": "delete", "sequence_numbers": [numbers[0], numbers[2]]}
    assert await act(orders, path, task, **DEAD) == done(2)
    assert await shown(orders, path, **DEAD) == ["1"]
    told = await act(orders, path, task, **DEAD)
    assert (told["done"], told["failed"]) == (0, 2)


@SHAPES
async def test_dead_letters_of_one_reason_are_deleted_or_all(orders: RunningFrontEnd, path: str) -> None:
    await die(orders, path, "a", "b", "a", None)
    assert await act(orders, path, {"action": "delete", "reason": "a"}, **DEAD) == done(2)
    assert await shown(orders, path, **DEAD) == ["1", "3"]
    assert await act(orders, path, {"action": "delete"}, **DEAD) == done(2)
    assert await shown(orders, path, **DEAD) == []


async def test_deferred_and_scheduled_messages_are_deleted_when_they_are_chosen(orders: RunningFrontEnd) -> None:
    deferred, scheduled = await put_in(orders, "orders", text("a"), text("b", at_ms=SOON))
    await settle(orders, "orders", deferred, DEFER)
    assert await act(orders, "orders", {"action": "delete"}) == done(0)
    task = {"action": "delete", "sequence_numbers": [str(deferred), str(scheduled)]}
    assert await act(orders, "orders", task) == done(2)
    assert await browse(orders, "orders") == []


# Refused.


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({}, "none of resubmit, move, delete"),
        ({"action": "burn"}, "none of resubmit"),
        ({"action": ["move"]}, "none of resubmit"),
        ({"action": "move"}, "where the messages"),
        ({"action": "resubmit"}, "Only dead letters"),
        ({"action": "delete", "to": "other"}, "goes nowhere"),
        ({"action": "delete", "sequence_numbers": []}, "1 to 4000"),
        ({"action": "delete", "sequence_numbers": [str(number) for number in range(4001)]}, "1 to 4000"),
        ({"action": "delete", "sequence_numbers": ["1", "1"]}, "twice"),
        ({"action": "delete", "sequence_numbers": ["x"]}, "no sequence number"),
        ({"action": "delete", "sequence_numbers": [True]}, "no sequence number"),
        ({"action": "delete", "sequence_numbers": [1.5]}, "no sequence number"),
        ({"action": "delete", "sequence_numbers": "1"}, "1 to 4000"),
        ({"action": "delete", "sequence_numbers": ["1"], "reason": "a"}, "Either"),
        ({"action": "delete", "reason": 5}, "must be a text"),
        ({"action": "delete", "all": True}, "unknown key"),
        ({"action": "move", "to": "other/$deadletterqueue"}, "queue or topic"),
        ({"action": "move", "to": "events/subscriptions/all"}, "subscription"),
    ],
)
async def test_what_is_no_such_task_is_refused_before_anything_is_done(
    orders: RunningFrontEnd, document: dict[str, object], part: str
) -> None:
    await put_in(orders, "orders", text("a"))
    status, told = error(await ask(orders, "POST", "messages/act", document, path="orders"))
    assert (status, part in told) == (400, True), told
    assert await shown(orders, "orders") == ["a"]


async def test_messages_of_sessions_are_not_taken_from_who_may_hold_them(orders: RunningFrontEnd) -> None:
    (number,) = await put_in(orders, "talks", text("a", session="s"))
    for document in ({"action": "move", "to": "other"}, {"action": "move", "to": "other", "sequence_numbers": ["1"]}):
        status, told = error(await ask(orders, "POST", "messages/act", document, path="talks"))
        assert (status, "requires sessions" in told) == (400, True)
    resend = await ask(
        orders, "POST", "messages/resend", {"remove": True}, path="talks", sequence_number=number, to="other"
    )
    assert error(resend)[0] == 400
    assert await act(orders, "talks", {"action": "delete", "sequence_numbers": [str(number)]}) == done(1)


async def test_a_target_that_is_not_there_or_takes_nothing_is_refused(orders: RunningFrontEnd) -> None:
    await orders.namespace.create_queue(QueueDescription("off", status=EntityStatus.SEND_DISABLED))
    for target, status in (("nothing", 404), ("off", 403)):
        document = {"action": "move", "to": target}
        assert error(await ask(orders, "POST", "messages/act", document, path="orders"))[0] == status


# Sending again.


@covers("B4")
@SHAPES
async def test_an_edited_message_takes_the_place_of_the_original(orders: RunningFrontEnd, path: str) -> None:
    (number,) = await die(orders, path, "broken")
    document = {"body": {"text": "mended"}, "message_id": "new", "partition_key": "k", "remove": True}
    sent = told(await ask(orders, "POST", "messages/resend", document, path=path, sequence_number=number, **DEAD), 201)
    assert sent["removed"] is True
    (found,) = await browse(orders, path)
    assert (found["body"]["text"], found["message_id"], found["partition_key"]) == ("mended", "new", "k")
    assert await browse(orders, path, **DEAD) == []


async def test_without_remove_the_original_stays_and_without_a_body_it_lends_its_own(orders: RunningFrontEnd) -> None:
    (number,) = await put_in(orders, "orders", amqp_value_section({"a": uuid.UUID(int=1)}))
    reply = await ask(
        orders, "POST", "messages/resend", {"subject": "again"}, path="orders", sequence_number=number, to="other"
    )
    assert told(reply, 201) == {"sequence_number": "1", "removed": False}
    (original,), (sent,) = await browse(orders, "orders"), await browse(orders, "other")
    assert (sent["subject"], sent["body"]) == ("again", original["body"])
    assert sent["body"]["kind"] == "value"


@pytest.mark.parametrize("state", ["active", "deferred", "scheduled"])
async def test_messages_of_every_state_are_replaced(orders: RunningFrontEnd, state: str) -> None:
    (number,) = await put_in(orders, "orders", text("a", at_ms=SOON if state == "scheduled" else None))
    if state == "deferred":
        await settle(orders, "orders", number, DEFER)
    document = {"body": {"text": "b"}, "remove": True}
    told(await ask(orders, "POST", "messages/resend", document, path="orders", sequence_number=number), 201)
    (found,) = await browse(orders, "orders")
    assert (found["body"]["text"], found["state"]) == ("b", "active")


async def test_the_original_stays_when_the_new_one_is_refused_or_dropped(orders: RunningFrontEnd) -> None:
    (number,) = await put_in(orders, "once", text("id"))
    place = {"path": "once", "sequence_number": number}
    for document, status in (
        ({"message_id": "id", "remove": True}, 400),
        ({"body": {"text": "x" * 300_000}, "remove": True}, 403),
        ({"message_id": "new", "remove": "yes"}, 400),
    ):
        assert error(await ask(orders, "POST", "messages/resend", document, **place))[0] == status
    (found,) = await browse(orders, "once")
    assert (found["body"]["text"], found["delivery_count"]) == ("id", 0)
    entity = await entity_of(orders, "once")
    assert (await entity.requests.take_waiting(0, number, number + 1, 1, 1)).messages  # nobody holds it
    missing = await ask(orders, "POST", "messages/resend", {}, path="orders", sequence_number=5)
    assert error(missing)[0] == 404


# Exporting.


@covers("B4")
@SHAPES
async def test_an_export_has_every_message_whole_and_can_be_sent_again(orders: RunningFrontEnd, path: str) -> None:
    home = path.split("/")[0]
    large = application_properties_section({"n": 2**60, "u": uuid.UUID(int=3)}) + data_section(b"x" * 50_000)
    binary = data_section(bytes(range(256)))
    await put_in(orders, home, *[text(str(number), key=f"key-{number}") for number in range(30)], large, binary)
    exported = lines(await ask(orders, "GET", "messages/export", path=path))
    assert len(exported) == 32
    assert not any(one["body"]["is_truncated"] for one in exported)
    for one in exported:
        assert told(await ask(orders, "POST", "messages", one, path="other"), 201)["sequence_number"]
    again = lines(await ask(orders, "GET", "messages/export", path="other"))
    for first, second in zip(exported, again, strict=True):
        for key in ("message_id", "partition_key", "properties", "body"):
            assert second[key] == first[key]


async def test_an_export_holds_what_is_asked_for(orders: RunningFrontEnd) -> None:
    await die(orders, "orders", "a", "b", "a")
    await put_in(orders, "orders", text("now"), text("later", at_ms=SOON))
    export = "messages/export"
    assert bodies(lines(await ask(orders, "GET", export, path="orders", state="scheduled"))) == ["later"]
    assert bodies(lines(await ask(orders, "GET", export, path="orders", reason="a", **DEAD))) == ["0", "2"]
    assert bodies(lines(await ask(orders, "GET", export, path="orders", max=2, **DEAD))) == ["0", "1"]
    assert error(await ask(orders, "GET", export, path="orders", max=0))[0] == 400


async def test_an_export_is_written_no_faster_than_it_is_read_and_ends_with_its_claim(orders: RunningFrontEnd) -> None:
    body = data_section(b"x" * 200_000)
    await put_in(orders, "orders", *[body] * 300)
    clock = orders.clock
    assert isinstance(clock, ManualClock)
    target = f"http://127.0.0.1:{orders.port}{url('messages/export', path='orders')}"
    async with (
        aiohttp.ClientSession(read_bufsize=2**16) as session,
        session.get(target, headers={"Authorization": orders.token(lifetime_s=300.0)}) as response,
    ):
        # 60 MB: most of it is not written before somebody reads, and by then the claim is over.
        assert (await response.content.readexactly(100)).startswith(b'{"sequence_number":"1"')
        clock.advance(301.0)
        rest = await response.content.read()
    last = json.loads(rest.splitlines()[-1])
    assert "no longer valid" in last["error"]
    assert len(rest.splitlines()) < 300


async def test_messages_that_come_during_an_export_are_not_in_it(tmp_path: Path) -> None:
    async with running_front_end(tmp_path, limits=Limits()) as running:
        await running.namespace.create_queue(QueueDescription("orders"))
        await put_in(running, "orders", *[data_section(b"x" * 200_000)] * 100)
        target = f"http://127.0.0.1:{running.port}{url('messages/export', path='orders')}"
        async with (
            aiohttp.ClientSession(read_bufsize=2**16) as session,
            session.get(target, headers={"Authorization": running.token()}) as response,
        ):
            await response.content.readexactly(100)
            await put_in(running, "orders", text("late"))
            rest = await response.content.read()
        assert len(rest.splitlines()) == 100
        assert len(lines(await ask_with(running, "", "GET", "messages/export", path="orders"))) == 101


# Long walks that find nothing.


async def test_a_long_search_ends_with_its_claim_too(orders: RunningFrontEnd) -> None:
    await put_batch(orders, "orders", 4_000)
    root = orders.authorizer.policies()[ROOT]
    seeker = Policy("seeker", "c2Vlaw==", "", frozenset([Right.SEND, Right.LISTEN]))
    token = orders.token(policy="seeker", key="c2Vlaw==")
    for task in ({"action": "move", "to": "other", "reason": "none such"}, {"action": "delete", "reason": "none such"}):
        orders.authorizer.set_policies("", [root, seeker])
        target = f"http://127.0.0.1:{orders.port}{url('messages/act', path='orders')}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(target, data=json.dumps(task), headers={**JSON, "Authorization": token}) as response,
        ):
            orders.authorizer.set_policies("", [root])  # the answer has begun, and nothing was found yet
            last = json.loads((await response.content.read()).splitlines()[-1])
        assert (last["done"], "no longer valid" in last["error"]) == (0, True)


async def test_nothing_is_taken_while_the_search_goes_on_however_long_that_is(orders: RunningFrontEnd) -> None:
    await die(orders, "orders", "wanted", "wanted")
    entity = await entity_of(orders, "orders")
    lane, clock = messaging_store.DEAD_LETTER, orders.clock
    assert isinstance(clock, ManualClock)

    async def slow() -> AsyncIterator[int]:
        for number in (1, 2):
            yield number
            clock.advance(3600.0)
            await orders.namespace.brokers[0].catch_up()

    slices = [held async for held in Taking(entity, lane).slices(slow(), Progress(), is_chosen=False)]
    assert [[lock.number for lock, _ in held] for held in slices] == [[1, 2]]
    await settle_all(entity.traffic, [lock for lock, _ in slices[0]], COMPLETE)
    assert await shown(orders, "orders", **DEAD) == []


async def test_nothing_is_taken_when_a_search_is_cut_off(orders: RunningFrontEnd) -> None:
    await die(orders, "orders", "wanted")
    entity = await entity_of(orders, "orders")
    lane = messaging_store.DEAD_LETTER

    async def cut_off() -> AsyncIterator[int]:
        yield 1
        raise Unauthorized("it is over")

    with pytest.raises(Unauthorized):
        await anext(Taking(entity, lane).slices(cut_off(), Progress(), is_chosen=False))
    assert len((await entity.requests.take_waiting(lane, 1, 2, 1, 1)).messages) == 1
