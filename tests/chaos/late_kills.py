"""`python -m tests.chaos.late_kills serve --data DATA ...`: a namespace whose supervisor can be wrong about a death.

While the file `DATA/late-kills` is there, the kill of a broker that fell silent does not arrive, its exit is reported
all the same, and the lock of its store folder is void, as on a file system that has forgotten it. Another broker takes
the store while the first one is merely stopped. So both bars that come before it are down, and the epoch alone decides.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tandembus.cli import main
from tandembus.node import launching
from tandembus.node.child_process import ChildProcess, start_child
from tandembus.node.store_folders import COPY_FOLDER, store_folder
from tandembus.store.folder_lock import LOCK_FILE

SWITCH = "late-kills"


class LateChild:
    """Stands in for a `ChildProcess`."""

    def __init__(self, child: ChildProcess, data: Path) -> None:
        self._child = child
        self._data = data
        self._index = 0
        self._given_up = asyncio.Event()
        self.pid = child.pid

    def is_alive(self) -> bool:
        return self._child.is_alive()

    def give(self, orders: dict[str, object]) -> None:
        self._index = int(str(orders["index"]))
        self._child.give(orders)

    def kill(self) -> None:
        if not (self._data / SWITCH).exists():
            self._child.kill()
            return
        folder = store_folder(self._data, self._index)
        for place in (folder, folder / COPY_FOLDER):
            (place / LOCK_FILE).unlink(missing_ok=True)
        self._given_up.set()

    async def wait(self) -> int:
        ended = asyncio.ensure_future(self._child.wait())
        given_up = asyncio.ensure_future(self._given_up.wait())
        await asyncio.wait([ended, given_up], return_when=asyncio.FIRST_COMPLETED)
        given_up.cancel()
        return ended.result() if ended.done() else -signal.SIGKILL

    def is_loaded(self) -> bool:
        return self._child.is_loaded()

    def has_orders(self) -> bool:
        return self._child.has_orders()

    def let_go(self) -> None:
        self._child.let_go()


_CHILDREN: list[LateChild] = []
"""None of them is forgotten: with the object its lifeline would go, and with that the process."""


def _start(role: str, label: str, namespace_name: str) -> LateChild:
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    child = LateChild(start_child(role, label, namespace_name), data)
    _CHILDREN.append(child)
    return child


if __name__ == "__main__":
    for name in ("start_child", "fork_child"):
        setattr(launching, name, _start)
    main(prog_name="tandembus")
