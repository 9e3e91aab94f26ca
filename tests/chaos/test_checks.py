"""The checks themselves: each must find the breach that it is for, and must not find one where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checks import CHECKS, breaches_of
from tests.chaos.events import Event, NotAHistory, event_of, line_of
from tests.chaos.history import History
from tests.covers import covers

FRAGMENT = 1 << 48


class Story:
    """Writes a history, a tenth of a second per line."""

    def __init__(self, **promises: Any) -> None:
        self.events: list[Event] = []
        self.at = 1000.0
        self._op = 0
        self.say("run", seed=1)
        self.say("entity", entity="q", **promises)

    def say(self, kind: str, **said: Any) -> Story:
        self.at = round(self.at + 0.1, 3)
        self.events.append(Event(kind, self.at, **said))
        return self

    def wait(self, seconds: float) -> Story:
        self.at += seconds
        return self

    def begin(self, kind: str, **said: Any) -> int:
        self._op += 1
        self.say(kind, op=self._op, **{"entity": "q", **said})
        return self._op

    def send(self, message_id: str, outcome: str = "ok", **said: Any) -> Story:
        return self.say(outcome, op=self.begin("send", id=message_id, **said), error="" if outcome == "ok" else "why")

    def receive(self, message_id: str, number: int, token: str = "", receiver: int = 1, **said: Any) -> Story:
        said = {"entity": "q", "locked_until": self.at + 60.1, **said}
        return self.say("received", id=message_id, number=number, token=token, receiver=receiver, **said)

    def settle(self, number: int, token: str, outcome: str = "ok", how: str = "complete", **said: Any) -> Story:
        operation = self.begin("settle", number=number, token=token, how=how, **said)
        return self.say(outcome, op=operation, error="" if outcome == "ok" else "MessageLockLost")

    def take(self, message_id: str, number: int, token: str, **said: Any) -> Story:
        return self.receive(message_id, number, token, **said).settle(number, token)

    def left(self, message_id: str, number: int, **said: Any) -> Story:
        return self.say("left", **{"entity": "q", "id": message_id, "number": number, **said})

    def down(self, **said: Any) -> Story:
        return self.say("down", broker=0, **said)

    def broken(self) -> set[str]:
        """The checks that find something wrong with it."""
        return set(breaches_of(History(self.events)))


def token(epoch: int, number: int, fragment: int = 0) -> str:
    return (fragment.to_bytes(2, "big") + epoch.to_bytes(4, "big") + number.to_bytes(10, "big")).hex()


LOCK = token(1, 1)
AGAIN = token(1, 2)
LATER = token(2, 1)


def story() -> Story:
    return Story()


def sessions() -> Story:
    return Story(has_sessions=True, lock_s=60.0)


def deduplicating() -> Story:
    return Story(duplicate_window_s=30.0)


def partitioned() -> Story:
    return Story(duplicate_window_s=30.0, fragments=16)


def topic() -> Story:
    written = Story()
    return (
        written.say("entity", entity="t/one", source="t")
        .say("entity", entity="t/two", source="t")
        .say("entity", entity="t")
    )


def in_doubt(places: dict[str, list[int]]) -> Story:
    """A broker is lost while `a` is under way."""
    written = story()
    operation = written.begin("send", id="a")
    return written.down(places=places).say("ok", op=operation)


def in_session(written: Story, receiver: int, session: str = "s") -> Story:
    return written.say("session", entity="q", session=session, receiver=receiver, locked_until=written.at + 60.1)


GOOD: dict[str, Story] = {
    "consumed or left": story().send("a").send("b").take("a", 1, LOCK).left("b", 2).say("count", entity="q", active=1),
    "a completion without an answer": story().send("a").receive("a", 1, LOCK).settle(1, LOCK, "unknown"),
    "an unknown send that came": story().send("a", "unknown").take("a", 1, LOCK),
    "an unknown send that did not": story().send("b").send("a", "unknown").left("b", 1),
    "a refused send that did not": story().send("b").send("a", "failed").left("b", 1),
    "lapsed and delivered again": story().send("a").receive("a", 1, LOCK).wait(61).take("a", 1, AGAIN),
    "abandoned and delivered again": story()
    .send("a")
    .receive("a", 1, LOCK)
    .settle(1, LOCK, how="abandon")
    .take("a", 1, AGAIN),
    "closed and delivered again": story()
    .send("a")
    .receive("a", 1, LOCK)
    .say("closed", receiver=1)
    .wait(61)
    .take("a", 1, AGAIN, receiver=2),
    "a new epoch ends locks": story().send("a").receive("a", 1, LOCK).down().take("a", 1, LATER, receiver=2),
    "a lock lost with its broker": story()
    .send("a")
    .receive("a", 1, LOCK)
    .down()
    .settle(1, LOCK, "failed")
    .left("a", 1),
    "stored twice in doubt": in_doubt({}).left("a", 1).left("a", FRAGMENT + 1),
    "a topic's subscriptions": topic().send("a", entity="t").left("a", 1, entity="t/one").left("a", 1, entity="t/two"),
    "a duplicate dropped": deduplicating().send("a").send("a").left("a", 1),
    "a duplicate after the window": deduplicating().send("a").wait(40).send("a").left("a", 1).left("a", 2),
    "one id under two keys": partitioned().send("a", key="k1").send("a", key="k2").left("a", 1).left("a", 2),
    "a duplicate under a key": partitioned().send("a", key="k1").send("a", key="k1").left("a", 1),
    "one id under two keys of a plain queue": deduplicating().send("a", key="k1").send("a", key="k2").left("a", 1),
    "a whole batch": story().send("a", batch=1).send("b", batch=1).left("a", 1).left("b", 2),
    "no batch at all": story().send("a", "unknown", batch=1).send("b", "unknown", batch=1),
}


def session_story() -> Story:
    """Two messages of a session, received in order by one after the other."""
    written = sessions().send("a", session="s").send("b", session="s").send("c", session="s")
    in_session(written, 1).receive("a", 1, LOCK, session="s").settle(1, LOCK).say("closed", receiver=1)
    in_session(written, 2).receive("b", 2, AGAIN, receiver=2, session="s").receive(
        "c", 3, token(1, 3), receiver=2, session="s"
    )
    return written.settle(2, AGAIN).settle(3, token(1, 3))


def transaction(outcome: str, *, is_there: bool, is_gone: bool, end: str = "commit") -> Story:
    """`a` is completed and `b` is sent in one transaction."""
    written = story().send("a").receive("a", 1, LOCK).settle(1, LOCK, transaction=7).send("b", transaction=7)
    written.say(outcome, op=written.begin(end, transaction=7))
    if is_there:
        written.left("b", 2)
    return written if is_gone else written.left("a", 1)


GOOD["a session in order"] = session_story()
GOOD["a transaction"] = transaction("ok", is_there=True, is_gone=True)
GOOD["a transaction that was refused"] = transaction("failed", is_there=False, is_gone=False)
GOOD["a transaction rolled back"] = transaction("ok", is_there=False, is_gone=False, end="rollback")
GOOD["a transaction in doubt that happened"] = transaction("unknown", is_there=True, is_gone=True)
GOOD["a transaction in doubt that did not"] = transaction("unknown", is_there=False, is_gone=False)


BAD: dict[str, tuple[str, Story]] = {
    "nothing was sent": ("sound history", story()),
    "an answer to nothing": ("sound history", story().send("a").left("a", 1).say("ok", op=99)),
    "an entity nobody speaks of": ("sound history", story().send("a", entity="other")),
    "settled without a lock": ("sound history", story().send("a").settle(1, LOCK)),
    "lost": ("total queue", story().send("a")),
    "received and gone": ("total queue", story().send("a").receive("a", 1, LOCK)),
    "a refused completion, and gone": (
        "total queue",
        story().send("a").receive("a", 1, LOCK).wait(61).settle(1, LOCK, "failed"),
    ),
    "lost in one subscription": ("total queue", topic().send("a", entity="t").left("a", 1, entity="t/one")),
    "received and deleted, and lost without a kill": ("total queue", Story(is_at_most_once=True).send("a")),
    "never sent": ("no phantom", story().send("b").left("b", 1).left("a", 2)),
    "sent later": ("no phantom", story().receive("a", 1, LOCK).send("a").settle(1, LOCK)),
    "refused, and there": ("no phantom", story().send("a", "failed").left("a", 1)),
    "another body": ("no phantom", story().send("a", digest=5).left("a", 1, digest=6)),
    "another session": ("no phantom", story().send("a", session="s").left("a", 1, session="r")),
    "completed and back": ("no repeat", story().send("a").take("a", 1, LOCK).receive("a", 1, AGAIN)),
    "completed and left": ("no repeat", story().send("a").take("a", 1, LOCK).left("a", 1)),
    "completed twice": (
        "no repeat",
        story().send("a").receive("a", 1, LOCK).receive("a", 1, LATER).settle(1, LOCK).settle(1, LATER),
    ),
    "stored twice without doubt": ("no repeat", story().send("a").left("a", 1).left("a", 2)),
    "stored twice, and the kill was later": (
        "no repeat",
        story().send("a").down().left("a", 1).left("a", FRAGMENT + 1),
    ),
    "stored twice, and another was killed": (
        "no repeat",
        in_doubt({"other": [0]}).left("a", 1).left("a", FRAGMENT + 1),
    ),
    "deleted twice": ("no repeat", story().send("a").receive("a", 1).receive("a", 1)),
    "half a batch": ("whole batches", story().send("a", "unknown", batch=1).send("b", "unknown", batch=1).left("a", 1)),
    "numbered against the order of sends": (
        "session order",
        sessions().send("a", session="s").send("b", session="s").left("a", 2, session="s").left("b", 1, session="s"),
    ),
    "a session in two fragments": (
        "session order",
        sessions()
        .send("a", session="s")
        .send("b", session="s")
        .left("a", 1, session="s")
        .left("b", FRAGMENT + 2, session="s"),
    ),
    "delivered against the order of numbers": (
        "session order",
        in_session(sessions().send("a", session="s").send("b", session="s"), 1)
        .receive("b", 2, AGAIN, session="s")
        .receive("a", 1, LOCK, session="s")
        .settle(1, LOCK)
        .settle(2, AGAIN),
    ),
    "passed over": (
        "session order",
        in_session(sessions().send("a", session="s").send("b", session="s"), 1)
        .receive("b", 2, AGAIN, session="s")
        .settle(2, AGAIN)
        .left("a", 1, session="s"),
    ),
    "a duplicate stored": ("duplicate window", deduplicating().send("a").send("a").left("a", 1).left("a", 2)),
    "dropped under another key": (
        "duplicate window",
        partitioned().send("a", key="k1").send("a", key="k2").left("a", 1),
    ),
    "dropped after the window": ("duplicate window", deduplicating().send("a").wait(40).send("a").left("a", 1)),
    "committed without the send": ("transactions", transaction("ok", is_there=False, is_gone=True)),
    "committed without the settlement": ("transactions", transaction("ok", is_there=True, is_gone=False)),
    "refused, and sent": ("transactions", transaction("failed", is_there=True, is_gone=False)),
    "refused, and settled": ("transactions", transaction("failed", is_there=False, is_gone=True)),
    "rolled back, and done": ("transactions", transaction("ok", is_there=True, is_gone=True, end="rollback")),
    "half of it, in doubt": ("transactions", transaction("unknown", is_there=True, is_gone=False)),
    "two locks on one message": (
        "exclusive locks",
        story().send("a").receive("a", 1, LOCK).take("a", 1, AGAIN, receiver=2),
    ),
    "closed and delivered again before the lock was over": (
        "exclusive locks",
        story().send("a").receive("a", 1, LOCK).say("closed", receiver=1).take("a", 1, AGAIN, receiver=2),
    ),
    "one lock for two receivers": (
        "exclusive locks",
        story().send("a").receive("a", 1, LOCK).take("a", 1, LOCK, receiver=2),
    ),
    "a lock of an owner that was replaced": (
        "exclusive locks",
        story().send("a").send("b").receive("a", 1, LATER).settle(1, LATER).take("b", 2, LOCK),
    ),
    "a lock lost for no reason": (
        "exclusive locks",
        story().send("a").receive("a", 1, LOCK).settle(1, LOCK, "failed").left("a", 1),
    ),
    "a lock lost while another broker died": (
        "exclusive locks",
        story().send("a").receive("a", 1, LOCK).down(places={"q": [3]}).settle(1, LOCK, "failed").left("a", 1),
    ),
    "two holders of one session": (
        "exclusive locks",
        in_session(in_session(sessions().send("a", session="s"), 1), 2).left("a", 1, session="s"),
    ),
    "counted too many": ("count is content", story().send("a").left("a", 1).say("count", entity="q", active=2)),
    "counted too few": (
        "count is content",
        story().send("a").left("a", 1, state="dead").say("count", entity="q", active=0),
    ),
    "a ping": ("no ping", story().send("a").left("a", 1, is_ping=True)),
    "a pair that fails": ("needless failures", Story(is_paired=True).send("a", "unknown")),
}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    assert breaches_of(History(GOOD[name].events)) == {}


@pytest.mark.parametrize("name", BAD)
def test_a_history_with_a_breach_is_refused_by_the_check_for_it(name: str) -> None:
    check, written = BAD[name]
    assert check in written.broken()


def test_every_check_has_a_history_that_it_refuses() -> None:
    assert {check for check, _ in BAD.values()} == set(CHECKS)


def test_a_history_reads_as_it_was_written() -> None:
    for event in session_story().events:
        assert event_of(line_of(event)) == event


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"kind":"send"}', '{"kind":"other","at":1}', '{"kind":"send","at":1,"more":1}']
)
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(NotAHistory):
        event_of(line)


def test_the_command_judges_a_file_by_its_exit_status(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("".join(line_of(event) + "\n" for event in session_story().events))
    bad.write_text("".join(line_of(event) + "\n" for event in story().send("a").events))
    command = [sys.executable, "-m", "tests.chaos.check"]
    root = Path(__file__).parents[2]
    fine = subprocess.run([*command, str(good)], cwd=root, capture_output=True, text=True, check=False)
    assert (fine.returncode, "no breach" in fine.stdout) == (0, True), fine.stdout + fine.stderr
    broken = subprocess.run([*command, str(good), str(bad)], cwd=root, capture_output=True, text=True, check=False)
    assert (broken.returncode, "a in q was accepted and is lost" in broken.stdout) == (1, True)


HELD: dict[str, Any] = {"kill": 2, "entity": "q", "id": "a"}
"""`a` was in the hands of the syphon that was lost second."""


def pair_story() -> Story:
    """An entity of a pair that is failed over from 1001.5 on, because the primary was killed at 1001.0."""
    told = Story(is_paired=True)
    told.at = 1000.9
    told.say("down", how="primary", kill=1, took_s=8.0)
    told.at = 1001.4
    return told.say("failover", entity="q", took_s=0.5)


def back(told: Story) -> Story:
    told.at = 1008.9
    told.say("up", kill=1, took_s=8.0)
    return told.say("healthy", entity="q")


@covers("F8")
def test_a_message_that_went_through_the_backlog_may_be_overtaken_and_is_not_lost() -> None:
    told = back(pair_story().send("a")).send("b").take("b", 1, LOCK).take("a", 2, AGAIN)
    assert told.broken() == set()
    assert back(pair_story().send("a")).broken() == {"total queue"}


@covers("F8")
@pytest.mark.parametrize("how", ["syphon", "secondary"])
def test_a_copy_from_the_backlog_needs_somebody_who_was_lost_on_the_way(how: str) -> None:
    told = back(pair_story().send("a"))
    assert told.receive("a", 1).receive("a", 2).broken() == {"no repeat"}
    told = back(pair_story().send("a")).receive("a", 1).say("down", how=how, kill=2).say("held", **HELD).receive("a", 2)
    assert told.broken() == set()
    assert told.receive("a", 3).broken() == {"no repeat"}
    early = back(pair_story().say("down", how=how, kill=2).say("held", **HELD).send("a"))
    assert early.receive("a", 1).receive("a", 2).broken() == {"no repeat"}


@covers("F8")
def test_a_killed_syphon_may_have_doubled_only_what_was_in_its_hands() -> None:
    told = back(pair_story().send("a").send("b")).receive("a", 1).receive("b", 2)
    told.say("down", how="syphon", kill=2).say("held", **HELD)
    assert told.receive("a", 3).broken() == set()
    assert told.receive("b", 4).broken() == {"no repeat"}


@covers("F8")
def test_an_entity_that_takes_no_more_messages_excuses_neither_copies_nor_failures_of_others() -> None:
    told = Story(is_paired=True).say("entity", entity="other", is_paired=True)
    told.say("down", how="primary", note="disabled", kill=1, took_s=8.0, places={"q": []})
    assert told.send("a", "unknown").broken() == set()
    assert told.send("b", "unknown", entity="other").broken() == {"needless failures"}
    told = Story(is_paired=True).say("down", how="primary", note="disabled", kill=1, took_s=8.0, places={"q": []})
    told = back(told.say("failover", entity="q").send("a")).receive("a", 1).receive("a", 2)
    assert told.broken() == {"no repeat"}


@covers("F8")
def test_a_send_that_was_cut_off_by_a_failover_may_be_there_twice() -> None:
    told = Story(is_paired=True)
    operation = told.begin("send", id="a")
    told.say("down", how="primary", kill=1, took_s=8.0)
    told.say("failover", entity="q", took_s=0.1).say("ok", op=operation)
    told.wait(8.0).say("up", kill=1, took_s=8.0).say("healthy", entity="q")
    assert told.receive("a", 1).receive("a", 2).broken() == set()
    assert told.receive("a", 3).broken() == {"no repeat"}


@covers("F8")
def test_a_copy_is_never_there_where_duplicates_are_detected() -> None:
    told = Story(is_paired=True, duplicate_window_s=600.0)
    told.say("down", how="primary", kill=1, took_s=1.0).say("failover", entity="q").send("a")
    told.say("up", kill=1).say("healthy", entity="q").receive("a", 1).say("down", how="syphon", kill=2)
    assert told.say("held", **HELD).receive("a", 2).broken() == {"duplicate window"}


@covers("F8")
def test_sends_of_a_pair_fail_only_before_failover_or_without_a_backlog() -> None:
    assert Story(is_paired=True).send("a", "unknown").broken() == {"needless failures"}
    before = Story(is_paired=True).say("down", how="primary", kill=1, took_s=8.0).send("a", "unknown")
    assert before.broken() == set()
    assert pair_story().wait(1.0).send("a", "unknown").broken() == {"needless failures"}
    without = pair_story().wait(1.0).say("down", how="secondary", kill=2).send("a", "unknown")
    assert without.broken() == set()
    assert back(without.say("up", kill=2).wait(4.0)).send("b", "unknown").broken() == {"needless failures"}


@covers("F8", "N10")
def test_a_ping_that_is_delivered_is_a_breach() -> None:
    assert story().send("a").take("a", 1, LOCK, is_ping=True).broken() == {"no ping"}
    assert story().send("a").left("a", 1, is_ping=True).broken() == {"no ping"}


@covers("F8")
def test_an_entity_that_fails_over_twice_in_a_row_proves_nothing() -> None:
    assert pair_story().send("a").say("failover", entity="q").broken() == {"sound history"}
