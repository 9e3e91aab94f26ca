"""The usage job on many metering records: `python -m benchmarks.usage_job [--records N]`.

The records are written as the meter writes them, in files of its size, by two namespaces through a month; what the job
adds up must be what was written, to the operation. The CPU time of the job is told, too: other work on the machine
changes that the least.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tandembus.metering.files import MeterSettings, Record, _record_line
from tandembus.metering.slot import Count

RECORDS = 10_000_000
ENTITIES = 250
KINDS = (("send", "normal"), ("receive", "normal"), ("complete", "normal"), ("renew_lock", "normal"))
BACKLOG = "contoso/x-servicebus-transfer/0"
START = 1_793_491_200
"""1 November 2026."""
BLOCK = 1000
"""Records of one second and namespace; written from then on with other figures in the same places."""
BOUND_S = 60.0


def _templates(namespace: str) -> list[tuple[str, str, str]]:
    """What a line has before its second, between that and its figures, and its figures: only the second changes."""
    keys = [(f"orders/region-{number}", *kind) for number in range(ENTITIES) for kind in KINDS]
    if namespace == "backup":
        keys[0] = (BACKLOG, "empty_receive", "longpoll")
    found = []
    for place, (entity, operation, reason) in enumerate(keys[:BLOCK]):
        count = Count(place % 7 + 1, place % 13 + 1, place % 17 + 1, (place % 17 + 1) * 1024)
        before, _, after = _record_line(namespace, Record(1, entity, operation, reason, count)).partition(":1,")
        found.append((before + ":", "," + after, str(count.operations)))
    return found


def write_records(folder: Path, records: int) -> int:
    """Returns how many operations they come to."""
    operations = 0
    roll = MeterSettings().roll_size_bytes
    for namespace in ("contoso", "backup"):
        meter = folder / namespace / "meter"
        meter.mkdir(parents=True)
        templates = _templates(namespace)
        per_block = sum([int(each[2]) for each in templates])
        head = json.dumps({"meter": {"format": 1, "namespace": namespace, "carried": []}}) + "\n"
        number, written, second = 0, 0, START
        step_s = max(30 * 86_400 // max(records // 2 // BLOCK, 1), 1)
        while written < records // 2:
            number += 1
            with (meter / f"{number:08d}.jsonl").open("w", encoding="utf-8") as file:
                size = file.write(head)
                while size < roll and written < records // 2:
                    moment = str(second)
                    size += file.write("".join([before + moment + after for before, after, _ in templates]))
                    written += BLOCK
                    operations += per_block
                    second += step_s
    return operations


def cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_job(folder: str) -> None:
    """In a process of its own: what it says is JSON."""
    from tandembus.metering.bills import PriceBook
    from tandembus.metering.price_files import load_prices
    from tandembus.spark import spark_session
    from tandembus.spark.jobs.usage import UsageOptions, run_usage

    began = time.monotonic()
    spark = spark_session(master="local[2]")
    java = spark.sparkContext._gateway.proc.pid
    started, used_s = time.monotonic(), cpu_s(java) + time.process_time()
    result = run_usage(spark, UsageOptions((f"{folder}/contoso", f"{folder}/backup")))
    bill = result.bill(PriceBook([load_prices()]))
    ended, used_s = time.monotonic(), cpu_s(java) + time.process_time() - used_s
    figures = {
        "start_s": started - began,
        "job_s": ended - started,
        "cpu_s": used_s,
        "operations": bill.operations,
        "records": result.records,
    }
    print(json.dumps({**figures, "lines": len(bill.lines), "cost": f"{bill.cost:.2f}"}))
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        run_job(arguments.folder)
        return
    with tempfile.TemporaryDirectory(prefix="tandembus-usage-") as folder:
        expected = write_records(Path(folder), arguments.records)
        size = sum([file.stat().st_size for file in Path(folder).rglob("*.jsonl")])
        command = [sys.executable, "-m", "benchmarks.usage_job", "--folder", folder]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    told = json.loads(output.splitlines()[-1])
    assert told["operations"] == expected, (told, expected)
    rate = told["records"] / told["job_s"]
    print(
        f"{told['records']:,} records, {size / 2**20:,.0f} MiB: a bill of {told['lines']:,} lines, {told['cost']} USD"
    )
    print(f"job           {told['job_s']:8.1f} s  {rate:,.0f} records/s (bound: {BOUND_S:.0f} s)")
    print(f"its CPU time  {told['cpu_s']:8.1f} s  on two cores at best half of that")
    print(f"Spark starts  {told['start_s']:8.1f} s")
    print(f"operations    {told['operations']:,}: as written")


if __name__ == "__main__":
    main()
