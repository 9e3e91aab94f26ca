"""How tests start Spark quickly."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tandembus.spark.java import ensure_java

CACHE = Path(__file__).parent.parent.parent / ".build" / "spark"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def class_archive_option() -> str:
    """Java's classes as they are in memory, kept from one run to the next: a session then starts in half the time.

    The first run leaves the archive behind when its Java ends. A damaged one is ignored by Java.
    """
    import pyspark

    version = subprocess.run([str(ensure_java()), "-version"], capture_output=True, check=True).stderr
    key = hashlib.sha256(version + pyspark.__version__.encode()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"classes-{key}.jsa"
    return f"-XX:SharedArchiveFile={archive}" if archive.exists() else f"-XX:ArchiveClassesAtExit={archive}"


def quick_settings() -> dict[str, object]:
    return {
        "spark.sql.shuffle.partitions": 1,
        "spark.sql.adaptive.enabled": False,
        "spark.driver.extraJavaOptions": f"{QUICK} {class_archive_option()} -Xshare:auto -Xlog:disable",
    }
