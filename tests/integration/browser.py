"""A real Chromium without a window, spoken to over its debugging port."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websocket import WebSocket, create_connection

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ANSWERS_WITHIN_S = 60.0
LISTENING = "DevTools listening on "


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class Page:
    """One tab, and everything that it told."""

    def __init__(self, address: str) -> None:
        self._socket: WebSocket = create_connection(address, timeout=ANSWERS_WITHIN_S, suppress_origin=True)
        self._number = 0
        self.told: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (message := self._next()).get("id") != self._number:
            pass
        assert "error" not in message, message
        return message["result"]

    def open(self, file: Path) -> None:
        """Returns when the page is loaded."""
        self.call("Page.navigate", url=file.as_uri())
        while not self.of("Page.loadEventFired"):
            self._next()

    def value(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message["params"] for message in self.told if message.get("method") == kind]

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv())
        if "method" in message:
            self.told.append(message)
        return message

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def browsing(program: str, profile: Path) -> Iterator[Page]:
    """Nothing of it is left behind."""
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    command = [program, *quiet, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        page = Page(_first_tab(process))
        try:
            yield page
        finally:
            page.close()
    finally:
        process.kill()
        process.communicate()


def _first_tab(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(LISTENING):
            host = line.removeprefix(LISTENING).split("/")[2]
            with urllib.request.urlopen(f"http://{host}/json", timeout=ANSWERS_WITHIN_S) as answer:
                tabs = json.load(answer)
            return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
    raise AssertionError("the browser did not start: " + "".join(said))
