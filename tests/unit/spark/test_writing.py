"""Writing without Spark: rows become messages of a real namespace."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.client import OutgoingMessage, ServiceBus
from tandembus.errors import EntityNotFound, InvalidArgument, MessageTooLarge
from tandembus.spark.source.outgoing import MAX_PART_BYTES, check_columns, slices
from tandembus.spark.source.schema import arrow_schema
from tandembus.spark.source.writer import check_append, write_batches
from tests.covers import covers
from tests.unit.spark.stage import Row, Stage
from tests.unit.spark.test_property_values import VALUES


@covers("D1")
def test_what_was_read_and_written_is_the_same_again(stage: Stage) -> None:
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    properties = {f"p{index}": value for index, (value, _, _) in enumerate(VALUES)}
    message = OutgoingMessage(
        b"\xff\x00",
        message_id="m1",
        correlation_id="c",
        content_type="t",
        subject="s",
        to="a",
        reply_to="r",
        partition_key="k",
        time_to_live_s=60.0,
        properties=properties,
    )
    stage.send([message])
    rows = stage.read()
    sent = stage.write(rows, arrow_schema(), entity=other)
    assert sent.counts == {other: 1}
    (copy,) = stage.read(entities=other)
    assert copy["expires_at"] - copy["enqueued_time"] == timedelta(seconds=60)
    given_anew = ("entity", "enqueued_time", "expires_at")
    assert {k: v for k, v in copy.items() if k not in given_anew} == {
        k: v for k, v in rows[0].items() if k not in given_anew
    }
    assert stage.peek(other)[0].typed_properties == stage.peek()[0].typed_properties


def test_only_a_body_is_needed(stage: Stage) -> None:
    stage.create()
    stage.write([{"body": "text"}, {"body": ""}])
    assert [message.body for message in stage.peek()] == [b"text", b""]


def test_each_row_goes_to_its_destination(stage: Stage) -> None:
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    rows: list[Row] = [{"body": str(n), "destination": other if n % 2 else None} for n in range(10)]
    assert stage.write(rows).counts == {stage.queue: 5, other: 5}
    assert [message.body for message in stage.peek(other)] == [b"1", b"3", b"5", b"7", b"9"]


@covers("D1")
def test_the_rows_of_a_session_keep_their_order(stage: Stage) -> None:
    stage.create(requires_session=True, enable_partitioning=True)
    rows: list[Row] = [{"body": str(n), "session_id": f"s{n % 7}"} for n in range(500)]
    stage.write(rows)
    found = stage.read()
    assert len(found) == 500
    for session in range(7):
        bodies = [int(row["body"]) for row in found if row["session_id"] == f"s{session}"]
        assert bodies == list(range(session, 500, 7))


@covers("D1")
@pytest.mark.parametrize("with_origin", [False, True])
def test_a_second_try_sends_the_same_message_ids(stage: Stage, with_origin: bool) -> None:
    stage.create(requires_duplicate_detection=True)
    origin: Row = {"entity": "q", "fragment": 0, "sequence_number": 5} if with_origin else {}
    rows: list[Row] = [{"body": "same", **origin} for _ in range(10)]
    stage.write(rows, scope="query/1/0")
    stage.write(rows, scope="query/1/0")
    ids = [message.message_id for message in stage.peek()]
    assert len(set(ids)) == len(ids) == 10
    assert all(str(one).startswith("spark-") for one in ids)


def test_rows_of_one_message_are_told_apart_wherever_they_stand(stage: Stage) -> None:
    stage.create(requires_duplicate_detection=True)
    first: Row = {"body": "same", "entity": "q", "fragment": 0, "sequence_number": 5}
    other: Row = {**first, "sequence_number": 6}
    rows = [first, other, {**first, "subject": "s"}, first, {**first, "enqueued_time": datetime.now(UTC)}]
    for _ in range(2):
        stage.write(rows)
    ids = [message.message_id for message in stage.peek()]
    assert len(set(ids)) == len(ids) == 5


@covers("D1")
def test_whole_messages_without_an_id_get_one_that_stays_the_same(stage: Stage) -> None:
    stage.create(requires_duplicate_detection=True)
    nameless = properties_section(subject="s", correlation_id=7) + data_section(b"x")
    rows: list[Row] = [{"payload": nameless}, {"payload": data_section(b"x")}, {"payload": data_section(b"x")}]
    for _ in range(2):
        stage.write(rows, scope="query/1/0")
    found = stage.peek()
    assert [message.body for message in found] == [b"x"] * 3
    assert all(str(message.message_id).startswith("spark-") for message in found)
    assert (found[0].subject, found[0].correlation_id) == ("s", "7")


@covers("D1")
def test_an_empty_message_id_is_none_at_all(stage: Stage) -> None:
    """The service would take all rows but the first as duplicates, and nobody would hear of it."""
    stage.create(requires_duplicate_detection=True)
    nameless = properties_section(message_id="") + data_section(b"x")
    rows: list[Row] = [{"body": str(n), "message_id": ""} for n in range(3)]
    rows += [{"payload": nameless, "message_id": ""}] * 2
    for _ in range(2):
        stage.write(rows, arrow_schema("also"), scope="query/1/0")
    found = stage.peek()
    assert [message.body for message in found] == [b"0", b"1", b"2", b"x", b"x"]
    assert all(str(message.message_id).startswith("spark-") for message in found)


def test_a_payload_that_is_no_message_is_named(stage: Stage) -> None:
    stage.create()
    with pytest.raises(InvalidArgument, match="the payload of row 1 is no encoded message"):
        stage.write([{"payload": data_section(b"x")}, {"payload": b"x"}])
    assert stage.peek() == []


def test_equal_rows_of_other_batches_and_tasks_are_other_messages(stage: Stage) -> None:
    stage.create(requires_duplicate_detection=True)
    for scope in ("query/1/0", "query/1/1", "query/2/0"):
        stage.write([{"body": "tick"}], scope=scope)
    assert len(stage.peek()) == 3


def test_key_columns_name_a_row_wherever_it_is_computed(stage: Stage) -> None:
    stage.create(requires_duplicate_detection=True)
    for scope in ("query/1/0", "query/2/3"):
        stage.write([{"body": "x", "customer": 1}, {"body": "x", "customer": 2}], scope=scope, keyColumns="customer")
    assert len(stage.peek()) == 2


def test_a_whole_encoded_message_is_sent_as_it_is(stage: Stage) -> None:
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    stage.send([OutgoingMessage("body", message_id="m", subject="s", properties={"a": 1})])
    stage.write([{"payload": message.payload} for message in stage.peek()], entity=other)
    first, second = stage.peek()[0], stage.peek(other)[0]
    assert (second.message_id, second.subject, second.body) == ("m", "s", b"body")
    assert second.typed_properties == first.typed_properties


def test_whole_messages_of_a_session_stay_together(stage: Stage) -> None:
    stage.create(requires_session=True)
    messages = [OutgoingMessage(str(n), session_id=f"s{n % 2}").encode() for n in range(6)]
    stage.write([{"payload": message} for message in messages])
    assert {row["session_id"]: row["body"] for row in stage.read()} == {"s0": b"4", "s1": b"5"}


def test_a_time_to_live_ends_when_the_row_says(stage: Stage) -> None:
    stage.create()
    later = stage.namespace.clock.now() + timedelta(hours=2)
    stage.write([{"body": "x", "expires_at": later}])
    (row,) = stage.read()
    assert timedelta(minutes=119) < row["expires_at"] - row["enqueued_time"] < timedelta(minutes=121)
    assert datetime.now(UTC) < row["expires_at"]


@covers("D1")
def test_a_time_to_live_beyond_49_days_is_kept_from_queue_to_queue(stage: Stage) -> None:
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    stage.send([OutgoingMessage("x", time_to_live_s=86_400.0 * 90)])
    stage.write([{"body": "y", "expires_at": stage.namespace.clock.now() + timedelta(days=90, minutes=1)}])
    rows = stage.read()
    stage.write(rows, arrow_schema(), entity=other)
    copies = stage.read(entities=other)
    lives = [row["expires_at"] - row["enqueued_time"] for row in (*rows, *copies)]
    assert lives[0] == lives[2] == timedelta(days=90)
    assert timedelta(days=90) < lives[1] == lives[3] < timedelta(days=90, minutes=2)
    assert [message.time_to_live_s for message in stage.peek(other)] == [life.total_seconds() for life in lives[2:]]


@covers("D1")
@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"body": "int"}, {"entity": "q"}, "'body' must be of type binary or string, not int"),
        ({"body": "string", "properties": "map<string,int>"}, {"entity": "q"}, "map<string,string>"),
        ({"body": "string", "subject": "bigint"}, {"entity": "q"}, "'subject' must be of type string"),
        ({"body": "string", "colour": "string"}, {"entity": "q"}, "no column 'colour'"),
        ({"body": "string", "fragment": "interval day"}, {"entity": "q"}, "'fragment' must be of type int"),
        ({"subject": "string"}, {"entity": "q"}, "need a column 'body'"),
        ({"body": "string"}, {}, "where to"),
        ({"body": "string"}, {"entity": "q", "keyColumns": "customer"}, "keyColumns names customer"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_is_sent(
    stage: Stage, columns: dict[str, str], options: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        check_columns(list(columns.items()), stage.options(**options))


def test_two_columns_of_one_name_are_refused(stage: Stage) -> None:
    with pytest.raises(InvalidArgument, match="more than one column 'subject'"):
        check_columns([("body", "string"), ("subject", "string"), ("subject", "string")], stage.options(entity="q"))


@pytest.mark.parametrize("kind", ["string", "string collate UTF8_LCASE", "varchar(20)"])
def test_every_kind_of_text_will_do(stage: Stage, kind: str) -> None:
    check_columns([("body", kind), ("subject", kind)], stage.options(entity="q"))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"body": None}, "row 1 has no body"),
        ({"body": "x", "destination": None}, "row 1 has no destination"),
        ({"body": "x", "properties": {"a": "b"}, "property_types": {"a": "int"}}, "row 1: .*type 'int'"),
        ({"body": "x", "message_id": "m" * 129}, "the message_id of row 1 has 129 characters, and 128"),
    ],
)
def test_a_row_that_is_no_message_is_named(stage: Stage, row: Row, text: str) -> None:
    stage.create()
    texts = pa.map_(pa.string(), pa.string())
    columns = [*[(name, pa.string()) for name in ("body", "destination", "message_id")], ("properties", texts)]
    schema = pa.schema([*columns, ("property_types", texts)])
    good: Row = {"body": "good", "destination": stage.queue}
    with pytest.raises(InvalidArgument, match=text):
        stage.write([good, row], schema, entity="" if "destination" in row else stage.queue)
    assert stage.peek() == []


def test_overwriting_is_refused() -> None:
    check_append(False)
    with pytest.raises(InvalidArgument, match=r"mode\('append'\)"):
        check_append(True)


def test_an_unknown_destination_is_told(stage: Stage) -> None:
    with pytest.raises(EntityNotFound, match=stage.queue):
        stage.write([{"body": "x"}])


def test_a_message_that_is_too_large_is_told(stage: Stage) -> None:
    stage.create()
    with pytest.raises(MessageTooLarge):
        stage.write([{"body": bytes(2_000_000)}])


def test_the_largest_message_that_the_service_takes_can_be_written(stage: Stage) -> None:
    stage.create()

    async def work(bus: ServiceBus) -> int:
        return (await bus.sender(stage.queue)).max_message_size

    room = stage.run(work) - len(OutgoingMessage(b"", message_id="m").encode()) - 3  # a longer form of the body's size
    stage.write([{"body": bytes(room), "message_id": "m"}])
    assert len(bytes(stage.read()[0]["body"])) == room


def test_what_is_under_way_is_bound_in_bytes() -> None:
    bodies = [bytes(100_000)] * 300 + [bytes(10)] * 3000 + [bytes(MAX_PART_BYTES + 1)]
    batch = pa.RecordBatch.from_pylist([{"body": body} for body in bodies])
    parts = list(slices(batch, 2000))
    assert [body for part in parts for body in part.column(0).to_pylist()] == bodies
    assert all(part.nbytes <= MAX_PART_BYTES or part.num_rows == 1 for part in parts)
    assert max(part.num_rows for part in parts) <= 2000
    assert len(parts) < 30


@covers("D1")
def test_batches_that_are_refused_and_sent_again_overtake_nothing(stage: Stage) -> None:
    stage.create(requires_session=True, enable_partitioning=True)
    rows: list[Row] = [{"body": f"{n:06}" + "x" * 200_000, "session_id": f"s{n % 2}"} for n in range(80)]
    stage.namespace.inject_fault(f"entity/{stage.queue}", "throttled", probability=0.5, duration=0.6)
    assert stage.write(rows).counts == {stage.queue: 80}
    found = stage.read()
    assert len(found) == 80
    for session in range(2):
        bodies = [int(row["body"][:6]) for row in found if row["session_id"] == f"s{session}"]
        assert bodies == list(range(session, 80, 2))


@covers("D1")
def test_an_outage_in_between_is_waited_out_and_everything_arrives_in_order(stage: Stage) -> None:
    stage.create(requires_duplicate_detection=True)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 6000, 1000):
            if start == 3000:
                stage.namespace.inject_fault(f"entity/{stage.queue}", "unavailable", duration=0.5)
            yield pa.RecordBatch.from_pylist([{"body": str(n)} for n in range(start, start + 1000)])

    write_batches(stage.options(entity=stage.queue), "query/1/0", batches())
    assert [int(row["body"]) for row in stage.read()] == list(range(6000))


@covers("D1")
@pytest.mark.parametrize("payload", ["also", "only"])
def test_a_message_that_cannot_be_read_is_copied_as_it_is(stage: Stage, payload: str) -> None:
    """By its payload; by its columns it arrives with all bytes as its body, and the mark."""
    stage.create()
    other = stage.namespace.create_queue(f"{stage.queue}-2")
    broken = b"\x00\x53\x74\xc1\x08\x02\xa1\x01a\xa1\x02\xff\xfe\x00\x53\x75\xa0\x01x"
    stage.send([broken])
    (row,) = stage.read(payload=payload)
    stage.write([row], arrow_schema(payload), entity=other)
    (copy,) = stage.peek(other)
    assert copy.payload.endswith(broken)
    if payload == "also":
        stage.write([{**row, "payload": None}], arrow_schema(payload), entity=other)
        marked = stage.peek(other)[-1]
        assert marked.body == row["body"]
        assert marked.properties == {"tandembus:unreadable": "text that is not UTF-8"}
