"""What a person gets wrong on the command line, and what is said then, against a running namespace."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.covers import covers
from tests.integration.command_line import Run, lines, one, received


@pytest.fixture
def name() -> str:
    return f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def queue(run: Run, name: str) -> Iterator[str]:
    run("queue", "create", f"{name}-queue")
    yield f"{name}-queue"
    run("queue", "delete", f"{name}-queue", "--yes")


@pytest.fixture
def topic(run: Run, name: str) -> Iterator[str]:
    run("topic", "create", f"{name}-topic")
    yield f"{name}-topic"
    run("topic", "delete", f"{name}-topic", "--yes")


@covers("M9")
class TestOtherKinds:
    @pytest.mark.parametrize("command", [["show"], ["update", "--default-ttl", "1d"], ["delete", "--yes"]])
    def test_a_command_for_queues_leaves_topics_alone_and_the_reverse(
        self, run: Run, queue: str, topic: str, command: list[str]
    ) -> None:
        verb, *options = command
        for noun, other, taken in (("queue", "topic", topic), ("topic", "queue", queue)):
            told = run(noun, verb, taken, *options, exit_code=3).stderr
            assert f"'{taken}' is a {other}, and no {noun}." in told
            assert f"`tandembus {other} show {taken}`" in told
            assert one(run(other, "show", taken, "--json"))["default_time_to_live_s"] is None

    def test_a_name_that_is_taken_by_the_other_kind_gets_advice_that_works(
        self, run: Run, queue: str, topic: str
    ) -> None:
        for noun, other, taken in (("queue", "topic", topic), ("topic", "queue", queue)):
            told = run(noun, "create", taken, exit_code=6).stderr
            assert f"There is a {other} '{taken}' already" in told
            assert f"`tandembus {other} show {taken}`" in told
            assert f"{noun} update" not in told

    def test_dead_letters_of_a_topic_are_in_its_subscriptions(self, run: Run, topic: str) -> None:
        for command in ("list", "resubmit"):
            assert "is a topic" in run("deadletter", command, topic, exit_code=1).stderr


@covers("M9")
class TestWhatIsMissing:
    def test_a_topic_that_is_not_there_is_named_with_advice_about_topics(self, run: Run, queue: str) -> None:
        for command in (
            ["subscription", "create", "nowhere", "audit"],
            ["subscription", "list", "nowhere"],
            ["rule", "list", "nowhere", "audit"],
            ["rule", "add", "nowhere", "audit", "all", "--true"],
        ):
            told = run(*command, exit_code=3).stderr
            assert "There is no topic 'nowhere'." in told
            assert "tandembus topic create" in told
        assert f"'{queue}' is a queue, and no topic." in run("subscription", "list", queue, exit_code=3).stderr

    def test_a_subscription_that_is_not_there_is_named(self, run: Run, topic: str) -> None:
        told = run("rule", "list", topic, "audit", exit_code=3).stderr
        assert f"There is no subscription 'audit' of '{topic}'." in told
        assert f"subscription list {topic}" in told

    def test_an_entity_whose_policies_are_asked_for_is_named(self, run: Run, queue: str) -> None:
        told = run("policy", "create", "app", "--rights", "Send", "--entity", "nowhere", exit_code=3).stderr
        assert "There is no queue or topic 'nowhere'." in told
        assert "policy list" in run("policy", "show", "nobody", "--entity", queue, exit_code=3).stderr

    @covers("M4")
    def test_of_messages_by_number_the_others_are_deleted_and_it_is_told_which(self, run: Run, queue: str) -> None:
        run("send", queue, "x", "--count", "4")
        chosen = ["--sequence-number", "1", "--sequence-number", "999", "--sequence-number", "2"]
        result = run("message", "delete", queue, *chosen, "--json", exit_code=3)
        told = one(result)
        assert (told["deleted"], [each["sequence_number"] for each in told["not_deleted"]]) == ([1, 2], [999])
        assert "999" in told["not_deleted"][0]["error"]
        assert json.loads(result.stderr)["error"]["exit_code"] == 3
        chosen = [part for number in ("1", "3", "2") for part in ("--sequence-number", number)]
        result = run("message", "delete", queue, *chosen, exit_code=3)
        assert "deleted 1 message (3)" in result.stdout
        assert "Not deleted: 1, 2." in result.stderr
        assert [each["sequence_number"] for each in received(run, queue)] == [4]


@pytest.mark.parametrize("option", ["--requires-session", "--no-requires-duplicate-detection", "--enable-partitioning"])
def test_what_is_fixed_at_creation_says_so(run: Run, queue: str, option: str) -> None:
    told = run("queue", "update", queue, option, exit_code=2).stderr
    assert "is chosen when the entity is created, and cannot be changed" in told


@covers("M9")
def test_a_disabled_subscription_gets_advice_that_works(run: Run, topic: str) -> None:
    run("subscription", "create", topic, "audit", "--status", "ReceiveDisabled")
    told = run("receive", f"{topic}/subscriptions/audit", exit_code=7).stderr
    assert "subscription update TOPIC NAME" in told


@covers("M10")
def test_what_could_not_be_forwarded_is_seen_and_can_be_sent_again(run: Run, queue: str, name: str) -> None:
    source, target = f"{name}-source", f"{name}-target"
    assert "transfer-dead-letter" not in run("queue", "list").stdout
    run("queue", "create", target)
    run("queue", "create", source, "--forward-to", target, "--status", "ReceiveDisabled")
    run("send", source, "lost")
    run("queue", "delete", target, "--yes")
    run("queue", "update", source, "--status", "Active")
    option = ["--sub-queue", "transfer-dead-letter"]
    run("receive", source, *option, "--abandon", "--wait", "10s")
    dead = one(run("deadletter", "list", source, *option, "--json"))
    assert dead["dead_letter_reason"] == "TransferDestinationNotFound"
    assert "transfer-dead-letter" in run("queue", "list").stdout
    moved = one(run("deadletter", "resubmit", source, *option, "--to", queue, "--json"))
    assert (moved["resubmitted"], moved["refused"]) == (1, 0)
    assert [each["body"] for each in received(run, queue)] == ["lost"]
    run("queue", "delete", source, "--yes")


@covers("M10", "M15")
def test_the_key_of_an_entity_that_forwards_needs_the_send_claim_at_the_target(
    run: Run, queue: str, topic: str
) -> None:
    made = one(run("policy", "create", "owner", "--rights", "Manage", "--entity", queue, "--json"))
    mine = made["primary_connection_string"]
    told = run("queue", "update", queue, "--forward-to", topic, "--connection-string", mine, exit_code=4).stderr
    assert f"No token of the request grants Send on '{topic}'" in told


@covers("M7")
def test_sessions_of_the_last_hour_are_those_whose_state_was_set_then(run: Run, name: str) -> None:
    run("queue", "create", name, "--requires-session")
    run("session", "set-state", name, "s1", "waiting")
    assert lines(run("session", "list", name, "--since", "1h", "--json")) == [{"session_id": "s1"}]
    assert lines(run("session", "list", name, "--since", "0s", "--json")) == []
    run("queue", "delete", name, "--yes")
