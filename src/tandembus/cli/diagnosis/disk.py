"""The volume of the data folder: room, speed, and whether it is one for a store at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from tandembus.cli.diagnosis.finding import Area, Finding, size_text
from tandembus.clock import Clock
from tandembus.config import Limits, ServeSettings
from tandembus.node.store_folders import PARTIAL
from tandembus.node.upkeep.folders import DAMAGED, environments_of, nearest_existing
from tandembus.store.embedded.lmdb_file import DATA_FILE

AREA: Final = Area("disk")
SYNCS: Final = 20
SLOW_SYNC_S: Final = 0.02
VERY_SLOW_SYNC_S: Final = 0.2
NO_SYNC_S: Final = 0.000_02
"""Nothing that outlives a power failure is as quick as this."""
LOW_SHARE: Final = 0.1
LOW_BYTES: Final = 16 << 30
"""On a large volume a tenth is plenty."""
FEW_FILES: Final = 100
_MOUNTS: Final = Path("/proc/self/mounts")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_SHARED: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "lustre")
_SHARED_BY_PROGRAMS: Final = tuple(f"fuse.{name}" for name in ("sshfs", "glusterfs", "ceph-fuse", "s3fs", "rclone"))
_VOLATILE: Final = ("tmpfs", "ramfs")
_sync: Final = getattr(os, "fdatasync", os.fsync)
"""Not every system has the former."""


def examine(settings: ServeSettings, clock: Clock) -> Iterator[Finding]:
    folder = nearest_existing(settings.data)
    if not folder.is_dir():
        yield AREA.problem("data folder", f"{folder} is not a folder", "Choose another folder with --data.")
        return
    yield file_system(folder, _mounts())
    volume = os.statvfs(folder)
    yield room(volume, settings.limits)
    if volume.f_flag & os.ST_RDONLY:
        advice = "Mount it for writing, or choose another folder with --data."
        yield AREA.problem("data folder", f"{folder} cannot be written to: its volume is read-only", advice)
    elif not os.access(folder, os.W_OK | os.X_OK):
        advice = "Run the namespace as a user who may, or choose another folder with --data."
        yield AREA.problem("data folder", f"{folder} cannot be written to by this user", advice)
    elif folder == settings.data.absolute():
        yield syncing(folder, clock)
    stores = sum((one / DATA_FILE).stat().st_size for one in environments_of(settings.data))
    yield AREA.ok("stores", f"{size_text(stores)} in {settings.data}")
    yield from _left_over(settings.data)


def file_system(folder: Path, mounts: str) -> Finding:
    """`mounts`: as Linux tells them; empty elsewhere."""
    kind, options = _mount_of(folder, mounts)
    if kind in _SHARED or kind in _SHARED_BY_PROGRAMS:
        text = f"{folder} is on a network file system ({kind}): its locks and maps cannot be relied on"
        return AREA.problem("file system", text, "Keep the data folder on a disk of this machine.")
    if "ro" in options:
        return AREA.problem("file system", f"{folder} is mounted read-only", "Mount it for writing.")
    if kind in _VOLATILE:
        text = f"{folder} is in memory ({kind}): nothing outlives a restart of the machine"
        return AREA.warning("file system", text, "Choose a folder on a disk with --data.")
    if kind == "overlay":
        text = f"{folder} is in the image of a container: it goes with the container"
        return AREA.warning("file system", text, "Mount a volume, and keep the data folder there.")
    return AREA.ok("file system", kind or "of an unknown kind")


def _mounts() -> str:
    return os.fsdecode(_MOUNTS.read_bytes()) if _MOUNTS.exists() else ""


def _mount_of(folder: Path, mounts: str) -> tuple[str, list[str]]:
    """The kind and the options of the innermost mount."""
    place, kind, options = "", "", ""
    resolved = str(folder.resolve())
    for line in mounts.split("\n"):
        # Only spaces part the fields: other white space may stand in a name. Some systems leave fields out.
        _, at, one, settings, *_ = [*line.split(" "), "", "", "", ""]
        at = _ESCAPE.sub(_unescaped, at)
        is_within = resolved == at or resolved.startswith(at.rstrip("/") + "/")
        if at.startswith("/") and one and is_within and len(at) >= len(place):
            place, kind, options = at, one, settings
    return kind, options.split(",")


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 8))


def room(volume: os.statvfs_result, limits: Limits) -> Finding:
    free, size = volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize
    share = min(size, limits.store_map_size_bytes) // 20
    share = max(limits.min_store_reserve_bytes, min(share, limits.max_store_reserve_bytes))
    reserve = share if limits.store_reserve_bytes is None else limits.store_reserve_bytes
    text = f"{size_text(free)} free of {size_text(size)}"
    if free < reserve:
        text += f": less than the reserve of {size_text(reserve)}, so sends are refused once the stores are full"
        return AREA.problem("room", text, "Make room on the volume, or receive messages.")
    if volume.f_files and volume.f_favail < FEW_FILES:
        return AREA.problem("room", "hardly any file can be made on the volume", "Remove files that are not needed.")
    if free < max(min(size * LOW_SHARE, LOW_BYTES), reserve * 4):
        return AREA.warning("room", text, "Make room: below the reserve sends are refused. A backup needs room, too.")
    return AREA.ok("room", text)


def syncing(folder: Path, clock: Clock) -> Finding:
    """Each group commit waits for one."""
    try:
        times = _sync_times(folder, clock)
    except OSError as error:
        advice = "Make room, look at quotas and rights, or choose another folder with --data."
        return AREA.problem("sync", f"nothing can be written to {folder}: {error}", advice)
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
            _sync(descriptor)
            times.append(clock.monotonic() - started)
    finally:
        os.close(descriptor)
        path.unlink()
    return times


def _left_over(data: Path) -> Iterator[Finding]:
    for folder in (data, data.absolute().parent):
        for one in sorted(folder.glob(f"*{PARTIAL}*")) if folder.is_dir() else ():
            yield _unfinished(one, data, is_within=folder == data)
    for one in sorted(data.glob(f"*{DAMAGED}*")) if data.is_dir() else ():
        yield AREA.warning("leftovers", f"{one} is a damaged catalog that was replaced", "Keep it or remove it.")


def _unfinished(one: Path, data: Path, is_within: bool) -> Finding:
    if is_within and one.is_dir() and any(one.iterdir()):
        # Part of the namespace is in there (`require_whole`): removing it alone would lose that part.
        text = f"a restore into {data} has not ended, and it is not served: a part of it is still in {one.name}"
        advice = f"If none is running now, remove everything in {data}, and restore the backup again."
        return AREA.problem("leftovers", text, advice)
    text = f"{one} is of a backup or restore that has not ended"
    return AREA.warning("leftovers", text, "If none is running now, it was killed: remove it.")
