"""A namespace that is killed, stopped, paused and started again on the same data."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tandembus.client.administration import Administration
from tandembus.client.queues import QueueCounts, QueueSettings
from tests.integration.serving import RunningNamespace, start_namespace

ANSWERS_WITHIN_S = 60.0


class Server:
    """`connection_string` is that of the process that runs now; wait for `is_up` before using it."""

    def __init__(self, data: Path, limits: Mapping[str, object] | None = None) -> None:
        self._data = data
        self._environment = {f"TANDEMBUS_LIMITS_{name.upper()}": str(value) for name, value in (limits or {}).items()}
        self._running: RunningNamespace | None = None
        self.is_up = asyncio.Event()

    @property
    def running(self) -> RunningNamespace:
        assert self._running is not None
        return self._running

    @property
    def connection_string(self) -> str:
        return self.running.connection_string

    @property
    def pid(self) -> int:
        return self.running.process.pid

    async def start(self, **limits: object) -> None:
        """Limits given here are those of this life only."""
        environment = {**self._environment, **{f"TANDEMBUS_LIMITS_{k.upper()}": str(v) for k, v in limits.items()}}
        self._running = await asyncio.to_thread(start_namespace, self._data, environment=environment)
        self.is_up.set()

    async def kill(self) -> None:
        """As a crash: nothing is finished, nothing is said."""
        self.is_up.clear()
        await asyncio.to_thread(self.running.kill)

    async def stop(self) -> int:
        self.is_up.clear()
        return await asyncio.to_thread(self.running.stop)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def dispose(self) -> None:
        if self._running is not None and self._running.process.poll() is None:
            self._running.process.kill()
            self._running.process.wait(30.0)

    @property
    def log(self) -> str:
        return "".join(self.running.log)

    async def create_queue(self, name: str, settings: QueueSettings | None = None) -> None:
        async with Administration(self.connection_string, timeout_s=ANSWERS_WITHIN_S) as administration:
            await administration.create_queue(name, settings)

    async def counts(self, name: str) -> QueueCounts:
        async with Administration(self.connection_string, timeout_s=ANSWERS_WITHIN_S) as administration:
            return (await administration.get_queue(name)).counts

    def anonymous_memory_bytes(self) -> int:
        """RssAnon: what the process itself holds; pages of the mapped store are the kernel's to drop."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
        return int(line.split()[1]) * 1024
