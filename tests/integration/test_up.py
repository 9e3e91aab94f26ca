"""`tandembus up`: two namespaces on one machine, as a person starts and stops them."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import pty
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tandembus.cli.up import SDK, SNIPPET
from tandembus.client.administration import Administration
from tests.covers import covers
from tests.integration.command_line import listen_to_ctrl_c
from tests.integration.processes import is_gone

WITHIN_S = 60.0
ANY_PORTS = [
    f"--{side}-{door}-port={port}"
    for side in ("primary", "secondary")
    for door, port in (("amqp", "0"), ("amqps", "off"), ("http", "0"))
]


class Up:
    """A running `tandembus up`, and what it has said."""

    def __init__(self, folder: Path, *options: str, is_key_shown: bool = True) -> None:
        command = [sys.executable, "-m", "tandembus", "up", *ANY_PORTS, *options]
        command += ["--show-key"] if is_key_shown else []
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            preexec_fn=listen_to_ctrl_c,
        )
        self.said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.told: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for source, target in ((self.process.stdout, self.said), (self.process.stderr, self.told)):
            threading.Thread(target=_follow, args=(source, target), daemon=True).start()

    def next_line(self) -> str | None:
        """Of its standard output; None at the end."""
        return self.said.get(timeout=WITHIN_S)

    def until_told(self, text: str) -> str:
        """The line of its standard error that holds this."""
        while True:
            line = self.told.get(timeout=WITHIN_S)
            assert line is not None, f"it never said '{text}'"
            if text in line:
                return line

    def found(self) -> Any:
        """Where they are, with `--json`."""
        return json.loads(self.next_line() or "")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WITHIN_S)


def _follow(source: Any, target: queue.SimpleQueue[str | None]) -> None:
    for line in source:
        target.put(line.rstrip("\n"))
    target.put(None)


def until_gone(*pids: int) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < give_up_at, f"still there: {pids}"


def check_stopped_in_order(found: dict[str, dict[str, str]]) -> None:
    """A meter that was not closed leaves its mark."""
    for side in found.values():
        assert Path(side["ca_path"]).is_file()
        assert not (Path(side["data"]) / "meter" / "running").exists()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Up]]:
    """What a test puts in is ended with it."""
    ups: list[Up] = []
    yield ups
    for one in ups:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(WITHIN_S)


def start(started: list[Up], folder: Path, *options: str) -> Up:
    started.append(Up(folder, *options))
    return started[-1]


def send(connection_string: str, entity: str) -> None:
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(entity) as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))


async def pasted(text: str) -> dict[str, Any]:
    """What there is after it was typed into `python -m asyncio`."""
    names: dict[str, Any] = {}
    await eval(compile(text, "pasted", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    return names


async def queues(side: dict[str, str]) -> list[str]:
    async with Administration(side["connection_string"]) as administration:
        return [each.name async for each in administration.queues()]


async def make_queue(side: dict[str, str], name: str) -> None:
    async with Administration(side["connection_string"]) as administration:
        await administration.create_queue(name)


@covers("B2")
async def test_both_are_there_each_with_its_own_data_and_one_interruption_stops_both(
    tmp_path: Path, started: list[Up]
) -> None:
    up = start(started, tmp_path, "--json")
    found = up.found()
    primary, secondary = found["primary"], found["secondary"]
    assert (primary["name"], secondary["name"]) == ("primary", "secondary")
    await make_queue(primary, "orders")
    send(primary["connection_string"], "orders")
    assert (await queues(primary), await queues(secondary)) == (["orders"], [])
    assert (Path(primary["data"]), Path(secondary["data"])) == (
        tmp_path / "tandembus-data",
        tmp_path / "tandembus-data-secondary",
    )
    assert up.interrupt() == 0
    until_gone(primary["pid"], secondary["pid"])
    check_stopped_in_order(found)


@covers("B2")
async def test_a_person_is_shown_what_to_try_next_and_a_paired_client_and_both_work_as_pasted(
    tmp_path: Path, started: list[Up]
) -> None:
    options = ("--brokers", "0", "--primary-name", "contoso", "--primary-data", "here", "--secondary-data", "elsewhere")
    up = start(started, tmp_path, *options)
    commands = [line.strip() for line in until(up, "With the SDK") if line.startswith("  ")]
    example = [up.next_line() or "" for _ in range(1 + len(SDK.splitlines()))]
    strings = []
    for label, line in zip(("primary", "secondary"), until(up, "The pair")[-3:], strict=False):
        ready, said_label, connection_string = line.split()
        assert (ready, said_label) == ("ready", label)
        strings.append(connection_string)
    lines = [up.next_line() or "" for _ in range(1 + len(SNIPPET.splitlines()))]
    assert str(tmp_path / "elsewhere" / "tls" / "ca.pem") in "\n".join(lines)
    script = "\n".join(["set -e", *commands, "python - <<'END'", *example, "END"])
    shell = await asyncio.to_thread(run_in_shell, script, tmp_path)
    assert shell.stdout.splitlines()[-1] == "hello", shell.stderr
    names = await pasted("\n".join(lines))
    async with names["paired"], names["primary"], names["secondary"], names["admin"]:
        pass
    assert "contoso/x-servicebus-transfer/9" in await queues({"connection_string": strings[1]})
    assert await asyncio.to_thread(up.interrupt) == 0


def until(up: Up, text: str) -> list[str]:
    """The lines of its standard output before the one that begins so."""
    lines: list[str] = []
    while not (line := up.next_line() or "").startswith(text):
        lines.append(line)
    return lines


def run_in_shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """With the commands of this environment, installed or not."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name, arguments in (("tandembus", "-m tandembus"), ("python", "")):
        (bin_folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (bin_folder / name).chmod(0o755)
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": path}
    return subprocess.run(
        ["bash"], input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@covers("B2")
async def test_one_that_dies_is_reported_and_the_other_goes_on(tmp_path: Path, started: list[Up]) -> None:
    up = start(started, tmp_path, "--brokers", "0", "--json")
    found = up.found()
    os.kill(found["primary"]["pid"], signal.SIGKILL)
    assert "the primary has ended by itself (ended by SIGKILL); the secondary goes on" in up.until_told("by itself")
    port = urlsplit(found["primary"]["connection_string"].split(";")[0].removeprefix("Endpoint=")).port
    again = up.until_told("to start it again")
    assert "tandembus serve --name primary --data tandembus-data" in again
    assert f"--amqp-port {port} " in again
    assert await queues(found["secondary"]) == []
    os.kill(found["secondary"]["pid"], signal.SIGKILL)
    assert "none is left" in up.until_told("by itself")
    assert up.process.wait(WITHIN_S) == 1


@covers("B2")
def test_when_one_cannot_start_the_other_is_stopped_and_the_reason_is_told(tmp_path: Path, started: list[Up]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = start(started, tmp_path, "--brokers", "1", f"--secondary-amqp-port={port}")
        assert "secondary | tandembus cannot start" in up.until_told("cannot start")
        assert f"secondary | port {port}: taken by" in up.until_told("taken by")
        assert "secondary | Try: --secondary-amqp-port 0 " in up.until_told("Try: ")
        told = up.until_told("the secondary could not be started")
        assert all(f"{option.partition('=')[0]} 0" in told for option in ANY_PORTS)
        assert up.process.wait(WITHIN_S) == 1
    assert up.next_line() is None
    assert list(tmp_path.rglob("meter/**/running")) == [], "neither has served: the next start misses nothing"


@covers("B2")
def test_neither_outlives_a_kill_of_the_command(tmp_path: Path, started: list[Up]) -> None:
    up = start(started, tmp_path, "--brokers", "0", "--json")
    found = up.found()
    for side in found.values():
        assert asyncio.run(queues(side)) == []
        assert (Path(side["data"]) / "meter" / "running").exists()
    up.process.kill()
    up.process.wait(WITHIN_S)
    until_gone(found["primary"]["pid"], found["secondary"]["pid"])
    check_stopped_in_order(found)


@covers("B2")
def test_an_early_interruption_leaves_nothing_behind(tmp_path: Path, started: list[Up]) -> None:
    up = start(started, tmp_path, "--brokers", "0")
    give_up_at = time.monotonic() + WITHIN_S
    children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children")
    while len(pids := children.read_text().split()) < 2:
        assert time.monotonic() < give_up_at
    assert up.interrupt() == 130
    until_gone(*[int(pid) for pid in pids])


@covers("B2", "F17")
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_keys_and_links_stay_out_of_a_pipe_unless_they_are_asked_for(
    tmp_path: Path, started: list[Up], options: list[str]
) -> None:
    up = Up(tmp_path, "--brokers", "0", *options, is_key_shown=False)
    started.append(up)
    if options:
        found = up.found()
        assert [side["connection_string"] for side in found.values()] == [None, None]
        assert [side["dashboard"] for side in found.values()] == [None, None]
    else:
        lines = until(up, "Ctrl-C stops both")
        ready = [line.split()[:2] for line in lines if line.startswith("ready")]
        assert ready == [["ready", "primary"], ["ready", "secondary"]]
        assert "  tandembus receive orders" in lines
        check_is_secret("\n".join(lines), tmp_path / "tandembus-data")
        assert "tandembus connection-string --data tandembus-data" in "\n".join(lines)
    assert up.interrupt() == 0
    told = []
    while (line := up.told.get(timeout=WITHIN_S)) is not None:
        told.append(line)
    check_is_secret("\n".join(told), tmp_path / "tandembus-data")


def check_is_secret(said: str, data: Path) -> None:
    assert (data / "key").read_text().strip() not in said
    assert "SharedAccessKey=" not in said
    assert "sign-in=" not in said


@covers("F17", "B4")
@pytest.mark.parametrize("is_terminal", [True, False])
def test_one_namespace_prints_its_key_and_its_link_to_a_terminal_only(tmp_path: Path, is_terminal: bool) -> None:
    reading, writing = pty.openpty() if is_terminal else os.pipe()
    ports = ["--amqp-port", "0", "--amqps-port", "off", "--http-port", "0"]
    command = [sys.executable, "-m", "tandembus", "serve", "--data", str(tmp_path), *ports]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.DEVNULL, env=environment)
    os.close(writing)
    try:
        said = b""
        while said.count(b"\n") < 2:
            more = os.read(reading, 65_536)
            assert more, "it has ended"
            said += more
        text = said.decode()
        assert text.startswith("ready ")
        if is_terminal:
            assert (tmp_path / "key").read_text().strip() in text
            assert "dashboard http://" in text
            assert "sign-in=" in text
        else:
            check_is_secret(text, tmp_path)
    finally:
        process.terminate()
        process.wait(WITHIN_S)
        os.close(reading)


@covers("B2", "B4")
async def test_each_has_a_link_that_signs_in_once_and_shows_the_other(tmp_path: Path, started: list[Up]) -> None:
    up = start(started, tmp_path, "--brokers", "0", "--json")
    for label, side in up.found().items():
        base, code = side["dashboard"].split("/#sign-in=")
        headers = {"X-Tandembus": "1"}
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
            async with session.post(f"{base}/$api/session", json={"code": code}, headers=headers) as answer:
                assert answer.status == 200
                headers["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]
            async with session.post(f"{base}/$api/session", json={"code": code}, headers=headers) as answer:
                assert answer.status == 401
            overview = await until_partner_answers(session, base, headers)
        assert overview["namespace"]["name"] == label
        assert overview["partner"]["name"] == ("secondary" if label == "primary" else "primary")
        assert overview["partner"]["state"] == "available"
    assert up.interrupt() == 0


async def until_partner_answers(session: aiohttp.ClientSession, base: str, headers: dict[str, str]) -> Any:
    give_up_at = time.monotonic() + WITHIN_S
    while True:
        async with session.get(f"{base}/$api/overview", headers=headers) as answer:
            overview = await answer.json()
        if overview["partner"]["state"] == "available":
            return overview
        assert time.monotonic() < give_up_at, overview
        await asyncio.sleep(0.1)
