"""The syphon: brings the messages of all backlog queues home, each queue by itself (N11-N14)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tandembus.pairing.runtime import Runtime, together
from tandembus.pairing.syphon_observer import SyphonObserver, log
from tandembus.pairing.syphon_ports import BacklogPort, PrimaryPort
from tandembus.pairing.syphon_queue import QueueSyphon
from tandembus.pairing.syphon_rules import SyphonSettings


class Syphon:
    """Any number of them may work on the same queues, here and elsewhere: each message is in one's hands at a time."""

    def __init__(
        self,
        backlogs: Sequence[BacklogPort],
        primary: PrimaryPort,
        settings: SyphonSettings,
        observer: SyphonObserver,
        runtime: Runtime,
    ) -> None:
        self._backlogs: Final = tuple(backlogs)
        self._primary: Final = primary
        self._queues: Final = [QueueSyphon(each, primary, settings, observer, runtime) for each in backlogs]
        self._left_behind: Final[list[str]] = []

    @property
    def dead_destinations(self) -> set[str]:
        """Paths that do not take messages at the moment."""
        return {path for queue in self._queues for path in queue.dead_destinations}

    async def run(self, once: bool = False) -> bool:
        """Until `stop`; `once`: until nothing more can be moved. Returns whether the backlog queues are empty then."""
        try:
            await together(
                [
                    partial(self._run, queue, each.queue, once)
                    for queue, each in zip(self._queues, self._backlogs, strict=True)
                ]
            )
        finally:
            await self._close()
        return not self._left_behind

    async def stop(self) -> None:
        """Finish what is in hand, give back the rest; then `run` returns."""
        for queue in self._queues:
            await queue.stop()

    async def _run(self, queue: QueueSyphon, name: str, once: bool) -> None:
        try:
            is_empty = await queue.run(once)
        except Exception as error:
            # The others go on, maybe for long: so it is told now, too.
            log.error("%s: given up: %s", name, error)
            raise
        if not is_empty:
            self._left_behind.append(name)

    async def _close(self) -> None:
        for backlog in self._backlogs:
            await backlog.close()
        await self._primary.close()
