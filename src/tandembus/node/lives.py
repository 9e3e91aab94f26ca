"""Records each start of a namespace in one process, and takes the record back at each clean stop.

So the next start knows how the last ones ended. One unclean stop is a power loss or a kill, and stores are opened at
once. Two in a row, the second within a minute of its start, may come from what a store holds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Final, final

from tandembus.clock import Clock
from tandembus.security.key_file import write_private

log = logging.getLogger("tandembus.node")

LIVES_FILE: Final = "running.json"
SIGN_OF_LIFE_S: Final = 10.0
SHORT_S: Final = 60.0
SUSPECT_AFTER: Final = 2


@final
class Lives:
    def __init__(self, data: Path, clock: Clock) -> None:
        self._path = data / LIVES_FILE
        self._clock = clock
        self._before: tuple[bytes, float] | None = None
        """The record of the life before, and its last sign of life."""

    def begin(self) -> bool:
        """Returns whether the last two lives ended in a way that makes the stores suspect."""
        unclean_stops = self._unclean_stops()
        now = self._clock.now()
        try:
            write_private(self._path, json.dumps({"started_at": now, "unclean_stops": unclean_stops}).encode() + b"\n")
        except OSError as error:
            log.warning("the start cannot be recorded in %s: %s", self._path, error)
        self.show_life()
        return unclean_stops >= SUSPECT_AFTER

    def _unclean_stops(self) -> int:
        """In a row, each but the first within a minute of its start."""
        try:
            content, shown_at = self._path.read_bytes(), self._path.stat().st_mtime
            self._before = content, shown_at
            before = json.loads(content)
            is_short = shown_at - before["started_at"] <= SHORT_S
            return (int(before["unclean_stops"]) if is_short else 0) + 1
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, TypeError, KeyError):
            return 1

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SIGN_OF_LIFE_S)
            self.show_life()

    def show_life(self) -> None:
        """The time of the file shows how long this life has lasted."""
        self._show_life(self._clock.now())

    def _show_life(self, at: float) -> None:
        try:
            os.utime(self._path, (at, at))
        except OSError as error:
            log.debug("%s cannot be touched: %s", self._path, error)

    def take_back(self) -> None:
        """This start failed with an error, and says nothing about the lives before it."""
        if self._before is None:
            self.end()
            return
        content, shown_at = self._before
        try:
            write_private(self._path, content)
        except OSError as error:
            log.warning("the failed start cannot be taken back in %s: %s", self._path, error)
        self._show_life(shown_at)

    def end(self) -> None:
        """A clean stop."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the clean stop cannot be recorded in %s: %s", self._path, error)
