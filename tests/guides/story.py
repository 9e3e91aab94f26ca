"""A document, done by somebody who pastes its blocks one after the other, in one folder, one shell and one Python."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from tandembus.cli import main
from tests.guides.blocks import ROOT, Block, Order
from tests.guides.process import Process
from tests.guides.stages import Stage
from tests.ports import free_ports

DONE = "the block is done, with"
PORTS = (5672, 5671, 5300, 5682, 5681, 5310)
"""The defaults, which documents name. Tests run side by side, so each story has others."""
JS = ROOT / "tests" / "integration" / "js"
FILES = {"go": "main.go", "java": "Main.java", "xml": "pom.xml"}
"""What a block of this language is saved as, for the commands that compile and run it."""
_PLACES = re.compile(r"(?<![\w./])/(?=backups\b|archive\b|var/lib/|etc/(prometheus|tandembus)|tmp/)")
"""Folders of a machine, which documents name: each story has its own."""
_DRIVER = f"""
import ast, asyncio, inspect, json, os, sys
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    path, variables = json.loads(line)
    os.environ.update(variables)
    code = compile(open(path).read(), path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        loop.run_until_complete(result)
    print({DONE!r}, 0, flush=True)
"""


class Story:
    def __init__(self, folder: Path, stage: Stage) -> None:
        self._folder = folder
        self._within_s = stage.within_s
        self._ports = dict(zip(PORTS, stage.ports or free_ports(len(PORTS)), strict=True))
        self._kept: list[Process] = []
        self._number = 0
        self._environment = {**os.environ, **self._settings(), **stage.environment}
        write_commands(folder / "bin", self._ports)
        self._shell = Process(["bash"], folder, self._environment)
        self._python: Process | None = None

    def _settings(self) -> dict[str, str]:
        return {
            "PATH": f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "HOME": str(self._folder),
            "TERM": "dumb",
            "COLUMNS": "200",
            "TANDEMBUS_AMQP_PORT": str(self._ports[5672]),
            "TANDEMBUS_AMQPS_PORT": str(self._ports[5671]),
            "TANDEMBUS_HTTP_PORT": str(self._ports[5300]),
        }

    def run(self, block: Block) -> None:
        if block.order in (Order.KEEP_RUNNING, Order.START_AGAIN):
            self._keep_running(block)
        elif block.language == "python":
            self._run_python(block)
        elif block.language == "js":
            self._run_node(block)
        elif block.language in FILES:
            (self._folder / FILES[block.language]).write_text(self._here(block.text))
        elif block.language == "console":
            self._run_transcript(block)
        else:
            self._run_shell(block.text, block)

    def prepare(self, text: str) -> None:
        if text:
            self._run_shell(text, "what the document supposes")

    def _keep_running(self, block: Block) -> None:
        if block.order is Order.START_AGAIN:
            self._kept.pop().stop()
        # The last command takes the shell's place, so that Ctrl-C reaches it.
        *before, last = self._here(block.text).strip().splitlines()
        process = Process(["bash", "-e", "-c", "\n".join([*before, f"exec {last}"])], self._folder, self._variables())
        self._kept.append(process)
        process.until(block.word, block)

    def _run_shell(self, text: str, what: Block | str) -> str:
        order = what.order if isinstance(what, Block) else Order.RUN
        file = self._file(text, "sh")
        # In the shell itself, since a block may set variables; an error ends it, unless it is what the block shows.
        command = f"set -e\n. {file}" if order is Order.RUN else f"bash -e {file}"
        self._shell.write(f"{command}\necho {shlex.quote(DONE)} $?\nset +e\n")
        said, end = self._shell.until(DONE, what, self._within_s)
        assert order is Order.END_ANYHOW or end.endswith(" 0\n") is (order is Order.RUN), f"{what} ended so: {said}"
        return said

    def _run_transcript(self, block: Block) -> None:
        """Each command answers what stands below it: perhaps among more, and in any order."""
        runner = CliRunner(env=self._environment)
        for command, answer in transcript(block.text):
            # In this process: starting one for each command would take longer than all the rest.
            program, *arguments = shlex.split(self._here(command))
            assert program == "tandembus", f"{block}: not a command of ours"
            result = runner.invoke(main, arguments)
            is_failure = any(line.startswith("Error:") for line in answer)
            found, expected = (Counter(map(alike, lines)) for lines in (result.output.splitlines(), answer))
            assert (result.exit_code != 0) is is_failure, f"{block}: {command} said\n{result.output}"
            assert not expected - found, f"{block}: {command} said\n{result.output}"

    def _run_python(self, block: Block) -> None:
        self._python = self._python or Process([sys.executable, "-u", "-c", _DRIVER], self._folder, self._environment)
        file = self._file(block.text, "py")
        self._python.write(json.dumps([str(file), self._variables()]) + "\n")
        self._python.until(DONE, block)

    def _run_node(self, block: Block) -> None:
        """Beside the packages that the tests have."""
        file = JS / f".document-{os.getpid()}.mjs"
        file.write_text(self._here(block.text) + f"\nconsole.log({DONE!r});\n")
        try:
            node = Process(["node", str(file)], self._folder, self._variables())
            node.until(DONE, block)
            node.stop()
        finally:
            file.unlink()

    def _variables(self) -> dict[str, str]:
        """What the shell has by now."""
        said = self._run_shell("env -0 | tr '\\n\\0' ' \\n'", "its variables")
        return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)

    def _file(self, text: str, kind: str) -> Path:
        self._number += 1
        file = self._folder / "bin" / f"block-{self._number}.{kind}"
        file.write_text(self._here(text))
        return file

    def _here(self, text: str) -> str:
        """With the ports and folders of this story."""
        for default, port in self._ports.items():
            text = re.sub(rf"\b{default}\b", str(port), text)
        return _PLACES.sub(f"{self._folder}/", text)

    def close(self) -> None:
        for process in reversed(self._kept):
            process.stop()
        self._shell.kill()
        if self._python is not None:
            self._python.kill()


@contextlib.contextmanager
def telling(folder: Path, stage: Stage) -> Iterator[Story]:
    for place in ("backups", "archive", "var/lib", "etc/prometheus", "etc/tandembus", "tmp", "bin"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    story = Story(folder, stage)
    try:
        story.prepare(stage.commands)
        yield story
    finally:
        story.close()


def transcript(text: str) -> list[tuple[str, list[str]]]:
    """Commands, each with what it is said to answer."""
    steps: list[tuple[str, list[str]]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif line:
            steps[-1][1].append(line)
    return steps


def alike(line: str) -> str:
    """Without what is another one each time: times, ids, sizes, and spaces of a table."""
    return re.sub(r"\S*\d\S*", "#", " ".join(line.split()))


def write_commands(folder: Path, ports: dict[int, int]) -> None:
    """`tandembus`, `python` and so on as an installation has them. `up` takes the ports of the story, and a
    process for each namespace instead of six. What would install does nothing: the tests run on what is installed."""
    python = shlex.quote(sys.executable)
    up = "up --brokers 0 " + " ".join(
        f"--{side}-{kind}-port {ports[default]}"
        for side, defaults in (("primary", PORTS[:3]), ("secondary", PORTS[3:]))
        for kind, default in zip(("amqp", "amqps", "http"), defaults, strict=True)
    )
    scripts = {
        "tandembus": f'if [ "$1" = up ]; then shift; set -- {up} "$@"; fi\nexec {python} -m tandembus "$@"',
        "make": 'exec tandembus "$@"',
        "python": f'exec {python} "$@"',
        "pytest": f'exec {python} -m pytest "$@"',
        "pip": "exit 0",
        "pipx": "exit 0",
        "git": "exit 0",
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
