"""What messages take on disk, and how long backup, check, restore and the start after it take.

    .venv/bin/python -m benchmarks.backup                       # a million messages of 1 KiB: about 5 GB of disk
    .venv/bin/python -m benchmarks.backup --messages 100000 --brokers 2

The namespace and the commands are processes of their own, as people run them. The backup is made while the namespace is
running, and restored beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.tandembus_node import COMMAND, Tandembus
from tandembus import build
from tandembus.client import OutgoingMessage, connect

BODY_BYTES = 1024
BATCH = 200
QUEUE = "orders"
MEBIBYTE = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--brokers", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where it is written; default: the system's temporary folder")
    arguments = parser.parse_args()
    print(f"`{Path(sys.executable).name} -m benchmarks.backup {' '.join(sys.argv[1:])}`, {build.describe()}\n")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        _measure(Path(folder), arguments.messages, arguments.brokers)


def _measure(folder: Path, messages: int, brokers: int) -> None:
    options = ("--brokers", str(brokers)) if brokers else ()
    old, new = Tandembus(folder / "old", options=options), Tandembus(folder / "new", options=options)
    data, backup, restored = folder / "old" / "data", folder / "backup", folder / "new" / "data"
    print("| | | |")
    print("|---|---|---|")
    old.start()
    try:
        more = ("--enable-partitioning",) if brokers else ()
        old.create("queue", QUEUE, "--max-size-mb", "102400" if not brokers else "5120", *more)
        took_s = _timed(lambda: asyncio.run(_send(old.connection_string, messages)))
        _tell("sent", took_s, f"{messages:,} messages of {BODY_BYTES} bytes")
        size = sum(path.stat().st_size for path in data.glob("stores/*/data.mdb"))
        print(f"| on disk | {size / messages:,.0f} bytes a message | {size / MEBIBYTE:,.0f} MiB |")
        size = int(_tell_command("backup, running", "backup", backup, "--data", data)["size_bytes"])
        print(f"| size of the backup | {size / messages:,.0f} bytes a message | {size / MEBIBYTE:,.0f} MiB |")
        _tell_check("check, running", data)
    finally:
        old.stop()
    _tell_check("check of the backup", backup)
    _tell_command("restore", "restore", backup, "--data", restored)
    try:
        _tell("start after restore", new.start(), "until it is ready")
        _tell("first message after that", _timed(lambda: asyncio.run(_receive(new.connection_string))), "")
    finally:
        new.stop()


async def _send(connection_string: str, messages: int) -> None:
    async with await connect(connection_string) as bus:
        sender = await bus.sender(QUEUE)
        await sender.send_batches(_messages(messages), BATCH)


def _messages(count: int) -> Iterator[OutgoingMessage]:
    for number in range(count):
        yield OutgoingMessage(bytes(BODY_BYTES), message_id=str(number))


async def _receive(connection_string: str) -> None:
    async with await connect(connection_string) as bus:
        receiver = await bus.receiver(QUEUE)
        assert await receiver.receive(1, 30.0)


def _tell_command(name: str, *arguments: object) -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run([*COMMAND, *map(str, arguments), "--json"], capture_output=True, text=True, check=True)
    took_s = time.perf_counter() - began
    answer: dict[str, Any] = json.loads(done.stdout)
    if "size_bytes" in answer:
        size = int(answer["size_bytes"])
        _tell(name, took_s, f"{size / MEBIBYTE / took_s:,.0f} MiB/s")
    return answer


def _tell_check(name: str, folder: Path) -> None:
    began = time.perf_counter()
    answer = _tell_command(name, "check", folder)
    took_s = time.perf_counter() - began
    assert answer["is_sound"]
    records = sum(part["record_count"] for part in answer["parts"])
    size = sum(part["size_bytes"] for part in answer["parts"] if part["name"].startswith("stores/"))
    _tell(name, took_s, f"{records / took_s:,.0f} records/s, {size / MEBIBYTE / took_s:,.0f} MiB/s")


def _timed(act: Any) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _tell(what: str, seconds: float, more: str) -> None:
    print(f"| {what} | {seconds:.1f} s | {more} |", flush=True)


if __name__ == "__main__":
    main()
