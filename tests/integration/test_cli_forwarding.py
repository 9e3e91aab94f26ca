"""Forwarding on the command line, against a running namespace."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.covers import covers
from tests.integration.command_line import Run, lines, one, received
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


@pytest.fixture
def queue(run: Run) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("queue", "create", name)
    yield name
    run("queue", "delete", name, "--yes")


@pytest.fixture
def sources(run: Run, queue: str) -> Iterator[str]:
    """A prefix for queues and topics that forward to `queue`; all of them are deleted before it is."""
    prefix = f"{queue}-source"
    yield prefix
    for noun in ("queue", "topic"):
        for each in lines(run(noun, "list", "--json")):
            if each["name"].startswith(prefix):
                run(noun, "delete", each["name"], "--yes")


@covers("M10")
class TestForwarding:
    def test_messages_move_on_and_the_setting_can_be_taken_back(self, run: Run, queue: str, sources: str) -> None:
        made = one(run("queue", "create", sources, "--forward-to", queue, "--json"))
        assert made["forward_to"] == queue
        run("send", sources, "moved on")
        assert [each["body"] for each in lines(run("receive", queue, "--wait", "10s", "--json"))] == ["moved on"]
        changed = one(run("queue", "update", sources, "--forward-to", "", "--json"))
        assert changed["forward_to"] is None
        run("send", sources, "stays")
        assert [each["body"] for each in received(run, sources)] == ["stays"]

    def test_a_subscription_forwards_what_its_rules_match(self, run: Run, queue: str, sources: str) -> None:
        run("topic", "create", sources)
        run("subscription", "create", sources, "large", "--sql", "size > 5", "--forward-to", queue)
        run("send", sources, "small", "--property", "size:int=5")
        run("send", sources, "large", "--property", "size:int=6")
        assert [each["body"] for each in lines(run("receive", queue, "--wait", "10s", "--json"))] == ["large"]

    def test_dead_letters_move_on(self, run: Run, queue: str, sources: str) -> None:
        run("queue", "create", sources, "--forward-dead-letters-to", queue)
        run("send", sources, "x")
        received(run, sources, "--dead-letter", "--reason", "why")
        (moved,) = lines(run("receive", queue, "--wait", "10s", "--json"))
        assert (moved["body"], moved["dead_letter_reason"]) == ("x", "why")

    def test_a_target_that_is_not_there_is_refused(self, run: Run, sources: str) -> None:
        run("queue", "create", sources, "--forward-to", "nowhere", exit_code=1)
        run("queue", "show", sources, exit_code=3)
