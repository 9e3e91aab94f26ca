"""Looking at a server's process from outside."""

from __future__ import annotations

from pathlib import Path


def anonymous_memory_bytes(pid: int) -> int:
    """What the process itself holds: pages of a mapped store belong to the page cache and do not count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this kernel does not tell RssAnon")
