"""How long the namespace for tests takes: `python -m benchmarks.fixture`.

The import is paid once per process, the start by every test that has a namespace of its own.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Literal

ROUNDS = 20
IMPORT = "import time; t = time.perf_counter(); import tandembus.testing.embedded; print(time.perf_counter() - t)"


def main() -> None:
    imports = [float(subprocess.check_output([sys.executable, "-c", IMPORT])) for _ in range(5)]
    print("| | median | longest |")
    print("|---|---|---|")
    _tell("first import of tandembus.testing", imports)
    from tandembus.testing import EmbeddedNamespace

    stores: tuple[Literal["memory", "lmdb"], ...] = ("memory", "lmdb")
    for store in stores:
        starts: list[float] = []
        advances: list[float] = []
        resets: list[float] = []
        stops: list[float] = []
        for _ in range(ROUNDS):
            namespace = EmbeddedNamespace(store=store)
            starts.append(_timed(namespace.start))
            for number in range(10):
                namespace.create_queue(f"queue-{number}")
            advances.append(_timed(functools.partial(namespace.clock.advance, 60.0)))
            resets.append(_timed(namespace.reset))
            stops.append(_timed(namespace.stop))
        _tell(f"{store}: start until ready", starts)
        _tell(f"{store}: advance the clock", advances)
        _tell(f"{store}: reset with 10 queues", resets)
        _tell(f"{store}: stop", stops)


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _tell(what: str, seconds: list[float]) -> None:
    print(f"| {what} | {statistics.median(seconds) * 1000:.1f} ms | {max(seconds) * 1000:.1f} ms |")


if __name__ == "__main__":
    main()
