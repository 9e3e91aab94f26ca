"""The volume of the data folder: room, speed, and whether it is one for a store at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from tandembus.cli.diagnosis.finding import Area, Finding, size_text
from tandembus.clock import Clock
from tandembus.config import ServeSettings
from tandembus.node.store_folders import PARTIAL
from tandembus.node.upkeep.folders import DAMAGED, environments_of, nearest_existing
from tandembus.store.embedded.environment import disk_free_bytes
from tandembus.store.embedded.lmdb_file import DATA_FILE

AREA: Final = Area("disk")
SYNCS: Final = 20
SLOW_SYNC_S: Final = 0.02
VERY_SLOW_SYNC_S: Final = 0.2
NO_SYNC_S: Final = 0.000_02
"""Nothing that outlives a power failure is as quick as this."""
LOW_SHARE: Final = 0.1
_MOUNTS: Final = Path("/proc/self/mounts")
_SHARED: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "glusterfs", "ceph", "afs")
_VOLATILE: Final = ("tmpfs", "ramfs")


def examine(settings: ServeSettings, clock: Clock) -> Iterator[Finding]:
    folder = nearest_existing(settings.data)
    yield _kind(folder)
    yield _room(folder, settings)
    if not os.access(folder, os.W_OK):
        advice = "Run the namespace as a user who may, or choose another folder with --data."
        yield AREA.problem("data folder", f"{folder} cannot be written to by this user", advice)
    elif folder == settings.data.absolute():
        yield _syncing(folder, clock)
    stores = sum((one / DATA_FILE).stat().st_size for one in environments_of(settings.data))
    yield AREA.ok("stores", f"{size_text(stores)} in {settings.data}")
    yield from _left_over(settings.data)


def _kind(folder: Path) -> Finding:
    kind, options = _mount_of(folder)
    if kind in _SHARED:
        text = f"{folder} is on a network file system ({kind}): its locks and maps cannot be relied on"
        return AREA.problem("file system", text, "Keep the data folder on a disk of this machine.")
    if kind in _VOLATILE:
        text = f"{folder} is in memory ({kind}): nothing outlives a restart of the machine"
        return AREA.warning("file system", text, "Choose a folder on a disk with --data.")
    if kind == "overlay":
        text = f"{folder} is in the image of a container: it goes with the container"
        return AREA.warning("file system", text, "Mount a volume, and keep the data folder there.")
    if "ro" in options:
        return AREA.problem("file system", f"{folder} is mounted read-only", "Mount it for writing.")
    return AREA.ok("file system", kind or "of an unknown kind")


def _mount_of(folder: Path) -> tuple[str, list[str]]:
    """The kind and the options of the innermost mount."""
    place, kind, options = "", "", ""
    resolved = str(folder.resolve())
    for line in _MOUNTS.read_text().splitlines() if _MOUNTS.exists() else ():
        _, at, one, settings, *_ = line.split()
        at = at.replace("\\040", " ")
        if (resolved == at or resolved.startswith(at.rstrip("/") + "/")) and len(at) >= len(place):
            place, kind, options = at, one, settings
    return kind, options.split(",")


def _room(folder: Path, settings: ServeSettings) -> Finding:
    volume = os.statvfs(folder)
    free, size = disk_free_bytes(folder), volume.f_blocks * volume.f_frsize
    limits = settings.limits
    share = max(limits.min_store_reserve_bytes, min(size // 20, limits.max_store_reserve_bytes))
    reserve = share if limits.store_reserve_bytes is None else limits.store_reserve_bytes
    text = f"{size_text(free)} free of {size_text(size)}"
    if free < reserve:
        text += f": less than the reserve of {size_text(reserve)}, so sends are refused"
        return AREA.problem("room", text, "Make room on the volume, or receive messages.")
    if free < max(size * LOW_SHARE, reserve * 4):
        return AREA.warning("room", text, "Make room: below the reserve sends are refused. A backup needs room, too.")
    if volume.f_files and volume.f_favail < 100:
        return AREA.problem("room", "no more files can be made on the volume", "Remove files that are not needed.")
    return AREA.ok("room", text)


def _syncing(folder: Path, clock: Clock) -> Finding:
    """Each group commit waits for one."""
    times = _sync_times(folder, clock)
    typical, longest = median(times), max(times)
    text = f"write and sync of 4 KiB: {typical * 1000:.2f} ms, at most {longest * 1000:.2f} ms"
    if typical > VERY_SLOW_SYNC_S:
        return AREA.problem("sync", text, "Every acknowledgement waits for one: use another disk.")
    if typical > SLOW_SYNC_S:
        return AREA.warning("sync", text, "Every acknowledgement waits for one: a faster disk makes senders faster.")
    if typical < NO_SYNC_S:
        advice = "Does the volume really sync? A power failure may cost what was acknowledged."
        return AREA.warning("sync", text + ", which no disk can do", advice)
    return AREA.ok("sync", text)


def _sync_times(folder: Path, clock: Clock) -> list[float]:
    path = folder / f"doctor-{secrets.token_hex(4)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    times: list[float] = []
    try:
        for _ in range(SYNCS):
            started = clock.monotonic()
            os.write(descriptor, bytes(4096))
            os.fdatasync(descriptor)
            times.append(clock.monotonic() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return times


def _left_over(data: Path) -> Iterator[Finding]:
    for folder in (data, data.absolute().parent):
        for one in sorted(folder.glob(f"*{PARTIAL}*")) if folder.is_dir() else ():
            text = f"{one} was left behind by a backup or restore that was killed"
            yield AREA.warning("leftovers", text, "Remove it.")
    for one in sorted(data.glob(f"*{DAMAGED}*")) if data.is_dir() else ():
        yield AREA.warning("leftovers", f"{one} is a damaged catalog that was replaced", "Keep it or remove it.")
