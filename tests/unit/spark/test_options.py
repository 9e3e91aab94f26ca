"""The options of the data source: what is refused, and that no text made of them tells a secret."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from tandembus.client.addresses import SubQueue, address_of
from tandembus.errors import InvalidArgument
from tandembus.spark.source.data_source import ServiceBusDataSource
from tandembus.spark.source.options import SUB_QUEUES, parse_options, require_entities, require_owner
from tests.covers import covers

SECRET = "c2VjcmV0IGtleQ=="
CONNECTION = f"Endpoint=sb://Contoso.example.net;SharedAccessKeyName=root;SharedAccessKey={SECRET}"


def test_names_are_read_in_any_case_and_what_is_not_given_has_a_default() -> None:
    options = parse_options({"CONNECTION": CONNECTION, "ENTITIES": " a, b/subscriptions/c ,a", "maxmessages": "7"})
    assert options.entities == ("a", "b/subscriptions/c")
    assert options.max_messages == 7
    assert options.backend == "native"


def test_an_entity_that_is_named_twice_is_read_once() -> None:
    """Two names of one would be two owners of its messages."""
    options = parse_options(
        {"connection": CONNECTION, "entities": "Orders, /orders/ ,t/subscriptions/s, T/Subscriptions/S"}
    )
    assert options.entities == ("Orders", "t/subscriptions/s")


def test_a_sub_queue_is_a_part_of_each_entity() -> None:
    options = parse_options({"connection": CONNECTION, "entities": "a,b", "subQueue": "deadLetter"})
    assert options.entities == ("a/$DeadLetterQueue", "b/$DeadLetterQueue")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "which namespace"),
        ({"connection": CONNECTION, "connectionEnv": "BUS"}, "not both"),
        ({"connectionEnv": "THE BUS"}, "connectionEnv is the name of an environment variable"),
        ({"connection": CONNECTION, "backend": "rabbit"}, "native, azure"),
        ({"connection": CONNECTION, "maxMessages": "0"}, "from 1 to"),
        ({"connection": CONNECTION, "maxBytes": "1MB"}, "is a number"),
        ({"connection": CONNECTION, "fromSequence": str(1 << 48)}, "from 0 to"),
        ({"connection": CONNECTION, "fromSequence": "5", "toSequence": "4"}, "no number lies between them"),
        ({"connection": CONNECTION, "fragments": "0,x"}, "list of numbers"),
        ({"connection": CONNECTION, "subQueue": "other"}, "deadLetter or transferDeadLetter"),
        ({"connection": CONNECTION, "payload": "yes"}, "none, also, only"),
        ({"connection": CONNECTION, "owner": "a\nb"}, "printable"),
        ({"connection": CONNECTION, "entites": "a"}, "there is no option 'entites'; there are: connection"),
        ({"connection": CONNECTION, "asyncProgressTrackingEnabled": "true"}, "cannot be used with servicebus"),
    ],
)
@covers("D1")
def test_what_makes_no_sense_is_refused_with_what_to_do(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parse_options(given)


def test_reading_needs_entities_and_streaming_an_owner() -> None:
    options = parse_options({"connection": CONNECTION})
    with pytest.raises(InvalidArgument, match="which entities"):
        require_entities(options)
    with pytest.raises(InvalidArgument, match="option owner"):
        require_owner(options)
    with pytest.raises(InvalidArgument, match="you gave entity, which is for writing"):
        require_entities(parse_options({"connection": CONNECTION, "entity": "orders"}))


@covers("D1")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs the option owner"),
        ({"owner": "o", "fragments": "0"}, "a stream consumes all"),
        ({"owner": "o", "fromSequence": "7"}, "a stream consumes all"),
        ({"owner": "o", "toSequence": "7"}, "a stream consumes all"),
    ],
)
def test_what_a_stream_cannot_do_is_told_when_it_is_asked_first(given: dict[str, str], text: str) -> None:
    """Not when it is made: of that Spark 4.3 shows an error of its own."""
    options = {"connection": CONNECTION, "entities": "orders", **given}
    reader = ServiceBusDataSource(options).streamReader(StructType())
    for ask in (reader.initialOffset, reader.prepareForTriggerAvailableNow):
        with pytest.raises(InvalidArgument, match=text):
            ask()


@covers("D1")
@pytest.mark.parametrize("broken", [CONNECTION.replace("Endpoint", "Endpont"), SECRET, f"SharedAccessKey={SECRET}"])
def test_no_text_repeats_the_connection_string(broken: str) -> None:
    assert SECRET not in repr(parse_options({"connection": CONNECTION}))
    with pytest.raises(InvalidArgument) as refusal:
        parse_options({"connection": broken})
    assert SECRET not in str(refusal.value)
    with pytest.raises(InvalidArgument) as refusal:
        parse_options({"connectionEnv": broken})
    assert SECRET not in str(refusal.value)


def test_a_variable_is_looked_up_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse_options({"connectionEnv": "THE_BUS"})
    with pytest.raises(InvalidArgument, match=r"THE_BUS .* is not set"):
        options.connection_string()
    monkeypatch.setenv("THE_BUS", CONNECTION)
    assert options.connection_string() == CONNECTION
    assert SECRET.encode() not in pickle.dumps(options)


def test_a_namespace_is_known_by_its_address_or_by_the_name_it_is_given() -> None:
    assert parse_options({"connection": CONNECTION}).namespace() == "contoso.example.net"
    moved = "Endpoint=sb://localhost:5700;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    assert parse_options({"connection": moved}).namespace() == "localhost:5700"
    assert parse_options({"connection": moved, "namespaceId": "mine"}).namespace() == "mine"


@covers("D1")
def test_no_class_of_the_data_source_takes_filters_from_spark() -> None:
    """Spark 4.3 would apply those of one query to others of the same frame."""
    reader = ServiceBusDataSource({"connection": CONNECTION, "entities": "a"}).reader(StructType())
    assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_the_sub_queues_are_those_of_the_client() -> None:
    assert SUB_QUEUES["deadletter"] == address_of("", SubQueue.DEAD_LETTER)
    assert SUB_QUEUES["transferdeadletter"] == address_of("", SubQueue.TRANSFER_DEAD_LETTER)
