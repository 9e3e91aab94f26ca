"""What the system allows a namespace: open files, memory, address space, processors."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tandembus.cli.diagnosis.finding import Area, Finding, size_text
from tandembus.cli.diagnosis.served import Served, children_of, memory_of
from tandembus.config import Limits, ServeSettings
from tandembus.node.store_folders import COPY_FOLDER, store_count
from tandembus.node.tuning import SPARE_FILES
from tandembus.node.upkeep.folders import environments_of
from tandembus.store.embedded.environment import MIN_MAP_BYTES
from tandembus.store.embedded.lmdb_file import DATA_FILE

AREA: Final = Area("limits")
BASE_BYTES: Final = 96 << 20
"""What a process takes before it has messages in memory."""
NEARLY_FULL: Final = 0.8
_MEMORY: Final = Path("/proc/meminfo")
_CGROUP: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s*(\d+) kB", re.MULTILINE)
_NO_LIMIT_BYTES: Final = 1 << 60
"""The first kind of control groups tells of no limit by a number that no machine has."""


def examine(settings: ServeSettings, served: Served) -> Iterator[Finding]:
    yield open_files(settings.limits, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    own = [] if served.pid is None else [served.pid, *children_of(served.pid)]
    held = sum(memory_of(pid) for pid in own)
    yield memory(settings, available_bytes(_text(_MEMORY), [_text(path) for path in _CGROUP], held))
    yield map_size(settings, resource.getrlimit(resource.RLIMIT_AS)[0])
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield processors(settings, count)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def open_files(limits: Limits, most: int) -> Finding:
    """`most`: the hard limit, since a process raises the soft one by itself."""
    wanted = limits.max_connections + SPARE_FILES
    shown = "no limit" if most == resource.RLIM_INFINITY else f"{most:,}"
    text = f"{shown}; {limits.max_connections:,} connections need {wanted:,}"
    if most != resource.RLIM_INFINITY and most < wanted:
        advice = f"Raise it (`ulimit -Hn {wanted}`, LimitNOFILE= of systemd), or lower limits.max_connections."
        return AREA.warning("open files", text, advice)
    return AREA.ok("open files", text)


def memory(settings: ServeSettings, available: int | None) -> Finding:
    """Windows of brokers are the most that messages take, whatever the length of queues."""
    brokers = max(settings.brokers, 1)
    processes = brokers + settings.front_ends if settings.brokers else 1
    limits = settings.limits
    wanted = brokers * (limits.broker_window_bytes + limits.uncommitted_bytes_limit) + processes * BASE_BYTES
    if available is None:
        return AREA.ok("memory", f"up to {size_text(wanted)} are needed; what is there cannot be told")
    text = f"{size_text(available)} available; up to {size_text(wanted)} are needed"
    if available < wanted:
        advice = "Give it more memory, or lower limits.broker_window_bytes."
        return AREA.warning("memory", text, advice)
    return AREA.ok("memory", text)


def available_bytes(meminfo: str, cgroups: Sequence[str], held: int = 0) -> int | None:
    """`cgroups`: limits of control groups, which may be `max`. `held`: what the namespace has of it already."""
    found = [int(kilobytes) * 1024 + held for kilobytes in _AVAILABLE.findall(meminfo)]
    limits = [int(text) for text in cgroups if text.strip().isdecimal()]
    return min([*found, *(limit for limit in limits if limit < _NO_LIMIT_BYTES)], default=None)


def map_size(settings: ServeSettings, address_space: int) -> Finding:
    """All stores of a process are mapped at once; a store never grows beyond its map."""
    limits, stores = settings.limits, store_count(settings)
    in_process = -(-stores // max(settings.brokers, 1))
    catalog, largest = _sizes(settings.data)
    text = f"{size_text(limits.store_map_size_bytes)} for each of {stores}; the largest store has {size_text(largest)}"
    limited = f"address space is limited to {size_text(address_space)}"
    is_short = address_space != resource.RLIM_INFINITY and address_space < _wanted_space(limits, in_process)
    least = limits.catalog_map_size_bytes + MIN_MAP_BYTES + BASE_BYTES
    if is_short and (in_process > 1 or address_space < least):
        # A store takes what it can have: of several in a process, the last may find nothing left.
        advice = "Remove the limit (`ulimit -v unlimited`), or lower limits.store_map_size_bytes until all fit."
        return AREA.problem("map size", f"{limited}, and {text}", advice)
    if largest > limits.store_map_size_bytes * NEARLY_FULL:
        return AREA.warning("map size", text, "Raise limits.store_map_size_bytes: above it sends are refused.")
    if catalog > limits.catalog_map_size_bytes * NEARLY_FULL:
        text = f"the catalog has {size_text(catalog)} of {size_text(limits.catalog_map_size_bytes)}"
        return AREA.warning("map size", text, "Raise limits.catalog_map_size_bytes: above it no entity can be made.")
    if is_short:
        advice = "Smaller maps are used then. `ulimit -v unlimited` removes the limit."
        return AREA.warning("map size", f"{text}; {limited}", advice)
    return AREA.ok("map size", text)


def _wanted_space(limits: Limits, stores: int) -> int:
    """Each store has a copy of the catalog beside it."""
    maps = stores * limits.store_map_size_bytes + (stores + 1) * limits.catalog_map_size_bytes
    return maps + BASE_BYTES


def _sizes(data: Path) -> tuple[int, int]:
    """Of the largest catalog or copy of it, and of the largest store."""
    sizes = [(one.name == COPY_FOLDER, (one / DATA_FILE).stat().st_size) for one in environments_of(data)]
    catalogs = [size for is_catalog, size in sizes if is_catalog]
    return max(catalogs, default=0), max((size for is_catalog, size in sizes if not is_catalog), default=0)


def processors(settings: ServeSettings, count: int) -> Finding:
    busy = settings.brokers + settings.front_ends if settings.brokers else 1
    text = f"{count} for {busy} busy process{'es' if busy > 1 else ''}"
    if busy > 2 * count:
        return AREA.warning("processors", text, "Fewer --brokers and --front-ends do the same work with less effort.")
    return AREA.ok("processors", text)
