"""What the demonstration happens on: two namespaces and a syphon, each a process that can be killed."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Final

from tandembus.cli.command_process import CommandProcess
from tandembus.client.administration import Administration
from tandembus.client.entities import QueueSettings
from tandembus.client.meter import Counted, in_total
from tandembus.errors import StoreUnavailable
from tandembus.pairing.status import backlogs_in
from tandembus.security.sas import parse_connection_string

PRIMARY: Final = "primary"
SECONDARY: Final = "secondary"
QUEUES: Final = ("orders", "payments")
BACKLOG_QUEUES: Final = 4
KEPT_LINES: Final = 40
STOPS_WITHIN_S: Final = 15.0


class Stage:
    """`async with`; nothing of it is left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self.log: Final[deque[str]] = deque(maxlen=KEPT_LINES)
        """The last that the processes said, in case that something goes wrong."""
        self._primary = self._namespace(PRIMARY, 0)
        self._secondary: Final = self._namespace(SECONDARY, 0)
        self._syphon: CommandProcess | None = None
        self.primary = ""
        self.secondary = ""

    async def __aenter__(self) -> Stage:
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _open(self) -> None:
        await asyncio.gather(self._primary.start(), self._secondary.start())
        self.primary, self.secondary = await asyncio.gather(self._primary.ready(), self._secondary.ready())
        async with Administration(self.primary) as administration:
            # What a send whose answer got lost left on the primary, and what the backlog has of it, are one message.
            for queue in QUEUES:
                await administration.create_queue(queue, QueueSettings(requires_duplicate_detection=True))

    async def _close(self) -> None:
        running = [one for one in (self._syphon, self._primary, self._secondary) if one is not None and one.is_running]
        for one in running:
            one.stop()
        ends = asyncio.gather(*[one.ended() for one in running])
        try:
            await asyncio.wait_for(ends, STOPS_WITHIN_S)
        except TimeoutError:
            for one in running:
                one.kill()

    def _namespace(self, name: str, port: int) -> CommandProcess:
        command = ["serve", "--name", name, "--data", str(self._folder / name), "--brokers", "2"]
        command += ["--audit", "--show-key"]
        command += ["--amqp-port", str(port), "--amqps-port", "off", "--http-port", "0"]
        return CommandProcess(name, command, self._tell)

    def _tell(self, line: str) -> None:
        self.log.append(line)

    @property
    def secondary_ca(self) -> str:
        return str(self._folder / SECONDARY / "tls" / "ca.pem")

    # What happens.

    async def start_syphon(self) -> None:
        command = ["syphon", "--primary", self.primary, "--secondary", self.secondary]
        command += ["--primary-name", PRIMARY, "--backlog-queues", str(BACKLOG_QUEUES)]
        self._syphon = CommandProcess("syphon", command, self._tell)
        await self._syphon.start()

    async def kill_primary(self) -> None:
        """As a crash would; its message brokers go with it."""
        self._primary.kill()
        await self._primary.ended()

    async def restart_primary(self) -> None:
        """With the same data, at the same address."""
        port = parse_connection_string(self.primary).port or 0
        self._primary = self._namespace(PRIMARY, port)
        await self._primary.start()
        await self._primary.ready()

    # What is to be seen.

    @property
    def is_primary_up(self) -> bool:
        return self._primary.is_running

    async def backlog_depth(self) -> int:
        async with Administration(self.secondary) as administration:
            depth = {queue.name: queue.counts.active async for queue in administration.queues()}
        found = [depth[path] for path in backlogs_in(depth).get(PRIMARY, {}).values()]
        known = [count for count in found if count is not None]
        if len(known) < len(found):
            raise StoreUnavailable("The backlog cannot be counted at the moment.")
        return sum(known)

    async def metered(self) -> list[Counted]:
        """All that both namespaces have counted."""
        found: list[Counted] = []
        for connection_string in (self.primary, self.secondary):
            async with Administration(connection_string) as administration:
                found += await in_total(administration.requests)
        return found
