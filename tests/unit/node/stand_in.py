"""A process for the supervisor's tests: holds a file locked, and ends or not as it is told."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tandembus.node.lifeline import Lifeline
from tandembus.store.folder_lock import FolderLock


async def live(lifeline: Lifeline) -> None:
    lifeline.watch()
    await asyncio.Event().wait()


def main() -> None:
    lifeline = Lifeline()
    orders = lifeline.orders()
    folder = Path(str(orders["folder"]))
    folder.mkdir(exist_ok=True)
    lock = FolderLock(folder)
    (folder / f"{'-'.join(sys.argv[1:3])}.{os.getpid()}").touch()
    exit_code = orders.get("exit_code")
    if isinstance(exit_code, int):
        sys.exit(exit_code)
    asyncio.run(live(lifeline))
    lock.release()


if __name__ == "__main__":
    main()
