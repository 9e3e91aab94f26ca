"""`tandembus spark release`: what a retired query has reserved is handed back."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from tandembus.cli import main
from tandembus.client import ServiceBus
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered


def run(stage: Stage, *arguments: str) -> Result:
    runner = CliRunner(env={"TANDEMBUS_CONNECTION_STRING": stage.namespace.connection_string})
    return runner.invoke(main, ["spark", "release", *arguments])


@pytest.fixture
def reserved(stage: Stage) -> Stage:
    stage.create()
    stage.send(numbered(10))

    async def reserve(bus: ServiceBus) -> None:
        reservations = await bus.reservations(stage.queue)
        for owner in ("billing", "archive"):
            await reservations.reserve(owner, await reservations.open_owner(owner), 1, 4, 1 << 30)

    stage.run(reserve)
    return stage


@covers("D1")
def test_owners_are_listed_and_messages_handed_back(reserved: Stage) -> None:
    listed = json.loads(run(reserved, reserved.queue, "--json").stdout)
    assert listed["owners"] == [{"owner": "archive", "message_count": 4}, {"owner": "billing", "message_count": 4}]
    assert "billing" in run(reserved, reserved.queue).stdout
    done = json.loads(run(reserved, reserved.queue, "--owner", "billing", "--json").stdout)
    assert done == {"entity": reserved.queue, "owner": "billing", "released": 4}

    async def receive(bus: ServiceBus) -> list[str | None]:
        receiver = await bus.receiver(reserved.queue)
        return [message.message_id for message in await receiver.receive(10, 1.0)]

    assert reserved.run(receive) == ["m0", "m1", "m2", "m3", "m8", "m9"]


def test_an_owner_that_owns_nothing_is_told_with_where_to_look(reserved: Stage) -> None:
    result = run(reserved, reserved.queue, "--owner", "biling")
    assert result.exit_code == 3
    assert "'biling' owns nothing" in result.stderr
    assert f"tandembus spark release {reserved.queue}" in result.stderr


def test_a_queue_without_reservations_says_so(stage: Stage) -> None:
    stage.create()
    assert "nobody has reserved" in run(stage, stage.queue).stdout


def test_a_service_without_reservations_is_told(plain_namespace: EmbeddedNamespace) -> None:
    stage = Stage(plain_namespace, "orders")
    stage.create()
    result = run(stage, "orders")
    assert result.exit_code == 1
    assert "has no reservations" in result.stderr


def test_dead_letters_are_handed_back_too(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(2))

    async def bury_and_reserve(bus: ServiceBus) -> None:
        receiver = await bus.receiver(stage.queue)
        await receiver.dead_letter(*await receiver.receive(2, 5.0))
        reservations = await bus.reservations(f"{stage.queue}/$DeadLetterQueue")
        await reservations.reserve("undertaker", await reservations.open_owner("undertaker"), 1, 4, 1 << 30)

    stage.run(bury_and_reserve)
    done = json.loads(run(stage, stage.queue, "--sub-queue", "dead-letter", "--owner", "undertaker", "--json").stdout)
    assert done["released"] == 2


@covers("D1")
@pytest.mark.parametrize("options", [[], ["--owner", "billing"]])
def test_a_topic_has_no_reservations_to_release(stage: Stage, options: list[str]) -> None:
    topic = stage.namespace.create_topic(f"topic-{stage.queue}")
    result = run(stage, topic, *options)
    assert result.exit_code == 1
    assert "is a topic: messages are received from its subscriptions" in " ".join(result.stderr.split())
