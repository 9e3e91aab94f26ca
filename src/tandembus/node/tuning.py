"""What a process of the namespace asks of Python and of the system before it serves."""

from __future__ import annotations

import gc
import resource
from typing import Final

SPARE_FILES: Final = 256


def tune_process(connection_count: int) -> None:
    _calm_collector()
    _allow_many_connections(connection_count)


def _calm_collector() -> None:
    """What lives now lives for ever; messages in flight make no cycles, so collections can be rare."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _allow_many_connections(count: int) -> None:
    """The customary limit of 1,024 files is soft: it may be raised up to the hard one."""
    wanted = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
