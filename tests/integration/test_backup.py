"""Backups of a namespace that is being sent to: restored, every message is there that was acknowledged before."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusReceiver

from tests.covers import covers
from tests.integration.bus import Bus
from tests.integration.serving import RunningNamespace, serving
from tests.volumes import mounted

ENDS_WITHIN_S = 60.0
QUIET_S = 2
PACE_S = 0.02
"""Between batches: what is sent has to be received, too."""
TAKE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
BATCH = 20
NUMBER_MASK = (1 << 48) - 1
SHAPES = {"one process": (), "two brokers": ("--brokers", "2")}


def command(*arguments: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tandembus", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: object, exit_code: int = 0) -> dict[str, Any]:
    """Runs a command with --json, and returns its answer, or its error."""
    process = command(*arguments, "--json")
    answer, errors = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == exit_code, answer + errors
    found: dict[str, Any] = json.loads(answer or errors)
    return found


class Load:
    """Sends to every entity, batch after batch, and knows what was acknowledged when."""

    def __init__(self, namespace: RunningNamespace) -> None:
        self._namespace = namespace
        self._stop = threading.Event()
        self.acknowledged: dict[str, list[str]] = {"queue": [], "source": [], "topic": [], "sessions": []}
        self._thread = threading.Thread(target=self._send)
        self.failure: BaseException | None = None

    def _send(self) -> None:
        try:
            with ServiceBusClient.from_connection_string(self._namespace.connection_string) as client:
                senders = {name: client.get_queue_sender(name) for name in ("queue", "source", "sessions")}
                senders["topic"] = client.get_topic_sender("topic")
                number = 0
                while not self._stop.wait(PACE_S):
                    number += 1
                    for name, sender in senders.items():
                        ids = [f"{number}.{each}" for each in range(BATCH)]
                        session = f"session-{number % 3}" if name == "sessions" else None
                        sender.send_messages(
                            [ServiceBusMessage(one * 50, message_id=one, session_id=session) for one in ids]
                        )
                        self.acknowledged[name] += ids
        except BaseException as error:
            self.failure = error
            raise

    def so_far(self) -> dict[str, set[str]]:
        return {name: set(ids) for name, ids in self.acknowledged.items()}

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + ENDS_WITHIN_S
        while len(self.acknowledged["topic"]) < count:
            assert self.failure is None
            assert time.monotonic() < deadline

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def make_entities(namespace: RunningNamespace, *, partitioned: bool) -> None:
    bus = Bus(namespace)
    bus.admin.create_queue("queue", enable_partitioning=partitioned)
    bus.admin.create_queue("sessions", requires_session=True)
    bus.admin.create_queue("target", enable_partitioning=partitioned)
    bus.admin.create_queue("source", forward_to="target")
    bus.admin.create_topic("topic", enable_partitioning=partitioned)
    for name in ("first", "second"):
        bus.admin.create_subscription("topic", name)
    bus.close()


def drained(receiver: ServiceBusReceiver) -> dict[str, int]:
    """Message ids and sequence numbers of all there is; each once, and with the body that was sent."""
    found: dict[str, int] = {}
    with receiver:
        while messages := receiver.receive_messages(500, max_wait_time=QUIET_S):
            for message in messages:
                assert message.message_id is not None
                assert message.message_id not in found, "it came twice"
                assert str(message) == message.message_id * 50
                assert message.sequence_number is not None
                found[message.message_id] = message.sequence_number
    return found


@covers("F6", "M1")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_restored_namespace_has_all_that_was_acknowledged_before_its_backup(tmp_path: Path, shape: str) -> None:
    data, options = tmp_path / "data", SHAPES[shape]
    with serving(data, *options) as namespace:
        make_entities(namespace, partitioned=bool(options))
        with Load(namespace) as load:
            load.wait_for(10 * BATCH)
            before = load.so_far()
            answer = run("backup", tmp_path / "backup", "--data", data)
            assert run("check", data)["is_sound"], "while it is being written to"
            load.wait_for(len(load.acknowledged["topic"]) + BATCH)
        highest = len(load.acknowledged["queue"])
    assert answer["stores"] == (2 if options else 1)
    assert run("check", tmp_path / "backup")["is_sound"]
    restored = tmp_path / "restored"
    assert run("restore", tmp_path / "backup", "--data", restored)["notes"] == []
    assert run("check", restored)["is_sound"]
    assert_private_files_are_the_same(data, restored)
    with serving(restored, *options) as namespace:
        assert_all_there(namespace, before, highest)


def assert_private_files_are_the_same(data: Path, restored: Path) -> None:
    for name in ("key", "tls/ca.key", "tls/server.key", "tls/ca.pem"):
        assert (restored / name).read_bytes() == (data / name).read_bytes()
        assert stat.S_IMODE((restored / name).stat().st_mode) == stat.S_IMODE((data / name).stat().st_mode)
    assert stat.S_IMODE((restored / "key").stat().st_mode) == 0o600
    assert {stat.S_IMODE(one.stat().st_mode) for one in (restored, *restored.rglob("*")) if one.is_dir()} == {0o700}


def assert_all_there(namespace: RunningNamespace, before: dict[str, set[str]], given_count: int) -> None:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        assert before["queue"] <= set(drained(client.get_queue_receiver("queue", receive_mode=TAKE)))
        assert before["source"] <= set(drained(client.get_queue_receiver("target", receive_mode=TAKE)))
        for name in ("first", "second"):
            assert before["topic"] <= set(drained(client.get_subscription_receiver("topic", name, receive_mode=TAKE)))
        found: set[str] = set()
        for number in range(3):
            found |= set(
                drained(client.get_queue_receiver("sessions", session_id=f"session-{number}", receive_mode=TAKE))
            )
        assert before["sessions"] <= found
        # And it goes on, with numbers that the old one has never given out.
        for sender in (client.get_queue_sender("queue"), client.get_topic_sender("topic")):
            with sender:
                sender.send_messages(ServiceBusMessage("new" * 50, message_id="new"))
        with client.get_queue_sender("sessions") as sender:
            sender.send_messages(ServiceBusMessage("new" * 50, message_id="new", session_id="session-1"))
        receivers = (
            client.get_queue_receiver("queue", receive_mode=TAKE),
            client.get_subscription_receiver("topic", "first", receive_mode=TAKE),
            client.get_queue_receiver("sessions", session_id="session-1", receive_mode=TAKE),
        )
        for receiver in receivers:
            (number,) = drained(receiver).values()
            assert number & NUMBER_MASK > given_count


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    """A namespace whose backup takes a while."""
    with serving(tmp_path_factory.mktemp("large") / "data") as namespace:
        bus = Bus(namespace)
        bus.admin.create_queue("queue")
        bus.close()
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string) as client,
            client.get_queue_sender("queue") as sender,
        ):
            for _ in range(400):
                sender.send_messages(ServiceBusMessage(os.urandom(200_000)))
        yield namespace


@covers("F6", "F1")
def test_a_backup_that_is_killed_leaves_nothing_that_is_taken_for_one(large: RunningNamespace, tmp_path: Path) -> None:
    killed = 0
    for round_number in range(4):
        place = tmp_path / f"round-{round_number}"
        process = command("backup", place, "--data", large.data)
        partial = until(functools.partial(partial_of, place), process)
        if partial is not None:
            until(functools.partial(has_size, partial, round_number * 20_000_000), process)
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=ENDS_WITHIN_S)
        if process.returncode == -signal.SIGKILL and not place.exists():
            killed += 1
            for left in tmp_path.glob(f"{place.name}*"):
                error = run("restore", left, "--data", tmp_path / "data", exit_code=1)["error"]
                assert "never finished" in error["message"]
    assert killed > 0
    assert not (tmp_path / "data").exists()
    run("backup", tmp_path / "whole", "--data", large.data)


def until(condition: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """What the condition gives, once it is something; None where the process ended before."""
    while (found := condition()) is None and process.poll() is None:
        pass
    return found


def partial_of(place: Path) -> Path | None:
    return next(iter(place.parent.glob(f"{place.name}.partial-*")), None)


def has_size(folder: Path, size_bytes: int) -> bool | None:
    with contextlib.suppress(FileNotFoundError):  # it has got its name
        return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) >= size_bytes or None
    return True


@covers("F6")
def test_a_backup_holds_up_no_sender(large: RunningNamespace, tmp_path: Path) -> None:
    with (
        ServiceBusClient.from_connection_string(large.connection_string) as client,
        client.get_queue_sender("queue") as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        process = command("backup", tmp_path / "backup", "--data", large.data)
        sent = 0
        while process.poll() is None:
            sender.send_messages(ServiceBusMessage("meanwhile"))
            sent += 1
        process.communicate()
    assert process.returncode == 0
    assert sent > 10


@covers("F6")
def test_nothing_is_overwritten(large: RunningNamespace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run("backup", tmp_path / "empty", "--data", large.data, exit_code=6)["error"]["kind"] == "DestinationExists"
    assert run("backup", large.data / "in-itself", "--data", large.data, exit_code=1)["error"]["kind"] == "BackupError"
    run("backup", tmp_path / "backup", "--data", large.data)
    (tmp_path / "empty" / "file").write_text("mine")
    error = run("restore", tmp_path / "backup", "--data", tmp_path / "empty", exit_code=6)["error"]
    assert error["kind"] == "NotEmpty"
    assert (tmp_path / "empty" / "file").read_text() == "mine"
    assert run("backup", tmp_path / "b", "--data", tmp_path / "nowhere", exit_code=3)["error"]["kind"] == (
        "NamespaceNotFound"
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup", "empty"]


@covers("F6")
def test_a_mounted_volume_is_filled_in_itself_and_served_only_when_it_is_whole(
    large: RunningNamespace, tmp_path: Path
) -> None:
    with contextlib.closing(Bus(large)) as bus:
        there = bus.counts("queue").active
    run("backup", tmp_path / "backup", "--data", large.data)
    with mounted(tmp_path / "volume", 1024) as volume:
        run("restore", tmp_path / "backup", "--data", volume)
        run("check", volume)
        stores = volume / "stores"
        partial = volume / "volume.partial-0123abcd"
        partial.mkdir()
        stores.rename(partial / "stores")  # as if it had been killed before this last move
        for shape in SHAPES.values():
            refused = command(
                "serve", "--data", volume, "--amqp-port", 0, "--http-port", 0, "--amqps-port", "off", *shape
            )
            _, errors = refused.communicate(timeout=ENDS_WITHIN_S)
            assert refused.returncode != 0
            assert "restore the backup again" in errors
        (partial / "stores").rename(stores)
        with serving(volume) as running, contextlib.closing(Bus(running)) as bus:
            assert bus.counts("queue").active == there >= 400


@covers("F6")
def test_damage_in_a_backup_is_found_by_check_and_refused_by_restore(large: RunningNamespace, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    run("backup", backup, "--data", large.data)
    store = backup / "stores" / "0" / "data.mdb"
    with store.open("r+b") as file:
        at = store.stat().st_size // 2
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
    found = run("check", backup, exit_code=1)
    parts = {part["name"]: part for part in found["parts"]}
    assert parts["files"]["findings"] == ["stores/0/data.mdb is damaged: its checksum is wrong"]
    (finding,) = parts["stores/0"]["findings"]
    assert "the checksum is wrong" in finding
    assert parts["catalog"]["damage_count"] == 0
    error = run("restore", backup, "--data", tmp_path / "data", exit_code=1)["error"]
    assert error["message"] == "stores/0/data.mdb is damaged: its checksum is wrong"
    assert not (tmp_path / "data").exists()


@covers("F6")
def test_pages_that_a_killed_backup_has_held_are_used_again(large: RunningNamespace, tmp_path: Path) -> None:
    """A reader that was killed would have the file grow with every message, for ever."""
    process = command("backup", tmp_path / "backup", "--data", large.data)
    assert until(functools.partial(partial_of, tmp_path / "backup"), process) is not None
    process.kill()
    process.communicate()
    with (
        ServiceBusClient.from_connection_string(large.connection_string) as client,
        client.get_queue_sender("queue") as sender,
        client.get_queue_receiver("queue", receive_mode=TAKE) as receiver,
    ):
        path = large.data / "stores" / "0" / "data.mdb"
        receiver.receive_messages(50, max_wait_time=QUIET_S)
        before = path.stat().st_size
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:  # the broker looks for dead readers every second
            sender.send_messages(ServiceBusMessage("tick"))
        for _ in range(100):
            sender.send_messages(ServiceBusMessage(os.urandom(200_000)))
            receiver.receive_messages(1, max_wait_time=QUIET_S)
    assert path.stat().st_size - before < 10_000_000
