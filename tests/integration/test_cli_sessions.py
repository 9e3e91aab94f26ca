"""Sessions, deferred and scheduled messages on the command line, against a running namespace."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.covers import covers
from tests.integration.command_line import STOPS_WITHIN_S, Run, command_line, lines, listen_to_ctrl_c, one, received
from tests.integration.serving import RunningNamespace
from tests.integration.shapes import on_every_shape

pytestmark = on_every_shape


@pytest.fixture
def queue(run: Run) -> Iterator[str]:
    """One that requires sessions."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    assert one(run("queue", "create", name, "--requires-session", "--json"))["requires_session"] is True
    yield name
    run("queue", "delete", name, "--yes")


@pytest.fixture
def plain_queue(run: Run) -> Iterator[str]:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("queue", "create", name)
    yield name
    run("queue", "delete", name, "--yes")


@covers("M7")
class TestSessions:
    def test_messages_are_received_from_their_session(self, run: Run, queue: str) -> None:
        for session, body in (("blue", "1"), ("red", "2"), ("blue", "3")):
            run("send", queue, body, "--session-id", session)
        assert sorted(each["session_id"] for each in lines(run("session", "list", queue, "--json"))) == ["blue", "red"]
        assert [each["body"] for each in lines(run("peek", queue, "--session", "blue", "--json"))] == ["1", "3"]
        blue = received(run, queue, "--session", "blue")
        assert [(each["body"], each["session_id"]) for each in blue] == [("1", "blue"), ("3", "blue")]
        assert [each["body"] for each in received(run, queue, "--next-session")] == ["2"]
        assert "no session" in run("receive", queue, "--next-session", "--wait", "100ms").stdout
        assert run("session", "list", queue, "--json").stdout == ""
        assert "no sessions" in run("session", "list", queue).stdout

    def test_a_state_is_stored_shown_and_removed(self, run: Run, queue: str) -> None:
        assert "no state" in run("session", "show-state", queue, "blue").stdout
        assert one(run("session", "set-state", queue, "blue", "half-way", "--json")) == {
            "session_id": "blue",
            "bytes": 8,
        }
        assert run("session", "show-state", queue, "blue").stdout == "half-way\n"
        assert [each["session_id"] for each in lines(run("session", "list", queue, "--json"))] == ["blue"]
        assert [each["session_id"] for each in lines(run("session", "list", queue, "--since", "2020-01-01", "--json"))]
        run("session", "set-state", queue, "blue", stdin=b"\xff\x00")
        shown = one(run("session", "show-state", queue, "blue", "--json"))
        assert shown == {"session_id": "blue", "state": None, "state_base64": "/wA="}
        assert one(run("session", "clear-state", queue, "blue", "--json")) == {"session_id": "blue", "cleared": True}
        assert one(run("session", "show-state", queue, "blue", "--json"))["state"] is None

    def test_deferred_messages_of_a_session_need_the_session(self, run: Run, queue: str) -> None:
        run("send", queue, "later", "--session-id", "blue")
        (message,) = received(run, queue, "--session", "blue", "--defer")
        number = str(message["sequence_number"])
        again = lines(run("receive", queue, "--session", "blue", "--deferred", number, "--json"))
        assert [each["body"] for each in again] == ["later"]
        run("receive", queue, "--session", "blue", "--deferred", number, exit_code=3)

    def test_dead_letters_of_a_session_are_resubmitted_into_it(self, run: Run, queue: str) -> None:
        run("send", queue, "x", "--session-id", "blue")
        received(run, queue, "--session", "blue", "--dead-letter")
        assert [each["session_id"] for each in lines(run("deadletter", "list", queue, "--json"))] == ["blue"]
        assert one(run("deadletter", "resubmit", queue, "--json"))["resubmitted"] == 1
        assert [each["body"] for each in received(run, queue, "--session", "blue")] == ["x"]

    def test_mistakes_are_told(self, run: Run, queue: str, plain_queue: str) -> None:
        run("send", queue, "no session", exit_code=1)
        run("receive", queue, "--wait", "100ms", exit_code=1)
        run("receive", plain_queue, "--session", "blue", exit_code=1)
        run("session", "show-state", plain_queue, "blue", exit_code=1)
        run("session", "show-state", "nowhere", "blue", exit_code=3)

    def test_a_subscription_has_sessions_too(self, run: Run) -> None:
        topic = f"cli-{uuid.uuid4().hex[:12]}"
        run("topic", "create", topic)
        run("subscription", "create", topic, "jobs", "--requires-session")
        jobs = f"{topic}/subscriptions/jobs"
        run("send", topic, "1", "--session-id", "blue")
        assert [each["session_id"] for each in lines(run("session", "list", jobs, "--json"))] == ["blue"]
        run("session", "set-state", jobs, "blue", "half-way")
        assert run("session", "show-state", jobs, "blue").stdout == "half-way\n"
        assert [each["body"] for each in received(run, jobs, "--next-session")] == ["1"]
        run("topic", "delete", topic, "--yes")

    def test_purge_empties_all_sessions(self, run: Run, queue: str) -> None:
        for session in ("blue", "red"):
            run("send", queue, "x", "--count", "3", "--session-id", session)
        assert one(run("queue", "purge", queue, "--json"))["purged"] == 6
        assert lines(run("peek", queue, "--json")) == []

    def test_the_lock_is_renewed_while_it_waits(
        self, small_namespace: RunningNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        run = command_line(small_namespace)
        name = f"cli-{uuid.uuid4().hex[:12]}"
        run("queue", "create", name, "--requires-session", "--lock-duration", "1s")
        assert "no messages" in run("receive", name, "--session", "blue", "--wait", "1800ms").stdout
        run("queue", "delete", name, "--yes")


class TestDeferredMessages:
    @covers("M4")
    def test_they_are_received_by_number_and_settled(self, run: Run, plain_queue: str) -> None:
        run("send", plain_queue, "--lines", stdin="a\nb\nc\n")
        numbers = [str(each["sequence_number"]) for each in received(run, plain_queue, "--defer")]
        first = lines(run("receive", plain_queue, "--deferred", numbers[0], "--deferred", numbers[1], "--json"))
        assert [each["body"] for each in first] == ["a", "b"]
        run("receive", plain_queue, "--deferred", numbers[0], exit_code=3)
        run("receive", plain_queue, "--deferred", numbers[2], "--dead-letter", "--reason", "why")
        (dead,) = lines(run("deadletter", "list", plain_queue, "--json"))
        assert (dead["body"], dead["dead_letter_reason"]) == ("c", "why")


class TestScheduledMessages:
    @covers("M5")
    def test_they_are_cancelled_by_number(self, run: Run, plain_queue: str) -> None:
        sent = one(run("send", plain_queue, "x", "--schedule", "1h", "--count", "3", "--json"))
        first, *rest = [str(number) for number in sent["sequence_numbers"]]
        assert one(run("cancel", plain_queue, first, "--json")) == {"entity": plain_queue, "cancelled": 1}
        assert len(lines(run("peek", plain_queue, "--json"))) == 2
        run("cancel", plain_queue, first, exit_code=3)
        assert "cancelled 2 messages" in run("cancel", plain_queue, *rest).stdout
        assert "no messages" in run("peek", plain_queue).stdout


@covers("M7")
def test_following_goes_from_session_to_session(run: Run, running_namespace: RunningNamespace, queue: str) -> None:
    command = [sys.executable, "-m", "tandembus", "receive", queue, "--next-session", "--follow", "--json"]
    command += ["--connection-string", running_namespace.connection_string]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=listen_to_ctrl_c,
    ) as follower:
        assert follower.stdout is not None
        for session in ("blue", "red", "blue"):
            run("send", queue, "x", "--session-id", session)
            assert json.loads(follower.stdout.readline())["session_id"] == session
        follower.send_signal(signal.SIGINT)
        _, errors = follower.communicate(timeout=STOPS_WITHIN_S)
    assert (follower.returncode, errors) == (130, "")
