"""Work that takes a while, told as it goes: a line of JSON for every part that is done, and one at the end."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from tandembus.errors import BusError
from tandembus.front_end.http.taking import Progress

LINES_CONTENT_TYPE: Final = "application/x-ndjson"
FAULT_OF_OURS: Final = "The namespace failed to carry out the request."

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class End:
    """There is nothing more to come."""

    error: str | None
    """Why it ended early."""


class ProgressStream:
    def __init__(
        self,
        line: Callable[[Progress, End | None], Mapping[str, object]],
        count: Callable[[int, int], None],
        check: Callable[[], None],
        what: str,
    ) -> None:
        """`count` is told of messages and bytes since it was last called; `check` raises when what was allowed at first
        is so no longer."""
        self._line = line
        self._count = count
        self._check = check
        self._what = what
        self._counted = 0
        self._counted_bytes = 0

    async def run(self, request: web.Request, progress: Progress, parts: AsyncIterator[None]) -> web.StreamResponse:
        """What is done between two parts is in the progress."""
        response = web.StreamResponse(headers={"Content-Type": LINES_CONTENT_TYPE})
        await response.prepare(request)
        error: str | None = None
        try:
            async for _ in parts:
                self._count_new(progress)
                await response.write(encoded_line(self._line(progress, None)))
                self._check()
        except BusError as refusal:
            error = str(refusal)
        except ConnectionError:
            raise
        except Exception:
            # The answer has begun: nobody else can say it any more.
            logger.exception("a fault of ours in %s", self._what)
            error = FAULT_OF_OURS
        self._count_new(progress)
        await response.write(encoded_line(self._line(progress, End(error))))
        await response.write_eof()
        return response

    def _count_new(self, progress: Progress) -> None:
        moved, moved_bytes = progress.moved - self._counted, progress.moved_bytes - self._counted_bytes
        self._counted, self._counted_bytes = progress.moved, progress.moved_bytes
        if moved:
            self._count(moved, moved_bytes)


def encoded_line(document: Mapping[str, object]) -> bytes:
    return json.dumps(document).encode() + b"\n"
