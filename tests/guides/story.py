"""A guide, done by somebody who pastes its blocks one after the other, in one folder, one shell and one Python."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.guides.blocks import ROOT, Block, Order
from tests.integration.serving import die_with_the_tests

WITHIN_S = 120.0
DONE = "the block is done"
PORTS = (5672, 5671, 5300, 5682, 5681, 5310)
"""The defaults, which guides name. Tests run side by side, so each story has others."""
_DRIVER = """
import ast, asyncio, inspect, sys
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
names = {"__name__": "__main__"}
for path in sys.stdin:
    text = open(path.strip()).read()
    code = compile(text, path.strip(), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        loop.run_until_complete(result)
    print(%r, flush=True)
""" % (DONE,)


class Told:
    """The output of a process as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._came: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._came.put(line)
        self._came.put(None)

    def until(self, word: str, block: Block) -> str:
        """What was said up to the line that holds the word."""
        said: list[str] = []
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                line = self._came.get(timeout=1.0)
                if line is None:
                    break
                self.lines.append(line)
                if word in line:
                    return "".join(said)
                said.append(line)
        raise AssertionError(f"{block} did not come to '{word}':\n{''.join(said)}")


class Story:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._processes: list[subprocess.Popen[str]] = []
        self._shell: Told | None = None
        self._python: Told | None = None
        self._number = 0
        self._environment = {
            **os.environ,
            "PATH": f"{_commands(folder)}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "HOME": str(folder),
            "TERM": "dumb",
        }

    def run(self, block: Block) -> str:
        """Returns what it printed."""
        if block.order is Order.BACKGROUND:
            return self._start(["bash", "-e", "-c", self.here(block.text)]).until(block.word, block)
        if block.language == "python":
            return self._run_python(block)
        if block.language == "js":
            return self._run_node(block)
        return self._run_shell(block)

    def here(self, text: str) -> str:
        """With the ports of this story, and without what installs: the tests run on what is installed."""
        for default, port in self._ports.items():
            text = text.replace(str(default), str(port))
        ports = self._ports
        up = (
            f"tandembus up --primary-amqp-port {ports[5672]} --primary-amqps-port {ports[5671]} --primary-http-port {ports[5300]}"
            f" --secondary-amqp-port {ports[5682]} --secondary-amqps-port {ports[5681]} --secondary-http-port {ports[5310]}"
        )
        serve = f"tandembus serve --amqp-port {ports[5672]} --amqps-port {ports[5671]} --http-port {ports[5300]}"
        text = text.replace("make up", "tandembus up").replace("tandembus up", up).replace("tandembus serve", serve)
        return "".join(
            line for line in text.splitlines(keepends=True) if not line.startswith(("pip install", "git clone"))
        )

    def _run_shell(self, block: Block) -> str:
        self._shell = self._shell or self._start(["bash"])
        text = self.here(block.text)
        stdin = self._shell.process.stdin
        assert stdin is not None
        guard = "" if block.order is Order.FAILS else "set -e\n"
        stdin.write(f"{guard}{text}\nset +e\necho {shlex.quote(DONE)}\n")
        stdin.flush()
        return self._shell.until(DONE, block)

    def _run_python(self, block: Block) -> str:
        self._python = self._python or self._start([sys.executable, "-u", "-c", _DRIVER])
        self._number += 1
        file = self.folder / f"block-{self._number}.py"
        file.write_text(self.here(block.text))
        stdin = self._python.process.stdin
        assert stdin is not None
        stdin.write(f"{file}\n")
        stdin.flush()
        return self._python.until(DONE, block)

    def _run_node(self, block: Block) -> str:
        self._number += 1
        file = ROOT / "tests" / "integration" / "js" / f".guide-{os.getpid()}-{self._number}.mjs"
        file.write_text(self.here(block.text) + f"\nconsole.log({DONE!r});\n")
        try:
            return self._start(["node", str(file)]).until(DONE, block)
        finally:
            file.unlink()

    def _start(self, command: list[str]) -> Told:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=self._environment,
            preexec_fn=die_with_the_tests,
        )
        self._processes.append(process)
        return Told(process)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30.0)


@contextlib.contextmanager
def telling(folder: Path) -> Iterator[Story]:
    story = Story(folder)
    try:
        yield story
    finally:
        story.close()


def free_ports(count: int) -> list[int]:
    """Free now; the system gives them to nobody else soon."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _commands(folder: Path) -> Path:
    """`tandembus` and `python` as an installation has them."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    python = shlex.quote(sys.executable)
    for name, words in (("tandembus", f"{python} -m tandembus"), ("python", python), ("pytest", f"{python} -m pytest")):
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (bin_folder / name).chmod(0o755)
    return bin_folder
