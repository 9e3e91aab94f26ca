"""Which of several processes on one port serves a connection: the system knows, and nobody else has to say."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

ESTABLISHED = "01"


def connections_at(pid: int, ports: Iterable[int]) -> set[int]:
    """The other ends (their ports) of the connections that this process has accepted on these ports."""
    sockets = _sockets_of(pid)
    wanted = set(ports)
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            local, remote, state, inode = fields[1], fields[2], fields[3], fields[9]
            if state == ESTABLISHED and _port(local) in wanted and inode in sockets:
                found.add(_port(remote))
    return found


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _sockets_of(pid: int) -> set[str]:
    found: set[str] = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(handle)
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            found.add(target[len("socket:[") : -1])
    return found
