"""Topics, subscriptions and rules on the command line, against a running namespace."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.covers import covers
from tests.integration.command_line import Run, lines, one, received
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


@pytest.fixture
def topic(run: Run) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("topic", "create", name)
    yield name
    run("topic", "delete", name, "--yes")


@pytest.fixture
def audit(run: Run, topic: str) -> str:
    """The path of a subscription that gets everything."""
    run("subscription", "create", topic, "audit")
    return f"{topic}/subscriptions/audit"


@covers("M9")
class TestTopics:
    def test_every_setting_can_be_chosen_and_changed(self, run: Run) -> None:
        name = f"cli-{uuid.uuid4().hex[:12]}"
        options = ["--max-size-mb", "2048", "--default-ttl", "14d", "--auto-delete-on-idle", "1h"]
        options += ["--requires-duplicate-detection", "--duplicate-window", "30s", "--status", "SendDisabled"]
        options += ["--user-metadata", "mine", "--no-batched-operations", "--support-ordering", "--no-express"]
        made = one(run("topic", "create", name, "--json", *options))
        assert (made["name"], made["max_size_mb"], made["default_time_to_live_s"]) == (name, 2048, 1209600)
        assert (made["requires_duplicate_detection"], made["duplicate_detection_window_s"]) == (True, 30)
        assert (made["status"], made["user_metadata"], made["batched_operations"]) == ("SendDisabled", "mine", False)
        changed = one(run("topic", "update", name, "--json", "--status", "active", "--user-metadata", ""))
        assert (changed["status"], changed["user_metadata"], changed["max_size_mb"]) == ("Active", None, 2048)
        assert one(run("topic", "show", name, "--json"))["subscription_count"] == 0
        assert name in [each["name"] for each in lines(run("topic", "list", "--json"))]
        assert one(run("topic", "delete", name, "--json")) == {"topic": name, "deleted": True}
        run("topic", "show", name, exit_code=3)

    def test_people_get_tables(self, run: Run, topic: str, audit: str) -> None:
        assert "default time to live" in run("topic", "show", topic).stdout
        row = next(line for line in run("topic", "list").stdout.splitlines() if topic in line)
        assert row.split()[:2] == [topic, "Active"]
        assert "audit" in run("subscription", "list", topic).stdout
        assert "lock duration" in run("subscription", "show", topic, "audit").stdout

    def test_mistakes_have_exit_codes(self, run: Run, topic: str) -> None:
        assert "topic update" in run("topic", "create", topic, exit_code=6).stderr
        run("topic", "update", "nowhere", "--default-ttl", "1d", exit_code=3)
        run("topic", "delete", "nowhere", exit_code=3)
        run("queue", "show", topic, exit_code=3)
        run("subscription", "list", "nowhere", exit_code=3)
        run("subscription", "create", "nowhere", "audit", exit_code=3)
        assert "subscription list" in run("subscription", "show", topic, "nowhere", exit_code=3).stderr
        run("subscription", "create", topic, "audit", "--lock-duration", "1h", exit_code=1)
        assert run("subscription", "list", topic, "--json").stdout == ""


@covers("M9")
class TestSubscriptions:
    def test_every_setting_can_be_chosen_and_changed(self, run: Run, topic: str) -> None:
        options = ["--lock-duration", "30s", "--default-ttl", "14d", "--dead-lettering-on-expiration"]
        options += ["--no-dead-lettering-on-filter-errors", "--max-delivery-count", "3", "--user-metadata", "mine"]
        options += ["--status", "ReceiveDisabled", "--auto-delete-on-idle", "1h", "--no-batched-operations"]
        made = one(run("subscription", "create", topic, "audit", "--json", *options))
        assert (made["topic"], made["name"], made["lock_duration_s"]) == (topic, "audit", 30)
        assert (made["dead_lettering_on_expiration"], made["dead_lettering_on_filter_errors"]) == (True, False)
        assert (made["max_delivery_count"], made["status"]) == (3, "ReceiveDisabled")
        changed = one(run("subscription", "update", topic, "audit", "--json", "--status", "Active"))
        assert (changed["status"], changed["lock_duration_s"], changed["user_metadata"]) == ("Active", 30, "mine")
        assert [each["name"] for each in lines(run("subscription", "list", topic, "--json"))] == ["audit"]
        assert one(run("topic", "show", topic, "--json"))["subscription_count"] == 1
        gone = one(run("subscription", "delete", topic, "audit", "--json"))
        assert gone == {"topic": topic, "subscription": "audit", "deleted": True}
        run("subscription", "show", topic, "audit", exit_code=3)

    def test_what_is_sent_to_a_topic_is_received_from_its_subscriptions(self, run: Run, topic: str, audit: str) -> None:
        run("subscription", "create", topic, "other")
        run("send", topic, "--lines", stdin="a\nb\n")
        assert [each["body"] for each in lines(run("peek", audit, "--json"))] == ["a", "b"]
        assert [each["body"] for each in received(run, audit)] == ["a", "b"]
        assert received(run, audit) == []
        assert one(run("subscription", "show", topic, "other", "--json"))["counts"]["active"] == 2

    def test_purge_empties_a_subscription_or_its_dead_letters(self, run: Run, topic: str, audit: str) -> None:
        run("send", topic, "x", "--count", "30")
        received(run, audit, "--dead-letter", "--max", "10")
        purged = one(run("subscription", "purge", topic, "audit", "--json"))
        assert purged == {"topic": topic, "subscription": "audit", "sub_queue": None, "purged": 20}
        assert "purged 10" in run("subscription", "purge", topic, "audit", "--sub-queue", "dead-letter").stdout
        counts = one(run("subscription", "show", topic, "audit", "--json"))["counts"]
        assert (counts["active"], counts["dead_letter"]) == (0, 0)

    def test_dead_letters_of_a_subscription_go_to_its_topic_or_elsewhere(
        self, run: Run, topic: str, audit: str
    ) -> None:
        run("subscription", "create", topic, "elsewhere", "--false")
        run("send", topic, "x", "--count", "3")
        received(run, audit, "--dead-letter", "--reason", "why")
        assert "why" in run("deadletter", "list", audit).stdout
        first = one(run("deadletter", "resubmit", audit, "--max", "1", "--json"))
        assert first == {"entity": audit, "to": topic, "resubmitted": 1, "refused": 0}
        assert [each["body"] for each in received(run, audit)] == ["x"]
        name = f"cli-{uuid.uuid4().hex[:12]}"
        run("queue", "create", name)
        assert "resubmitted 2 messages" in run("deadletter", "resubmit", audit, "--to", name).stdout
        assert [each["properties"] for each in received(run, name)] == [{}, {}]
        run("queue", "delete", name, "--yes")

    def test_a_topic_cannot_be_received_from_nor_a_subscription_be_sent_to(
        self, run: Run, topic: str, audit: str
    ) -> None:
        assert "ubscription" in run("receive", topic, exit_code=1).stderr
        run("send", audit, "x", exit_code=1)
        run("receive", f"{topic}/subscriptions/nowhere", exit_code=3)


@covers("M9")
class TestRules:
    def test_a_subscription_gets_what_its_rules_match(self, run: Run, topic: str, audit: str) -> None:
        first = one(run("rule", "show", topic, "audit", "$Default", "--json"))
        assert (first["name"], first["filter"], first["action"]) == ("$Default", {"kind": "true"}, None)
        run("rule", "delete", topic, "audit", "$Default", "--yes")
        assert "no rules" in run("rule", "list", topic, "audit").stdout
        made = one(run("rule", "add", topic, "audit", "large", "--sql", "size > 5 AND colour = 'red'", "--json"))
        assert made["filter"] == {"kind": "sql", "expression": "size > 5 AND colour = 'red'", "parameters": {}}
        run("rule", "add", topic, "audit", "named", "--subject", "order", "--property", "n:int=7")
        run("rule", "add", topic, "audit", "least", "--sql", "total >= @least", "--parameter", "least:double=9.5")
        run("send", topic, "no", "--property", "size:int=5", "--property", "colour=red")
        run("send", topic, "sql", "--property", "size:int=6", "--property", "colour=red")
        run("send", topic, "correlation", "--subject", "order", "--property", "n:int=7")
        run("send", topic, "parameter", "--property", "total:double=9.5")
        assert [each["body"] for each in received(run, audit)] == ["sql", "correlation", "parameter"]
        listed = {each["name"]: each for each in lines(run("rule", "list", topic, "audit", "--json"))}
        assert sorted(listed) == ["large", "least", "named"]
        assert listed["named"]["filter"] == {"kind": "correlation", "label": "order", "properties": {"n": 7}}
        assert listed["least"]["filter"]["parameters"] == {"@least": 9.5}
        assert "label = order, n = 7" in run("rule", "list", topic, "audit").stdout

    def test_an_action_changes_the_copy(self, run: Run, topic: str) -> None:
        action = "SET priority = 'high'; SET sys.Label = 'seen'"
        run("subscription", "create", topic, "marked", "--sql", "urgent = TRUE", "--action", action)
        run("send", topic, "x", "--property", "urgent:bool=true")
        run("send", topic, "y", "--property", "urgent:bool=false")
        (message,) = received(run, f"{topic}/subscriptions/marked")
        changed = {"urgent": True, "priority": "high", "RuleName": "$Default"}
        assert (message["properties"], message["subject"]) == (changed, "seen")
        assert action in run("rule", "show", topic, "marked", "$Default").stdout

    def test_a_rule_is_replaced(self, run: Run, topic: str, audit: str) -> None:
        run("rule", "add", topic, "audit", "$Default", "--false", exit_code=6)
        assert "replaced" in run("rule", "add", topic, "audit", "$Default", "--false", "--replace").stdout
        run("send", topic, "x")
        assert received(run, audit) == []
        run("rule", "add", topic, "audit", "other", "--true", "--replace", exit_code=3)

    def test_mistakes_have_exit_codes_and_name_the_place(self, run: Run, topic: str, audit: str) -> None:
        run("rule", "add", topic, "audit", "bad", "--sql", "size >", exit_code=1)
        run("rule", "add", topic, "audit", "bad", "--sql", "nothing(5) = 1", exit_code=1)
        run("rule", "add", topic, "audit", "bad", "--sql", "a = 1", "--action", "DROP x", exit_code=1)
        run("rule", "add", topic, "nowhere", "r", "--true", exit_code=3)
        run("rule", "show", topic, "audit", "bad", exit_code=3)
        run("rule", "delete", topic, "audit", "bad", exit_code=3)
        run("rule", "list", topic, "nowhere", exit_code=3)
        gone = one(run("rule", "delete", topic, "audit", "$Default", "--json"))
        assert gone == {"topic": topic, "subscription": "audit", "rule": "$Default", "deleted": True}
