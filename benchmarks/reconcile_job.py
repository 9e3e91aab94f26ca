"""The reconciliation of many messages: `python -m benchmarks.reconcile_job [--messages N] [--commit N]`.

The records are as two namespaces write them: of ten messages one takes the backlog of the secondary and comes home.
Some are lost on that way, some come twice, some are settled that nobody sent: the job must find these and no others.
The CPU time of the job is told, too: other work on the machine changes that the least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.usage_job import cpu_s

MESSAGES = 1_000_000
COMMIT = 20
"""Messages of one commit; each commit also completes those of the one before."""
START_MS = 1_793_491_200_000
"""1 November 2026."""
FILE_BYTES = 16 << 20
ENTITIES = 20
SESSIONS = 1000
FAULTS = 25
"""Of each kind."""
BOUND_S = 60.0


class Store:
    """Writes the audit of one store."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self._folder = folder / namespace / "audit" / "store-0"
        self._folder.mkdir(parents=True)
        self._head = f'{{"audit":2,"namespace":"{namespace}","store":"{namespace.encode().hex()}","number":'
        self._lines: list[str] = []
        self._size = self._files = 0
        self.number = 0
        self._mark('"stream","index":0,"stores":1,"trimmed":0')

    def _mark(self, kind: str) -> None:
        self._lines.append(f'{self._head}{self.number},"kind":{kind}}}\n')

    def commit(self, at_ms: int, parts: list[dict[str, object]]) -> None:
        self.number += 1
        for part, columns in enumerate(parts):
            place = f'{self.number},"part":{part},"parts":{len(parts)},"at":{at_ms},"epoch":1,'
            line = f"{self._head}{place}{json.dumps(columns, separators=(',', ':'))[1:]}\n"
            self._lines.append(line)
            self._size += len(line)
        if self._size >= FILE_BYTES:
            self.flush()

    def stop(self) -> None:
        self._mark('"ended"')
        self.flush()

    def flush(self) -> None:
        self._files += 1
        (self._folder / f"{self._files:08d}.jsonl").write_text("".join(self._lines))
        self._lines, self._size = [], 0


def _line(kind: str, entity: str, fragment: int, numbers: list[int], **columns: list[str]) -> dict[str, object]:
    where: dict[str, object] = {"kind": kind, "fragment": fragment, "lane": 0, "entity": entity, "numbers": numbers}
    return {**where, **columns}


def write_records(folder: Path, messages: int, commit: int) -> None:
    primary, secondary = Store(folder, "contoso"), Store(folder, "fabrikam")
    backlog = "contoso/x-servicebus-transfer/0"
    next_number = [1] * (ENTITIES + 1)
    waiting: list[list[dict[str, object]]] = [[] for _ in range(ENTITIES)]
    faults = 0
    for turn in range(messages // commit):
        at_ms = START_MS + 20 * turn
        index = turn % ENTITIES
        entity, fragment = f"orders/region-{index}", index + 1
        ids = [f"{turn:08x}-{place:04x}-4a5b-8c6d-7e8f9a0b1c2d" for place in range(commit)]
        sessions = [f"s{(turn + place) % SESSIONS}" for place in range(commit)]
        home = ids
        if turn % 10 == 9:
            there = list(range(next_number[-1], next_number[-1] + commit))
            next_number[-1] += commit
            paths = [entity] * commit
            secondary.commit(at_ms, [_line("accepted", backlog, 1, there, ids=ids, sessions=sessions, paths=paths)])
            secondary.commit(at_ms + 10, [_line("completed", backlog, 1, there)])
            if faults < FAULTS:  # one is lost, and another comes twice
                home = [*ids[1:-1], ids[-1], ids[-1]]
                faults += 1
        numbers = list(range(next_number[index], next_number[index] + len(home)))
        next_number[index] += len(home)
        columns = {"ids": home, "sessions": sessions[: len(home)]} if index == 0 else {"ids": home}
        primary.commit(at_ms + 5, [_line("accepted", entity, fragment, numbers, **columns), *waiting[index]])
        waiting[index] = [_line("completed", entity, fragment, numbers)]
    for index, lines in enumerate(waiting):
        extra = [1 << 40 | index] if index < FAULTS else []
        phantoms = [_line("completed", f"orders/region-{index}", index + 1, extra)] if extra else []
        if lines or phantoms:
            primary.commit(at_ms + 1000, [*lines, *phantoms])
    primary.stop()
    secondary.stop()


def run_job(folder: str) -> None:
    """In a process of its own: what it says is JSON."""
    from tandembus.spark import spark_session
    from tandembus.spark.jobs.reconcile import ReconcileOptions, run_reconcile

    began = time.monotonic()
    spark = spark_session(master="local[2]")
    java = spark.sparkContext._gateway.proc.pid
    started, used_s = time.monotonic(), cpu_s(java) + time.process_time()
    result = run_reconcile(spark, ReconcileOptions((f"{folder}/contoso", f"{folder}/fabrikam")))
    ended, used_s = time.monotonic(), cpu_s(java) + time.process_time() - used_s
    figures = {name: result.total(name) for name in ("accepted", "settled", "lost", "phantom", "duplicate", "unjudged")}
    told = {"start_s": started - began, "job_s": ended - started, "cpu_s": used_s, "figures": figures}
    print(json.dumps({**told, "is_balanced": all(one["is_balanced"] for one in result.entities)}))
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--commit", type=int, default=COMMIT)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        run_job(arguments.folder)
        return
    with tempfile.TemporaryDirectory(prefix="tandembus-reconcile-") as folder:
        write_records(Path(folder), arguments.messages, arguments.commit)
        size = sum([file.stat().st_size for file in Path(folder).rglob("*.jsonl")])
        command = [sys.executable, "-m", "benchmarks.reconcile_job", "--folder", folder]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    told = json.loads(output.splitlines()[-1])
    accepted = arguments.messages // arguments.commit * arguments.commit
    faults = min(FAULTS, accepted // arguments.commit // 10)
    planted = {"lost": faults, "duplicate": faults, "phantom": min(FAULTS, ENTITIES), "unjudged": 0}
    expected = {"accepted": accepted, "settled": accepted - faults, **planted}
    assert told["figures"] == expected, (told, expected)
    assert told["is_balanced"]
    rate = accepted / told["job_s"]
    print(f"{accepted:,} messages, commits of {arguments.commit}, {size / 2**20:,.0f} MiB: found what was planted")
    print(f"job           {told['job_s']:8.1f} s  {rate:,.0f} messages/s (bound for a million: {BOUND_S:.0f} s)")
    print(f"its CPU time  {told['cpu_s']:8.1f} s  on two cores at best half of that")
    print(f"Spark starts  {told['start_s']:8.1f} s")


if __name__ == "__main__":
    main()
