"""What a process of the namespace asks of Python and of the system before it serves."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Iterator
from typing import Final

SPARE_FILES: Final = 256
AUTHORITIES: Final = "SSL_CERT_FILE"
"""The variable in which OpenSSL is told another file of trusted certificates."""


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Around imports: they make a great many objects and hardly any garbage. Looking for it again and again would take
    a tenth of the time that a process needs to start."""
    gc.disable()
    try:
        with _trusting_nobody():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _trusting_nobody() -> Iterator[None]:
    """The HTTP library reads the certificates of all authorities that the system knows when it is imported, for the
    clients that may be made later. That is another eighth of the time, and here there are no such clients."""
    before = os.environ.get(AUTHORITIES)
    os.environ[AUTHORITIES] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ[AUTHORITIES]
        else:
            os.environ[AUTHORITIES] = before


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
