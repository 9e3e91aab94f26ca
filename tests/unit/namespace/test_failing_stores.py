"""A partitioned queue of one process whose stores fail in the middle of commits, and come back."""

from __future__ import annotations

import asyncio
import random

import pytest

from tandembus.broker import message_broker
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.descriptions import QueueDescription
from tandembus.interconnect.traffic import Traffic
from tandembus.store.memory import Fault
from tandembus.store.messaging_store import MAIN
from tests.covers import covers
from tests.unit.broker.one_queue import Answer, body_of, message
from tests.unit.namespace.namespace_lives import Machine

ORDERS = QueueDescription("Orders", enable_partitioning=True)


@pytest.fixture(autouse=True)
def _reopens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_broker, "FIRST_REOPEN_S", 0.0)


def stage(traffic: Traffic, body: str) -> Answer:
    answer = Answer()
    sent = message(body)
    reply = CallbackSendReply(lambda _operation, error: answer.give(error))
    traffic.send(SendOperation([sent], len(sent.sections), reply, 0))
    return answer


@covers("P3", "P13", "P15")
@pytest.mark.parametrize("seed", range(4))
async def test_unkeyed_sends_never_fail_and_are_stored_exactly_once(seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(stores=4)
    async with machine.life() as life:
        await life.namespace.administration.create_queue(ORDERS)
        traffic = (await life.namespace.entity("Orders")).traffic
        answers: dict[str, Answer] = {}
        for number in range(400):
            if chance.random() < 0.08:
                disk = chance.choice(machine.disks[:3])  # when all are out at once, a send does fail
                disk.faults[disk.commit_count + 1] = chance.choice([Fault.UNKNOWN_KEPT, Fault.UNKNOWN_LOST])
            answers[f"m{number}"] = stage(traffic, f"m{number}")
            if chance.random() < 0.4:
                await asyncio.sleep(0)
        assert [await answer.wait() for answer in answers.values()] == [None] * 400
        stored = [body_of(one) for disk in machine.disks for (_, lane, _), one in disk.bodies.items() if lane == MAIN]
        assert sorted(stored) == sorted(answers)
        epochs = [disk.epoch for disk in machine.disks]
        assert sum(epochs) > 8, "stores did fail, and were opened again"


@covers("P26")
async def test_what_moved_on_to_another_fragment_has_one_number_there_from_the_first() -> None:
    machine = Machine(stores=2)
    async with machine.life() as life:
        await life.namespace.administration.create_queue(ORDERS)
        entity = await life.namespace.entity("Orders")
        for disk in machine.disks[:1]:
            disk.faults[disk.commit_count + 1] = Fault.UNKNOWN_LOST
        answers = [stage(entity.traffic, f"m{number}") for number in range(32)]
        assert [await answer.wait() for answer in answers] == [None] * 32
        seen = 0
        for index in range(16):
            page = await entity.requests.peek(MAIN, (index << 48) + 1, 100, 1 << 20)
            for one in page:
                assert one.message.original_number == one.sequence_number
                seen += 1
            if seen >= 32:
                break
        assert seen >= 32
