"""The program `tandembus syphon` with a hundred thousand messages for a dead destination in front of a few for others.

How long it takes is measured in benchmarks/syphon_rows.py; here stands in which order things happen, and that memory
does not grow with what waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from tandembus.cli.command_process import CommandProcess
from tandembus.client import OutgoingMessage, ReceiveMode, connect
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.payloads import to_backlog
from tests.covers import covers
from tests.integration.serving import RunningNamespace, serving
from tests.integration.syphons import PRIMARY

DEAD_COUNT, LIVE_COUNT = 100_000, 100
SEEN_COUNT = 2_000
"""Of the dead destination's messages: whether the first of them come home in their order."""
BODY = b"x" * 700
ANY_ID = b"nnnnnn"
BATCH = 250
MOST_MEMORY_BYTES = 64 << 20
"""Of the syphon, all in all: a program that has hardly begun takes half of it, what waits takes more than all of it."""
PATIENCE_S = 120.0
QUEUE = backlog_path(PRIMARY, 0)


@covers("N12")
async def test_a_hundred_thousand_messages_for_a_dead_destination_hold_up_nobody_and_take_no_memory(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "primary") as primary, serving(tmp_path / "secondary") as secondary:
        async with (
            Administration(primary.connection_string) as at_home,
            Administration(secondary.connection_string) as backlog,
        ):
            await at_home.create_queue("live")
            await at_home.create_queue("dead", QueueSettings(status="SendDisabled"))
            await backlog.create_queue(QUEUE, QueueSettings(max_delivery_count=2147483647))
            await fill(secondary)

            async with syphoning(primary, secondary) as syphon:
                assert await first_numbers(primary, "live", LIVE_COUNT) == list(range(LIVE_COUNT))
                assert ((await backlog.get_queue(QUEUE)).counts.active or 0) >= DEAD_COUNT
                await at_home.update_queue("dead", QueueSettings(status="Active"))
                assert await first_numbers(primary, "dead", SEEN_COUNT) == list(range(SEEN_COUNT))
                assert most_memory_bytes(syphon.pid) < MOST_MEMORY_BYTES < DEAD_COUNT * len(message_for("dead"))


async def fill(secondary: RunningNamespace) -> None:
    async with await connect(secondary.connection_string) as bus:
        await (await bus.sender(QUEUE)).send_batches(waiting(), BATCH, window=4)


async def first_numbers(primary: RunningNamespace, path: str, count: int) -> list[int]:
    """Of the messages that come to an entity first."""
    found: list[int] = []
    async with await connect(primary.connection_string) as bus:
        receiver = await bus.receiver(path, mode=ReceiveMode.RECEIVE_AND_DELETE)
        while len(found) < count:
            some = await receiver.receive(count - len(found), PATIENCE_S)
            assert some, f"only {len(found)} came"
            found += [int(one.message_id or -1) for one in some]
    return found


def waiting() -> Iterator[bytes]:
    for path, count in (("dead", DEAD_COUNT), ("live", LIVE_COUNT)):
        one = message_for(path)
        for number in range(count):
            yield one.replace(ANY_ID, b"%06d" % number)


def message_for(path: str) -> bytes:
    return to_backlog(OutgoingMessage(BODY, message_id=ANY_ID.decode()).encode(), path)


@asynccontextmanager
async def syphoning(primary: RunningNamespace, secondary: RunningNamespace) -> AsyncIterator[CommandProcess]:
    ends = ["--primary", primary.connection_string, "--secondary", secondary.connection_string]
    said: list[str] = []
    syphon = CommandProcess(
        "syphon", ["syphon", *ends, "--primary-name", PRIMARY, "--backlog-queues", "1"], said.append
    )
    await syphon.start()
    try:
        yield syphon
        assert syphon.is_running, said
        assert not [line for line in said if "Traceback" in line], said
    finally:
        syphon.kill()
        await syphon.ended()


def most_memory_bytes(pid: int) -> int:
    """The most that the process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("nobody knows how much memory it has")
