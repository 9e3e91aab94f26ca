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
from tests.integration.command_line import STOPS_WITHIN_S, Run, command_line, listen_to_ctrl_c, one
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


@covers("M7")
class TestSessions:
    def test_a_state_can_be_any_bytes(self, run: Run, queue: str) -> None:
        run("session", "set-state", queue, "blue", stdin=b"\xff\x00")
        shown = one(run("session", "show-state", queue, "blue", "--json"))
        assert shown == {"session_id": "blue", "state": None, "state_base64": "/wA="}

    def test_the_lock_is_renewed_while_it_waits(
        self, small_namespace: RunningNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        run = command_line(small_namespace)
        name = f"cli-{uuid.uuid4().hex[:12]}"
        run("queue", "create", name, "--requires-session", "--lock-duration", "1s")
        assert "no messages" in run("receive", name, "--session", "blue", "--wait", "1800ms").stdout
        run("queue", "delete", name, "--yes")


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
