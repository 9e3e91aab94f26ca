"""A process whose output is read as it comes."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.integration.serving import die_with_the_tests

WITHIN_S = 90.0
STOPS_WITHIN_S = 30.0


class Process:
    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            preexec_fn=die_with_the_tests,
        )
        self._came: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._came.put(line)
        self._came.put(None)

    def write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def until(self, word: str, what: object, within_s: float = WITHIN_S) -> tuple[str, str]:
        """What was said before the line that holds the word, and that line."""
        said: list[str] = []
        end = time.monotonic() + within_s
        line: str | None = ""
        while line is not None and time.monotonic() < end:
            try:
                line = self._came.get(timeout=1.0)
            except queue.Empty:
                continue
            if line is not None and word in line:
                return "".join(said), line
            said.append(line or "")
        raise AssertionError(f"{what} did not come to '{word}':\n{''.join(said)}")

    def stop(self) -> None:
        """As Ctrl-C does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(STOPS_WITHIN_S)
