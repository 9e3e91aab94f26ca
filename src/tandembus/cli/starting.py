"""What is said when a namespace cannot be started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from tandembus.config import ServeSettings

EXIT_REFUSED: Final = 1
TRY: Final = "Try: "


def tell_refusal(error: Exception, settings: ServeSettings) -> None:
    click.echo(f"tandembus cannot start: {error}", err=True)
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError) and cause.filename is not None:  # trouble with a port cannot name a file
        click.echo(f"{TRY}--data chooses another data folder, one that this user may write to.", err=True)
    elif isinstance(error, OSError):
        for port in (settings.amqp_port, settings.http_port, settings.amqps_port):
            if port and (pids := listeners(port)):
                click.echo(f"port {port}: taken by {named(pids)}", err=True)
        click.echo(f"{TRY}--amqp-port 0 --http-port 0 --amqps-port 0 takes free ports.", err=True)


def listeners(port: int) -> list[int]:
    """The processes that listen on a port: those of other users only for root, and on Linux only."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return [int(one.name) for one in Path("/proc").glob("[0-9]*") if inodes and not inodes.isdisjoint(_open_of(one))]


def named(pids: Sequence[int]) -> str:
    return ", ".join(f"{_name_of(pid)} (process {pid})" for pid in pids)


def _open_of(process: Path) -> Iterator[str]:
    try:
        for one in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since
                yield os.readlink(one)
    except OSError:
        return  # a process of another user, or one that ended


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "a process"
