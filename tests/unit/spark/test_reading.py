"""Batch reads without Spark: rows of a real namespace's messages."""

from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from tandembus.amqp.encoding.values import int_, symbol
from tandembus.client import Management, OutgoingMessage, ReceivedMessage, ServiceBus
from tandembus.client.access_policies import AccessPolicy
from tandembus.client.administration import Administration
from tandembus.client.policies import NamespacePolicies
from tandembus.clock import ManualClock, SystemClock
from tandembus.errors import BusError, EntityNotFound, FragmentUnavailable, InvalidArgument, Unauthorized
from tandembus.loop_thread import LoopThread
from tandembus.security.sas import make_token, parse_connection_string
from tandembus.spark.source import columns
from tandembus.spark.source.backends import browser_for
from tandembus.spark.source.batch_reader import BatchReader
from tandembus.spark.source.browsing import messages_of
from tandembus.spark.source.decoding import NUMBER_BITS, NUMBER_MASK
from tandembus.spark.source.link import Link
from tandembus.spark.source.marks import sequence_number_of
from tandembus.spark.source.options import SourceOptions
from tandembus.spark.source.schema import arrow_schema
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage, numbered, rows_of


class CountedLink(Link):
    """Notes which messages are peeked."""

    def __init__(self, options: SourceOptions, seen: list[int]) -> None:
        super().__init__(options)
        self._seen = seen

    async def management(self, entity: str) -> Management:
        node = await super().management(entity)
        peek = node.peek

        async def noted(
            from_sequence_number: int = 1, max_messages: int = 100, session_id: str | None = None
        ) -> list[ReceivedMessage]:
            found = await peek(from_sequence_number, max_messages, session_id)
            self._seen.extend(message.sequence_number for message in found)
            return found

        node.peek = noted  # type: ignore[method-assign]
        return node


@covers("D1")
def test_a_row_tells_everything_about_its_message(stage: Stage) -> None:
    stage.create()
    message = OutgoingMessage(
        b"\x00body",
        message_id="m1",
        correlation_id="c1",
        content_type="text/plain",
        subject="about",
        to="somebody",
        reply_to="there",
        partition_key="key",
        time_to_live_s=3600.0,
        properties={"a": "text", "b": int_(7), "c": symbol("x"), "d": None, "e": uuid.UUID(int=1)},
    )
    stage.send([message])
    (row,) = stage.read()
    lived = row["expires_at"] - row["enqueued_time"]
    assert lived == timedelta(hours=1)
    assert {name: value for name, value in row.items() if name not in ("enqueued_time", "expires_at")} == {
        "entity": stage.queue,
        "fragment": 0,
        "sequence_number": 1,
        "message_id": "m1",
        "session_id": None,
        "partition_key": "key",
        "subject": "about",
        "content_type": "text/plain",
        "correlation_id": "c1",
        "reply_to": "there",
        "to": "somebody",
        "delivery_count": 0,
        "state": "active",
        "dead_letter_reason": None,
        "properties": {"a": "text", "b": "7", "c": "x", "d": None, "e": str(uuid.UUID(int=1))},
        "property_types": {"a": "string", "b": "int", "c": "symbol", "d": "null", "e": "uuid"},
        "body": b"\x00body",
    }


@covers("D1")
def test_reading_takes_nothing_and_keeps_the_order(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(3000))
    assert [row["message_id"] for row in stage.read()] == [f"m{index}" for index in range(3000)]
    assert len(stage.peek()) == 3000


@covers("D1")
def test_all_fragments_are_read_each_in_its_order(stage: Stage) -> None:
    stage.create(enable_partitioning=True)
    stage.send(OutgoingMessage("x", message_id=f"m{n}", partition_key=f"k{n % 8}") for n in range(200))
    rows = stage.read()
    assert sorted(int(row["message_id"][1:]) for row in rows) == list(range(200))
    assert len({row["fragment"] for row in rows}) > 1
    for key in {row["partition_key"] for row in rows}:
        ids = [int(row["message_id"][1:]) for row in rows if row["partition_key"] == key]
        assert ids == sorted(ids)


def test_ranges_and_fragments_are_options(stage: Stage) -> None:
    stage.create(enable_partitioning=True)
    stage.send(OutgoingMessage("x", partition_key=f"k{n % 8}") for n in range(100))
    everything = stage.read()
    first = min(row["fragment"] for row in everything)
    part = stage.read(fragments=str(first), fromSequence="3", toSequence="5")
    expected = [
        row for row in everything if row["fragment"] == first and 3 <= row["sequence_number"] & (1 << 48) - 1 <= 5
    ]
    assert part == expected
    assert expected


@covers("D1", "P19")
def test_a_table_of_the_fragments_in_reach_is_read_and_one_of_all_fails(stage: Stage) -> None:
    stage.create(enable_partitioning=True)
    stage.send(OutgoingMessage("x", partition_key=f"k{n % 64}") for n in range(64))
    everything = stage.read()
    with stage.namespace.fault(f"fragment/{stage.queue}/5", "unavailable"):
        chosen = ",".join(str(index) for index in range(16) if index != 5)
        found = {row["sequence_number"] for row in stage.read(fragments=chosen)}
        assert found == {row["sequence_number"] for row in everything if row["fragment"] != 5}
        for options in ({}, {"fragments": "5"}):
            with pytest.raises(FragmentUnavailable, match=r"Fragment 5 .* The option fragments reads"):
                stage.read(retryFor="0", **options)


@pytest.fixture
def plain_stage(plain_namespace: EmbeddedNamespace) -> Stage:
    stage = Stage(plain_namespace, f"q-{uuid.uuid4().hex[:12]}")
    stage.create(enable_partitioning=True)
    stage.send(OutgoingMessage("x", partition_key=f"k{n % 64}") for n in range(64))
    return stage


@covers("D1", "P19")
@pytest.mark.parametrize("backend", ["azure", "native"])
@pytest.mark.parametrize("part", ["fragment/{}/5", "entity/{}"])
def test_a_table_that_is_read_with_peeks_fails_while_a_part_is_out(plain_stage: Stage, part: str, backend: str) -> None:
    """A peek passes over it without a word; before the read as well as at its end somebody asks."""
    reader = BatchReader(plain_stage.options(entities=plain_stage.queue, backend=backend, retryFor="0"))
    (slices,) = reader.partitions()
    assert len(rows_of(reader.read(slices))) == 64
    with plain_stage.namespace.fault(part.format(plain_stage.queue), "unavailable"):
        with pytest.raises(BusError) as before:
            reader.partitions()
        with pytest.raises(BusError) as after:
            rows_of(reader.read(slices))
    if part.startswith("fragment"):
        assert "some of its messages are out of reach" in str(before.value)
        assert "some of its messages are out of reach" in str(after.value)


@covers("D1", "P19")
def test_a_table_fails_whose_entity_goes_out_behind_the_last_peek(plain_stage: Stage) -> None:
    """Administration answers 503 then, and nobody else would say so."""
    last = max(row["sequence_number"] for row in plain_stage.read(backend="azure"))
    whole_fragment = {"fragments": str(last >> NUMBER_BITS), "toSequence": str(last & NUMBER_MASK)}
    reader = BatchReader(plain_stage.options(entities=plain_stage.queue, backend="azure", **whole_fragment))
    (slices,) = reader.partitions()
    batches = reader.read(slices)
    assert next(batches).num_rows == last & NUMBER_MASK
    with plain_stage.namespace.fault(f"entity/{plain_stage.queue}", "unavailable"), pytest.raises(BusError):
        next(batches, None)


@covers("D1")
def test_dead_letters_of_subscriptions_are_asked_about_as_well(plain_stage: Stage) -> None:
    topic = plain_stage.namespace.create_topic(f"{plain_stage.queue}-t", enable_partitioning=True)
    subscription = plain_stage.namespace.create_subscription(topic, "s")
    assert plain_stage.read(entities=subscription, backend="azure", subQueue="deadLetter") == []
    with (
        plain_stage.namespace.fault(f"fragment/{topic}/5", "unavailable"),
        pytest.raises(FragmentUnavailable, match="out of reach"),
    ):
        plain_stage.read(entities=subscription, backend="azure", subQueue="deadLetter", retryFor="0")


@covers("D1")
def test_without_manage_it_is_told_that_nobody_knows_whether_all_is_read(
    plain_stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def listen_only(_: ServiceBus) -> str:
        async with Administration(plain_stage.namespace.connection_string) as administration:
            made = await NamespacePolicies(administration.requests).create(AccessPolicy("reads", ("Listen",)))
        endpoint = plain_stage.namespace.connection_string.partition(";")[0]
        return f"{endpoint};SharedAccessKeyName=reads;SharedAccessKey={made.primary_key};UseDevelopmentEmulator=true"

    connection = plain_stage.run(listen_only)
    assert len(plain_stage.read(backend="azure", connection=connection)) == 64
    assert "it is unknown whether all messages are read" in caplog.text


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_plain_operations_look_no_further_than_the_range(
    plain_namespace: EmbeddedNamespace, is_partitioned: bool
) -> None:
    """Nor do they while others go on sending."""
    stage = Stage(plain_namespace, f"q-{uuid.uuid4().hex[:12]}")
    stage.create(enable_partitioning=is_partitioned)
    stage.send(OutgoingMessage("x" * 1000, partition_key=f"k{n % 16}") for n in range(400))
    everything = stage.read(backend="azure")
    assert len(everything) == 400
    seen: list[int] = []
    for chosen in ({}, {"fragments": "0,2"}):
        options = stage.options(
            entities=stage.queue, backend="azure", fromSequence="3", toSequence="5", numPartitions="1", **chosen
        )
        reader = BatchReader(options)
        (part,) = reader.partitions()
        with LoopThread() as loop:
            link = CountedLink(options, seen)
            pages = messages_of(link, loop, browser_for(link), part.slices[0])
            found = [sequence_number_of(message) for page in pages for message in page]
            loop.call(link.drop())
        assert found == [
            row["sequence_number"]
            for row in everything
            if 3 <= row["sequence_number"] & NUMBER_MASK <= 5 and (not chosen or row["fragment"] in (0, 2))
        ]
    assert all(number & NUMBER_MASK <= 8 for number in seen)


def test_several_entities_are_read_into_few_partitions(stage: Stage) -> None:
    stage.create()
    topic = stage.namespace.create_topic(f"{stage.queue}-t")
    stage.namespace.create_subscription(topic, "s")
    stage.send(numbered(3), topic)
    stage.send(numbered(2))
    rows = stage.read(entities=f"{stage.queue},{topic}/subscriptions/s", numPartitions="1")
    assert sorted(row["entity"] for row in rows) == [stage.queue] * 2 + [f"{topic}/subscriptions/s"] * 3


def test_dead_letters_are_read_with_their_reason(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(1))

    async def dead_letter(bus: ServiceBus) -> None:
        receiver = await bus.receiver(stage.queue)
        await receiver.dead_letter(*await receiver.receive(1, 5.0), reason="bad", description="very")

    stage.run(dead_letter)
    (row,) = stage.read(subQueue="deadLetter")
    assert row["dead_letter_reason"] == "bad"
    assert row["properties"]["DeadLetterErrorDescription"] == "very"
    assert stage.read() == []


def test_states_are_told(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(2))

    async def defer_and_schedule(bus: ServiceBus) -> None:
        receiver = await bus.receiver(stage.queue)
        await receiver.defer(*await receiver.receive(1, 5.0))
        node = await bus.management(stage.queue)
        await node.schedule([OutgoingMessage("later", scheduled_at=4_000_000_000.0)])

    stage.run(defer_and_schedule)
    assert [row["state"] for row in stage.read()] == ["deferred", "active", "scheduled"]


def test_the_whole_message_can_be_read_beside_the_columns_or_alone(stage: Stage) -> None:
    stage.create()
    stage.send(numbered(2))
    payloads = [message.payload for message in stage.peek()]
    assert [row["payload"] for row in stage.read(payload="also")] == payloads
    alone = stage.read(payload="only")
    assert [row["payload"] for row in alone] == payloads
    assert list(alone[0]) == ["entity", "fragment", "sequence_number", "payload"]


def test_an_empty_queue_has_no_rows(stage: Stage) -> None:
    stage.create()
    assert stage.read() == []


def test_batches_are_bounded_in_rows_and_bytes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.create()
    stage.send(numbered(25))
    payloads = [message.payload for message in stage.peek()]
    monkeypatch.setattr(columns, "BATCH_ROWS", 10)
    assert [batch.num_rows for batch in columns.batches_of("q", [payloads])] == [10, 10, 5]
    pages = [payloads[:4], payloads[4:9], payloads[9:12], payloads[12:]]
    batches = list(columns.batches_of("q", pages))
    assert [batch.num_rows for batch in batches] == [9, 10, 6]
    assert [message for batch in batches for message in batch["sequence_number"].to_pylist()] == list(range(1, 26))
    monkeypatch.setattr(columns, "BATCH_BYTES", 2 * len(payloads[0]) + 10)
    batches = list(columns.batches_of("q", pages))
    assert all(batch.num_rows <= 2 for batch in batches)
    assert all(batch.schema.equals(arrow_schema()) for batch in batches)


@covers("D1")
def test_an_unknown_entity_is_told_before_tasks_start(stage: Stage) -> None:
    with pytest.raises(EntityNotFound, match="TOPIC/subscriptions/NAME"):
        stage.read()


def test_a_wrong_key_is_told_without_the_key(stage: Stage) -> None:
    stage.create()
    wrong = stage.namespace.connection_string.replace("SharedAccessKey=", "SharedAccessKey=d3Jvbmc")
    with pytest.raises(Unauthorized) as refusal:
        stage.read(connection=wrong)
    assert "d3Jvbmc" not in str(refusal.value)
    assert "Listen" in str(refusal.value)


@covers("D1")
def test_a_token_that_has_expired_is_told_as_such_and_not_as_a_right_that_is_missing(stage: Stage) -> None:
    """Also where the service only says that a right is missing, since it has forgotten the token by then."""
    stage.create()
    endpoint = stage.namespace.connection_string.partition(";")[0]
    parts = parse_connection_string(stage.namespace.connection_string)
    assert parts.key_name is not None
    assert parts.key is not None
    now = SystemClock().now()

    def connection(expires_at: float, audience: str) -> str:
        token = make_token(audience, parts.key_name or "", parts.key or "", expires_at)
        return f"{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true"

    with pytest.raises(Unauthorized, match="expired at 20") as refusal:
        stage.read(connection=connection(now - 60, "sb://localhost/"))
    assert "right" not in str(refusal.value)
    other = connection(now + 3600, f"sb://localhost/{stage.queue}-2")
    with pytest.raises(Unauthorized, match="Reading needs the right Listen"):
        stage.read(connection=other)
    options = stage.options(connection=other, entities=stage.queue)
    link = Link(options, ManualClock(now + 3601))
    with LoopThread() as loop:
        with pytest.raises(Unauthorized, match="expired at 20"):
            loop.call(link.patiently(lambda: link.management(stage.queue)))
        loop.call(link.drop())


def test_an_address_where_nobody_answers_is_given_up_after_a_while(stage: Stage) -> None:
    nobody = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=Yg==;UseDevelopmentEmulator=true"
    with pytest.raises(ConnectionError, match="retryFor"):
        stage.read(connection=nobody, retryFor="0")


@covers("D1")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_wrong_path_to_the_authority_is_told_at_once_and_no_outage(
    stage: Stage, tmp_path: Path, is_there: bool
) -> None:
    path = tmp_path / "ca.pem"
    if is_there:
        path.write_text("no certificate")
    link = Link(stage.options(connection=stage.namespace.tls_connection_string, ca=str(path)))
    with LoopThread() as loop, pytest.raises(InvalidArgument, match=r"the option ca names .*ca\.pem"):
        loop.call(link.patiently(link.bus))
