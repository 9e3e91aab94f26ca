"""`tandembus spark release`: what a retired query has reserved is handed back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql.streaming.datasource import ReadMaxRows

from tandembus.cli import main
from tandembus.client import ServiceBus
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered
from tests.unit.spark.test_streaming import Query, ids

BACK = ("--without-checkpoint", "--json")


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
    done = json.loads(run(reserved, reserved.queue, "--owner", "billing", "--without-checkpoint", "--json").stdout)
    assert done == {"entity": reserved.queue, "owner": "billing", "settled": 0, "released": 4}

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
    done = json.loads(run(stage, stage.queue, "--sub-queue", "dead-letter", "--owner", "undertaker", *BACK).stdout)
    assert done["released"] == 2


@covers("D1")
@pytest.mark.parametrize("options", [[], ["--owner", "billing", "--without-checkpoint"]])
def test_a_topic_has_no_reservations_to_release(stage: Stage, options: list[str]) -> None:
    topic = stage.namespace.create_topic(f"topic-{stage.queue}")
    result = run(stage, topic, *options)
    assert result.exit_code == 1
    assert "is a topic: messages are received from its subscriptions" in " ".join(result.stderr.split())


def write_checkpoint(folder: Path, planned: list[dict[str, object]], done: int) -> str:
    """As Spark does: a file for each batch that is planned, and for each that is done."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    for number, offset in enumerate(planned):
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n-\n{json.dumps(offset)}")
    for number in range(done):
        (folder / "commits" / str(number)).write_text("v1\n{}")
    return str(folder)


@covers("D1")
@pytest.mark.parametrize("is_done", [True, False])
def test_what_a_stopped_query_has_done_is_settled_and_not_handed_back(
    stage: Stage, tmp_path: Path, is_done: bool
) -> None:
    """Two batches are planned, and the last one is done or not."""
    stage.create()
    stage.send(numbered(10))
    query = Query(stage)
    planned = [query.offset]
    for _ in range(2):
        query.run(ReadMaxRows(4))
        planned.append(query.offset)
    query.reader.stop()
    refused = run(stage, stage.queue, "--owner", "reader")
    assert refused.exit_code == 1
    assert f"4 messages of {stage.queue} are reserved by 'reader'" in " ".join(refused.stderr.split())
    assert [message.state for message in stage.peek()] == ["deferred"] * 4 + ["active"] * 2
    checkpoint = write_checkpoint(tmp_path / "checkpoint", planned, 3 if is_done else 2)
    done = json.loads(run(stage, stage.queue.upper(), "--owner", "reader", "--checkpoint", checkpoint, "--json").stdout)
    assert (done["settled"], done["released"]) == ((4, 0) if is_done else (0, 4))
    query.restart()
    if not is_done:
        assert query.read(query.offset) == []
    assert query.run() == (ids(8, 10) if is_done else ids(4, 10))
    query.reader.stop()


@covers("D1")
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: folder / "nothing", "is no checkpoint of a query"),
        (lambda folder: f"hdfs://{folder}", "is not on this machine"),
        (
            lambda folder: write_checkpoint(folder, [{"v": 1, "n": "x", "o": "billing", "e": 1, "b": {}}], 1),
            "but of x.",
        ),
        (lambda folder: write_checkpoint(folder, [{"v": 1, "n": "x", "o": "y", "e": 1, "b": {}}], 1), "another query"),
    ],
)
def test_a_checkpoint_of_another_query_settles_and_releases_nothing(
    reserved: Stage, tmp_path: Path, spoil: Callable[[Path], object], told: str
) -> None:
    result = run(reserved, reserved.queue, "--owner", "billing", "--checkpoint", str(spoil(tmp_path)))
    assert result.exit_code == 1
    assert told in " ".join(result.stderr.split())
    assert [message.state for message in reserved.peek()].count("deferred") == 8


@covers("D2")
def test_what_the_syphon_has_reserved_is_handed_back_without_a_checkpoint(stage: Stage) -> None:
    """It settles each message when it is home."""
    backlog = stage.namespace.create_queue(f"{stage.queue}/x-servicebus-transfer/0")
    stage.send(numbered(3), backlog)

    async def reserve(bus: ServiceBus) -> None:
        reservations = await bus.reservations(backlog)
        await reservations.reserve("syphon", await reservations.open_owner("syphon"), 1, 2, 1 << 30)

    stage.run(reserve)
    assert json.loads(run(stage, backlog, "--owner", "syphon", "--json").stdout)["released"] == 2
