"""Whether a namespace is running in a data folder, and which processes are its own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.cli import data_folder
from tandembus.cli.data_folder import ServedNamespace
from tandembus.cli.failures import Failure
from tandembus.node.store_folders import catalog_folder
from tandembus.store.folder_lock import holder_of

_PROCESSES: Final = Path("/proc")
_CHILD: Final = re.compile(r"(?:^|/)tandembus (broker) (\S+)|tandembus\.node\.child (\S+) (\S+)")
"""Those that were forked, and those that were started anew."""
_LISTENING: Final = "0A"
_OWN_MEMORY: Final = re.compile(r"^RssAnon:\s*(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Served:
    """How things stand at the moment."""

    pid: int | None
    """Of the process that holds the folder; None: nobody serves it."""
    facts: ServedNamespace | None
    """What the last start left behind."""

    @property
    def is_running(self) -> bool:
        return self.pid is not None


def look(data: Path) -> Served:
    pid = holder_of(catalog_folder(data))
    try:
        return Served(pid, data_folder.served_from(data))
    except Failure:
        return Served(pid, None)


def listeners(port: int) -> list[int]:
    """The processes that listen on a port, as far as we may know."""
    inodes = _listening_sockets(port)
    return [pid for pid in _all_pids() if inodes & _sockets_of(pid)] if inodes else []


def kind_of(pid: int) -> str:
    """What a process is, for people: one of ours by its part in the namespace, any other by its name."""
    try:
        words = (_PROCESSES / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
        child = _CHILD.search(words)
        if child is not None:
            return f"tandembus {child[1] or child[3]} {child[2] or child[4]}"
        if "tandembus" in words and " serve" in words:
            return "tandembus serve"
        return (_PROCESSES / str(pid) / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "a process"


def is_of(pid: int, namespace_pid: int) -> bool:
    """Whether it is this process, or was started by it."""
    while pid > 1:
        if pid == namespace_pid:
            return True
        try:
            # A name in it is cut off at 15 bytes, also within a letter.
            stat = (_PROCESSES / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return False
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


def children_of(pid: int) -> list[int]:
    return [one for one in _all_pids() if one != pid and is_of(one, pid)]


def memory_of(pid: int) -> int:
    """What it holds in memory for itself alone, in bytes; 0 where that cannot be told."""
    try:
        found = _OWN_MEMORY.search((_PROCESSES / str(pid) / "status").read_text("utf-8", "replace"))
    except OSError:
        return 0
    return int(found[1]) * 1024 if found is not None else 0


def _all_pids() -> list[int]:
    return [int(one.name) for one in _PROCESSES.iterdir() if one.name.isdecimal()] if _PROCESSES.exists() else []


def _listening_sockets(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        path = _PROCESSES / "net" / table
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _sockets_of(pid: int) -> set[str]:
    found: set[str] = set()
    try:
        for handle in (_PROCESSES / str(pid) / "fd").iterdir():
            target = os.readlink(handle)
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    except OSError:
        pass  # of another user, or gone meanwhile
    return found
