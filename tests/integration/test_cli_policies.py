"""Policies, tokens and single messages on the command line, against a running namespace."""

from __future__ import annotations

import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from tests.covers import covers
from tests.integration.command_line import Run, lines, one, received
from tests.integration.serving import RunningNamespace


@pytest.fixture
def queue(run: Run) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("queue", "create", name)
    yield name
    run("queue", "delete", name, "--yes")


@pytest.fixture
def policy(run: Run) -> Iterator[str]:
    name = f"policy-{uuid.uuid4().hex[:12]}"
    yield name
    run("policy", "delete", name, "--yes")


@covers("M15")
class TestPolicies:
    def test_a_policy_of_the_namespace_is_good_until_its_key_is_made_anew(
        self, run: Run, queue: str, policy: str
    ) -> None:
        made = one(run("policy", "create", policy, "--rights", "send", "--json"))
        assert (made["name"], made["rights"], made["entity"]) == (policy, ["Send"], None)
        mine = made["primary_connection_string"]
        run("send", queue, "x", "--connection-string", mine)
        run("send", queue, "x", "--connection-string", made["secondary_connection_string"])
        assert run("receive", queue, "--connection-string", mine, exit_code=4)
        run("policy", "list", "--connection-string", mine, exit_code=4)
        run("policy", "create", policy, "--rights", "Send", exit_code=6)
        listed = {each["name"]: each for each in lines(run("policy", "list", "--json"))}
        assert listed[policy] == {"name": policy, "rights": ["Send"], "entity": None}
        renewed = one(run("policy", "regenerate", policy, "--json"))
        assert renewed["secondary_key"] == made["secondary_key"]
        run("send", queue, "x", "--connection-string", mine, exit_code=4)
        run("send", queue, "x", "--connection-string", renewed["primary_connection_string"])
        assert one(run("policy", "update", policy, "--rights", "Listen", "--rights", "send", "--json"))["rights"] == [
            "Listen",
            "Send",
        ]
        assert len(received(run, queue, "--connection-string", renewed["primary_connection_string"])) == 3

    def test_a_policy_of_an_entity_is_good_for_it_only(self, run: Run, queue: str) -> None:
        assert "no policies" in run("policy", "list", "--entity", queue).stdout
        own = ("--entity", queue, "--primary-key", "my-own-key-0123456789")
        created = run("policy", "create", "shop", "--rights", "Send,Listen", *own)
        assert f"EntityPath={queue}" in created.stdout
        shown = one(run("policy", "show", "shop", "--entity", queue, "--json"))
        assert (shown["primary_key"], shown["rights"], shown["entity"]) == (own[-1], ["Listen", "Send"], queue)
        mine = shown["primary_connection_string"]
        run("send", queue, "x", "--connection-string", mine)
        assert [each["body"] for each in received(run, queue, "--connection-string", mine)] == ["x"]
        run("send", "other", "x", "--connection-string", mine, exit_code=2)
        run("send", "other", "x", "--connection-string", mine.replace(f";EntityPath={queue}", ""), exit_code=4)
        assert one(run("policy", "update", "shop", "--rights", "Send", "--entity", queue, "--json"))["rights"] == [
            "Send"
        ]
        run("receive", queue, "--connection-string", mine, exit_code=4)
        run("policy", "regenerate", "shop", "--secondary", "--entity", queue)
        run("send", queue, "x", "--connection-string", mine)
        assert "shop" in run("policy", "list", "--entity", queue).stdout
        assert one(run("policy", "delete", "shop", "--entity", queue, "--json")) == {"policy": "shop", "deleted": True}
        run("send", queue, "x", "--connection-string", mine, exit_code=4)

    def test_who_may_manage_one_entity_administers_it_and_nothing_else(self, run: Run, queue: str) -> None:
        made = one(run("policy", "create", "owner", "--rights", "Manage,Send,Listen", "--entity", queue, "--json"))
        owner = ("--connection-string", made["primary_connection_string"])
        assert one(run("queue", "show", queue, "--json", *owner))["name"] == queue
        run("queue", "update", queue, "--max-delivery-count", "3", *owner)
        run("queue", "show", "other", *owner, exit_code=2)
        run("queue", "list", *owner, exit_code=4)
        run("policy", "list", *owner, exit_code=4)
        assert [each["name"] for each in lines(run("policy", "list", "--entity", queue, "--json", *owner))] == ["owner"]

    @covers("M3")
    def test_dead_letters_are_resubmitted_without_the_right_to_manage(self, run: Run, queue: str) -> None:
        options = ["--rights", "Send,Listen", "--entity", queue, "--json"]
        mine = ("--connection-string", one(run("policy", "create", "app", *options))["primary_connection_string"])
        run("send", queue, "x", "--count", "3", *mine)
        received(run, queue, "--dead-letter", *mine)
        assert one(run("deadletter", "resubmit", queue, "--json", *mine))["resubmitted"] == 3
        received(run, queue, "--dead-letter")
        run("policy", "update", "app", "--rights", "Listen", "--entity", queue)
        run("deadletter", "resubmit", queue, *mine, exit_code=4)
        assert len(lines(run("deadletter", "list", queue, "--json"))) == 3

    def test_mistakes_have_exit_codes(self, run: Run, queue: str) -> None:
        assert "policy list" in run("policy", "show", "nobody", exit_code=3).stderr
        run("policy", "show", "nobody", "--entity", queue, exit_code=3)
        run("policy", "regenerate", "nobody", exit_code=3)
        run("policy", "delete", "nobody", exit_code=3)
        run("policy", "update", "nobody", "--rights", "Send", exit_code=3)
        run("policy", "list", "--entity", "nowhere", exit_code=3)
        run("policy", "create", "app", "--rights", "Send", "--primary-key", "with space", exit_code=1)

    def test_the_root_policy_cannot_be_deleted(self, run: Run) -> None:
        run("policy", "delete", "RootManageSharedAccessKey", "--yes", exit_code=1)


@covers("M15")
def test_a_token_opens_what_it_is_for(run: Run, running_namespace: RunningNamespace, queue: str) -> None:
    def get(path: str, token: str) -> int:
        request = urllib.request.Request(f"{running_namespace.http_url}/{path}", headers={"Authorization": token})
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code

    whole = run("token").stdout.strip()
    assert get(queue, whole) == 200
    narrow = one(run("token", queue, "--lifetime", "5m", "--json"))
    assert get(queue, narrow["token"]) == 200
    assert get("$namespaceinfo", narrow["token"]) == 401
    assert narrow["uri"].endswith(f"/{queue}")
    assert get(queue, one(run("token", "other", "--json"))["token"]) == 401


class TestSingleMessages:
    @covers("M4")
    def test_they_are_deleted_by_number_whatever_their_state(self, run: Run, queue: str) -> None:
        run("send", queue, "--lines", stdin="a\nb\nc\n")
        run("send", queue, "later", "--schedule", "1h")
        numbers = {each["body"]: str(each["sequence_number"]) for each in lines(run("peek", queue, "--json"))}
        chosen = ["--sequence-number", numbers["b"], "--sequence-number", numbers["later"]]
        gone = one(run("message", "delete", queue, *chosen, "--json"))
        assert gone == {
            "entity": queue,
            "sub_queue": None,
            "deleted": [int(numbers["b"]), int(numbers["later"])],
            "not_deleted": [],
        }
        run("message", "delete", queue, "--sequence-number", numbers["b"], exit_code=3)
        run("message", "delete", "nowhere", "--sequence-number", "1", exit_code=3)
        assert [each["body"] for each in received(run, queue, "--dead-letter")] == ["a", "c"]
        dead = lines(run("deadletter", "list", queue, "--json"))[0]["sequence_number"]
        run("message", "delete", queue, "--sub-queue", "dead-letter", "--sequence-number", str(dead))
        assert [each["body"] for each in lines(run("deadletter", "list", queue, "--json"))] == ["c"]


def test_the_meter_tells_what_was_done(run: Run, queue: str) -> None:
    run("send", queue, "x" * 100_000, "--count", "2")
    found = {each["operation"]: each for each in lines(run("meter", "--entity", queue, "--json"))}
    assert (found["send"]["messages"], found["send"]["operations"], found["send"]["reason"]) == (2, 4, "normal")
    assert "send" in run("meter", "--total").stdout
    row = next(line for line in run("meter").stdout.splitlines() if queue in line and " send " in line)
    assert row.split()[:6] == [queue, "send", "normal", "2", "2", "4"]
    assert "nothing" in run("meter", "--entity", "nowhere").stdout
    sends = next(
        each
        for each in lines(run("meter", "--entity", queue, "--prices", "us", "--json"))
        if each["operation"] == "send"
    )
    assert sends["cost"] == pytest.approx(sends["operations"] * 0.80 / 1_000_000)
    assert "USD in all, at list prices of" in run("meter", "--total", "--prices", "us").stdout
    assert "price lists" in run("meter", "--prices", "mars", exit_code=2).stderr
