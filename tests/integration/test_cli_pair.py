"""`tandembus pair status`: what a person learns about a backlog."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from click.testing import CliRunner, Result

from tandembus.cli import main
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers

AWAY = "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


@pytest.fixture(scope="module")
def primary() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="contoso") as namespace:
        yield namespace


@pytest.fixture
def secondary() -> Iterator[EmbeddedNamespace]:
    with EmbeddedNamespace(name="backup") as namespace:
        yield namespace


def run(primary: str, secondary: EmbeddedNamespace, *options: str) -> Result:
    arguments = ["--primary", primary, "--secondary", secondary.connection_string, *options]
    return CliRunner().invoke(main, ["pair", "status", *arguments])


def status(primary: str, secondary: EmbeddedNamespace, *options: str) -> Any:
    result = run(primary, secondary, "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def make_backlog(secondary: EmbeddedNamespace, *indexes: int, name: str = "contoso") -> None:
    for index in indexes:
        secondary.create_queue(f"{name}/x-servicebus-transfer/{index}")


def send(secondary: EmbeddedNamespace, index: int, count: int) -> None:
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as client,
        client.get_queue_sender(f"contoso/x-servicebus-transfer/{index}") as sender,
    ):
        sender.send_messages([ServiceBusMessage("diverted") for _ in range(count)])


@covers("N3")
def test_depth_age_dead_letters_and_extra_queues_are_told(
    primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    make_backlog(secondary, 0, 1, 7)
    make_backlog(secondary, 0, name="fabrikam")
    before = secondary.clock.now().isoformat()
    send(secondary, 1, 3)
    secondary.clock.advance(90)
    send(secondary, 1, 2)
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as client,
        client.get_queue_receiver("contoso/x-servicebus-transfer/1") as receiver,
    ):
        receiver.dead_letter_message(receiver.receive_messages()[0], reason="NoPath")
    found = status(primary.connection_string, secondary)
    assert found["primary"] == {"name": "contoso", "is_reachable": True, "reason": None}
    assert (found["messages"], found["dead_letters"], found["other_primaries"]) == (4, 1, ["fabrikam"])
    empty, full, extra = found["queues"]
    assert (empty["messages"], empty["oldest_at"], empty["is_extra"]) == (0, None, False)
    assert (full["path"], full["messages"], full["dead_letters"]) == ("contoso/x-servicebus-transfer/1", 4, 1)
    assert before[:16] <= full["oldest_at"][:16] < secondary.clock.now().isoformat()[:16]
    assert found["oldest_at"] == full["oldest_at"]
    assert (extra["index"], extra["is_extra"]) == (7, True)


@covers("N3")
def test_what_senders_use_can_be_said_and_what_is_not_there_is_missing(
    primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    make_backlog(secondary, 0, 1, 3)
    found = status(primary.connection_string, secondary, "--backlog-queues", "3")
    assert [(queue["index"], queue["is_extra"]) for queue in found["queues"]] == [(0, False), (1, False), (3, True)]
    assert found["missing"] == [2]


@covers("N11")
def test_a_syphon_is_told_by_who_receives(primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> None:
    make_backlog(secondary, 0, 1)
    assert status(primary.connection_string, secondary)["syphon"] == "not at work"
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as client,
        client.get_queue_receiver("contoso/x-servicebus-transfer/0"),
    ):
        assert status(primary.connection_string, secondary)["syphon"] == "at work on some queues"
        with client.get_queue_receiver("contoso/x-servicebus-transfer/1"):
            assert status(primary.connection_string, secondary)["syphon"] == "at work"
    assert status(primary.connection_string, secondary)["syphon"] == "not at work"


@covers("N2")
def test_it_works_while_the_primary_is_away(secondary: EmbeddedNamespace) -> None:
    """The only backlog there names it."""
    make_backlog(secondary, 0)
    send(secondary, 0, 1)
    found = status(AWAY, secondary)
    assert (found["primary"]["name"], found["primary"]["is_reachable"], found["messages"]) == ("contoso", False, 1)
    assert "cannot be reached" in found["primary"]["reason"]
    text = run(AWAY, secondary).stdout
    assert "not reachable" in text
    assert "contoso/x-servicebus-transfer/0" in text


def test_a_primary_that_refuses_the_key_is_not_taken_for_one_that_is_away(
    primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    make_backlog(secondary, 0)
    wrong = re.sub("SharedAccessKey=[^;]+", "SharedAccessKey=d3Jvbmc=", primary.connection_string)
    found = status(wrong, secondary)["primary"]
    assert found["is_reachable"]
    assert found["reason"]
    text = run(wrong, secondary).stdout
    assert "reachable, but its key or policy is refused" in text
    assert "not reachable" not in text
    assert "TrackingId" not in text


def test_a_namespace_is_not_its_own_secondary(secondary: EmbeddedNamespace) -> None:
    result = run(secondary.connection_string, secondary)
    assert result.exit_code == 2
    assert "cannot be its own secondary" in result.stderr


def test_people_are_told_in_words(primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> None:
    make_backlog(secondary, 0)
    make_backlog(secondary, 0, name="fabrikam")
    send(secondary, 0, 1)
    text = run(primary.connection_string, secondary).stdout
    assert "1 message, 0 dead letters" in text
    assert "`tandembus syphon` brings them home" in text
    with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as client,
        client.get_queue_receiver("contoso/x-servicebus-transfer/0"),
    ):
        assert "`tandembus syphon`" not in run(primary.connection_string, secondary).stdout
    assert "fabrikam: backlogs of other primaries" in text


@covers("P19")
def test_what_cannot_be_counted_is_unknown_and_not_0(primary: EmbeddedNamespace, secondary: EmbeddedNamespace) -> None:
    make_backlog(secondary, 0, 1)
    send(secondary, 0, 2)
    with secondary.fault("entity/contoso/x-servicebus-transfer/1", "unavailable"):
        found = status(primary.connection_string, secondary)
        assert (found["messages"], found["dead_letters"], found["is_limited"]) == (2, 0, True)
        known, unknown = found["queues"]
        assert (known["messages"], known["is_limited"]) == (2, False)
        assert (unknown["messages"], unknown["dead_letters"], unknown["is_limited"]) == (None, None, True)
        text = run(primary.connection_string, secondary).stdout
        assert "backlog  at least 2 messages, at least 0 dead letters" in text
        assert re.search(r"x-servicebus-transfer/1 +unknown +- +unknown", text)
        with secondary.fault("entity/contoso/x-servicebus-transfer/0", "unavailable"):
            found = status(primary.connection_string, secondary)
            assert (found["messages"], found["dead_letters"], found["is_limited"]) == (None, None, True)
            text = run(primary.connection_string, secondary).stdout
            assert "backlog  unknown number of messages, unknown number of dead letters" in text


@covers("N2")
def test_a_name_that_nobody_tells_is_asked_for(secondary: EmbeddedNamespace) -> None:
    make_backlog(secondary, 0)
    make_backlog(secondary, 0, name="fabrikam")
    result = run(AWAY, secondary)
    assert result.exit_code == 3
    assert "backlogs of contoso, fabrikam" in result.stderr
    assert (
        status(AWAY, secondary, "--primary-name", "Fabrikam")["queues"][0]["path"] == "fabrikam/x-servicebus-transfer/0"
    )


def test_a_secondary_without_backlog_queues_is_no_failure(
    primary: EmbeddedNamespace, secondary: EmbeddedNamespace
) -> None:
    assert status(primary.connection_string, secondary)["queues"] == []
    assert "no client has been paired yet" in run(primary.connection_string, secondary).stdout


def test_without_namespaces_it_says_how_to_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["pair", "status"])
    assert result.exit_code == 2
    assert "--primary" in result.stderr
    assert "tandembus up" in result.stderr
