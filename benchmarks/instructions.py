"""Instructions of the broker per message, counted by callgrind: `python -m benchmarks.instructions [--keep FOLDER]`.

Neighbours on the machine change times and not these counts, which repeat within about a percent: this is how to see
what a change costs. They are of one process, all its threads, without the kernel. Compare them between builds, never
with a time.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.entity_rows import PER_SESSION, RECEIVERS
from benchmarks.load_client import LoadClient
from benchmarks.tandembus_node import Tandembus

MESSAGES = 20_000
MAP_BYTES = 1 << 31
"""Valgrind has no room for a store's usual terabyte of addresses."""
SESSIONS = {"sessions": MESSAGES // PER_SESSION}
TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    name: str
    mode: str
    """What is counted: sending to an empty queue, or receiving from one that is filled before."""
    create: tuple[str, ...] = ()
    fill: dict[str, int] = field(default_factory=dict)
    load: dict[str, int] = field(default_factory=dict)


ROWS = (
    Row("send", "send"),
    Row("send with duplicate detection", "send", ("--requires-duplicate-detection",)),
    Row("drain", "recv"),
    Row("drain by 8 receivers", "recv", load={"receivers": RECEIVERS, "credit": PER_SESSION}),
    Row(
        "drain sessions by 8 receivers",
        "recv",
        ("--requires-session",),
        SESSIONS,
        {**SESSIONS, "per_session": PER_SESSION, "receivers": RECEIVERS},
    ),
)


def count(row: Row, client: LoadClient, folder: Path, counts: Path) -> int:
    """Instructions of the whole row; where they were spent is in the file `counts` then."""
    callgrind = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}")
    node = Tandembus(folder, limits={"store_map_size_bytes": MAP_BYTES}, under=callgrind)
    node.start()
    try:
        node.create("queue", "q", *row.create)
        target = node.target("q")
        if row.mode == "recv":
            client.run(target, mode="send", count=MESSAGES, **row.fill)
        _switch(node, "on")
        client.run(target, mode=row.mode, count=MESSAGES, **row.load)
        _switch(node, "off")
    finally:
        node.stop()
    return sum([int(each) for each in TOTAL.findall(counts.read_text())])


def _switch(node: Tandembus, state: str) -> None:
    subprocess.run(["callgrind_control", "-i", state, str(node.pid)], check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="a folder for what callgrind_annotate reads")
    keep = parser.parse_args().keep
    if shutil.which("valgrind") is None:
        sys.exit("valgrind counts the instructions, and is not installed: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = folder if keep is None else keep
        kept.mkdir(parents=True, exist_ok=True)
        client = LoadClient.build(folder)
        for number, row in enumerate(ROWS):
            found = count(row, client, folder / str(number), kept / f"{row.name.replace(' ', '-')}.callgrind")
            print(f"{row.name}: {found / MESSAGES:,.0f} instructions per message", flush=True)


if __name__ == "__main__":
    main()
