"""How tests start Spark quickly."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tandembus.spark import spark_session
from tandembus.spark.java import ensure_java

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".build" / "spark"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LONGEST_S = 600.0


def class_archive() -> Path:
    """Java's classes as they are in memory, kept from one run to the next: Java then starts in half the time. A damaged
    one is ignored by Java."""
    import pyspark

    version = subprocess.run([str(ensure_java()), "-version"], capture_output=True, check=True).stderr
    return CACHE / f"classes-{hashlib.sha256(version + pyspark.__version__.encode()).hexdigest()[:16]}.jsa"


def keep_classes() -> None:
    """To be called before the tests: a Java of its own makes the archive, all others have it. Without it they take
    longer."""
    archive = class_archive()
    if archive.exists():
        return
    print("starting Java once for an archive of its classes", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [sys.executable, "-c", "from tests.spark.starting import train; train()"]
        search = os.pathsep.join([str(ROOT), *map(os.path.abspath, filter(None, sys.path))])
        environment = {**os.environ, "PYTHONPATH": search, "SPARK_LOCAL_DIRS": folder}
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=LONGEST_S)
        (Path(folder) / "classes.jsa").rename(archive)


def train() -> None:
    """What most tests use, done once in the current folder; Java writes down at its end what it needed for that."""
    spark = spark_session(
        master="local[2]",
        **settings_with(f"{QUICK} -XX:ArchiveClassesAtExit={Path.cwd() / 'classes.jsa'} -Xshare:auto -Xlog:disable"),
        **{"spark.sql.warehouse.dir": "warehouse"},
    )
    rows = spark.createDataFrame([(1, "a")], "n long, t string").mapInArrow(lambda batches: batches, "n long, t string")
    rows.write.parquet("rows")
    found = spark.read.parquet("rows")
    found.groupBy("t").agg({"n": "sum"}).join(found, "t", "full_outer").orderBy("n").collect()
    stream = spark.readStream.schema("n long, t string").parquet("rows").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
    assert stream.start("copies").awaitTermination(LONGEST_S)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    spark.stop()
    gateway.shutdown()
    java.stdin.close()
    java.wait(LONGEST_S)


def settings_with(options: str) -> dict[str, object]:
    return {
        "spark.sql.shuffle.partitions": 1,
        "spark.sql.adaptive.enabled": False,
        "spark.driver.extraJavaOptions": options,
    }


def quick_java() -> str:
    """Options of a Java that lives for a minute: it starts sooner, and leaves the cores to others."""
    archive = class_archive()
    return f"{QUICK} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:disable" if archive.exists() else QUICK


def quick_settings() -> dict[str, object]:
    """Of a driver, and of executors where there are some."""
    options = quick_java()
    return {**settings_with(options), "spark.executor.extraJavaOptions": options}
