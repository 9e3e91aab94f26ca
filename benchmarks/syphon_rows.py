"""The syphon between two namespaces on this machine, against the same loop written with the plain SDK."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable

from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from benchmarks.processes import anonymous_memory_bytes
from benchmarks.rows import TANDEMBUS, Figures, Sizes
from benchmarks.tandembus_node import COMMAND, Tandembus
from tandembus.client import OutgoingMessage, connect
from tandembus.pairing.aliases import backlog_path
from tandembus.pairing.payloads import to_backlog

SYPHON_ROW = "syphon"
SDK_LOOP_ROW = "the syphon's loop with the plain SDK"
GROWTH_ROW = "growth of the syphon's memory in the second half of its work"
BEHIND_ROW = "syphon: 100 messages behind all those for a dead destination, until they are home"
BEHIND_MEMORY_ROW = "syphon: its memory then"
BODY = b"x" * 1024
HOME = "home"
DEAD = "dead"
LIVE_COUNT = 100
PRIMARY_NAME = "contoso"
QUEUES = 10
SDK_SHARE = 20
"""The plain loop gets so many times fewer messages, or it would never end."""
SDK_BATCH = 100
MEGABYTE = 1_000_000
ARRIVE_WITHIN_S = 120.0


def measure_syphon(
    primary: Tandembus, secondary: Tandembus, sizes: Sizes, figures: Figures, say: Callable[[str], None]
) -> None:
    """The program drains ten backlog queues of 1 KiB messages; then the plain loop drains one, with fewer. Last, a
    dead destination stands in the way."""
    queues = [backlog_path(PRIMARY_NAME, index) for index in range(QUEUES)]
    for queue in queues:
        secondary.create_queue(queue)
    primary.create_queue(HOME)
    primary.create_queue(DEAD)
    for number in range(1, sizes.rounds + 1):
        say(f"round {number} of {sizes.rounds}: syphon")
        _measure_program(primary, secondary, queues, sizes.messages, figures)
        asyncio.run(_measure_sdk(primary, secondary, queues[0], sizes.messages // SDK_SHARE, figures))
    say("syphon: past a dead destination")
    asyncio.run(_measure_behind(primary, secondary, queues[0], sizes.messages, figures))


def _measure_program(primary: Tandembus, secondary: Tandembus, queues: list[str], count: int, figures: Figures) -> None:
    asyncio.run(_fill(secondary, queues, count))
    process = _start_program(primary, secondary, "--once", "--json")
    memory = _Memory(process)
    output, _ = process.communicate()
    told = json.loads(output)
    if process.returncode != 0 or told["moved"] != count:
        raise RuntimeError(f"the syphon moved {told['moved']} of {count} messages")
    figures.rate(SYPHON_ROW, TANDEMBUS, count / told["moving_s"])
    figures.cost(GROWTH_ROW, TANDEMBUS, memory.growth_bytes() / MEGABYTE)
    asyncio.run(_empty(primary))


def _start_program(primary: Tandembus, secondary: Tandembus, *options: str) -> "subprocess.Popen[str]":
    command = [*COMMAND, "syphon", *options, "--primary-name", PRIMARY_NAME, "--backlog-queues", str(QUEUES)]
    command += ["--primary", primary.connection_string, "--secondary", secondary.connection_string]
    return subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True)


async def _measure_behind(primary: Tandembus, secondary: Tandembus, queue: str, count: int, figures: Figures) -> None:
    """From the start of the program on: those for the dead destination are put aside, and the others come home."""
    primary.run("queue", "update", DEAD, "--status", "SendDisabled")
    await _fill(secondary, [queue], count, DEAD)
    await _fill(secondary, [queue], LIVE_COUNT)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    process = _start_program(primary, secondary)
    await _empty(primary, HOME, LIVE_COUNT)
    figures.cost(BEHIND_ROW, TANDEMBUS, loop.time() - began_at)
    figures.cost(BEHIND_MEMORY_ROW, TANDEMBUS, anonymous_memory_bytes(process.pid) / MEGABYTE)
    primary.run("queue", "update", DEAD, "--status", "Active")
    await _empty(primary, DEAD, count)
    process.terminate()
    process.communicate()


class _Memory:
    """Looks at a process ten times a second, from its start to its end."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._seen: list[int] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def growth_bytes(self) -> int:
        self._is_over.set()
        self._thread.join()
        late = self._seen[len(self._seen) // 2 :]
        return max(late) - late[0] if late else 0

    def _look(self) -> None:
        while not self._is_over.wait(0.1):
            try:
                self._seen.append(anonymous_memory_bytes(self._process.pid))
            except (OSError, ValueError):
                return


async def _measure_sdk(primary: Tandembus, secondary: Tandembus, queue: str, count: int, figures: Figures) -> None:
    await _fill(secondary, [queue], count)
    async with (
        ServiceBusClient.from_connection_string(secondary.connection_string) as source,
        ServiceBusClient.from_connection_string(primary.connection_string) as target,
        source.get_queue_receiver(queue) as receiver,
        target.get_queue_sender(HOME) as sender,
    ):
        seconds = await _move_with_sdk(receiver, sender, count)
    figures.rate(SDK_LOOP_ROW, TANDEMBUS, count / seconds)
    await _empty(primary)


async def _move_with_sdk(receiver: ServiceBusReceiver, sender: ServiceBusSender, count: int) -> float:
    """As the SDK's documentation suggests: receive some, send them as a batch, complete each."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    moved = 0
    while moved < count:
        messages = await receiver.receive_messages(SDK_BATCH, max_wait_time=5)
        await sender.send_messages(messages)
        for message in messages:
            await receiver.complete_message(message)
        moved += len(messages)
    return loop.time() - began_at


async def _fill(secondary: Tandembus, queues: list[str], count: int, path: str = HOME) -> None:
    """In the form that the backlog has, the same share for each queue."""
    async with await connect(secondary.connection_string) as bus:
        for queue in queues:
            share = count // len(queues)
            payloads = (to_backlog(OutgoingMessage(BODY).encode(), path) for _ in range(share))
            await (await bus.sender(queue)).send_batches(payloads, 200, window=4)


async def _empty(primary: Tandembus, path: str = HOME, count: int | None = None) -> None:
    """All that is there; or so many, however long they take to come."""
    async with await connect(primary.connection_string) as bus:
        receiver = await bus.receiver(path)
        found = 0
        while messages := await receiver.receive(1000, 0.5 if count is None else ARRIVE_WITHIN_S):
            await receiver.complete(*messages)
            found += len(messages)
            if found == count:
                return
    if count is not None:
        raise RuntimeError(f"{found} of {count} messages came to '{path}'")
