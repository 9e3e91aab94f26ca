"""What the system allows a namespace: open files, memory, address space, processors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tandembus.cli.diagnosis.finding import Area, Finding, size_text
from tandembus.config import ServeSettings
from tandembus.node.store_folders import store_count
from tandembus.node.tuning import SPARE_FILES
from tandembus.node.upkeep.folders import environments_of
from tandembus.store.embedded.environment import MIN_MAP_BYTES
from tandembus.store.embedded.lmdb_file import DATA_FILE

AREA: Final = Area("limits")
BASE_BYTES: Final = 96 << 20
"""What a process takes before it has messages in memory."""
_MEMORY: Final = Path("/proc/meminfo")
_CGROUP: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def examine(settings: ServeSettings) -> Iterator[Finding]:
    yield _open_files(settings)
    yield _memory(settings)
    yield _map_size(settings)
    yield _processors(settings)


def _open_files(settings: ServeSettings) -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.limits.max_connections + SPARE_FILES
    shown = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    text = f"{shown}; {settings.limits.max_connections:,} connections need {wanted:,}"
    if hard != resource.RLIM_INFINITY and hard < wanted:
        advice = f"Raise it (`ulimit -Hn {wanted}`, LimitNOFILE= of systemd), or lower limits.max_connections."
        return AREA.warning("open files", text, advice)
    return AREA.ok("open files", text)


def _memory(settings: ServeSettings) -> Finding:
    """Windows of brokers are the most that messages take, whatever the length of queues."""
    brokers = max(settings.brokers, 1)
    processes = brokers + settings.front_ends if settings.brokers else 1
    limits = settings.limits
    wanted = brokers * (limits.broker_window_bytes + limits.uncommitted_bytes_limit) + processes * BASE_BYTES
    available = _available_bytes()
    if available is None:
        return AREA.ok("memory", f"up to {size_text(wanted)} are needed; what is there cannot be told")
    text = f"{size_text(available)} available; up to {size_text(wanted)} are needed"
    if available < wanted:
        advice = "Give it more memory, or lower limits.broker_window_bytes."
        return AREA.warning("memory", text, advice)
    return AREA.ok("memory", text)


def _available_bytes() -> int | None:
    found: list[int] = []
    for line in _MEMORY.read_text().splitlines() if _MEMORY.exists() else ():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    for path in _CGROUP:
        text = path.read_text().strip() if path.exists() else ""
        if text.isdecimal():
            found.append(int(text))
    return min(found, default=None)


def _map_size(settings: ServeSettings) -> Finding:
    """All stores of a process are mapped at once; a store never grows beyond its map."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    map_bytes, stores = settings.limits.store_map_size_bytes, store_count(settings)
    largest = max((one.stat().st_size for one in _files(settings.data)), default=0)
    text = f"{size_text(map_bytes)} for each of {stores}; the largest store has {size_text(largest)}"
    if soft != resource.RLIM_INFINITY and soft < MIN_MAP_BYTES * 2 * stores:
        advice = "Remove the limit of address space (`ulimit -v unlimited`)."
        return AREA.problem("map size", f"address space is limited to {size_text(soft)}", advice)
    if largest > map_bytes * 0.8:
        return AREA.warning("map size", text, "Raise limits.store_map_size_bytes: above it sends are refused.")
    if soft != resource.RLIM_INFINITY:
        advice = "Smaller maps are used then. `ulimit -v unlimited` removes the limit."
        return AREA.warning("map size", f"{text}; address space is limited to {size_text(soft)}", advice)
    return AREA.ok("map size", text)


def _files(data: Path) -> list[Path]:
    return [one / DATA_FILE for one in environments_of(data)]


def _processors(settings: ServeSettings) -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = settings.brokers + settings.front_ends if settings.brokers else 1
    text = f"{count} for {busy} busy process{'es' if busy > 1 else ''}"
    if busy > 2 * count:
        return AREA.warning("processors", text, "Fewer --brokers and --front-ends do the same work with less effort.")
    return AREA.ok("processors", text)
