"""One way to start Spark: Java is found, Python workers have our packages, and the settings suit the pipeline."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.errors import SparkUnavailable
from tandembus.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
SHORT_NAMES: Final = {"master": "spark.master", "app_name": "spark.app.name"}
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where `spark-submit` started this program: the Java side runs already and knows its master."""
CONNECTED: Final = frozenset(("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"))
"""Set where this program uses Spark Connect, by the user or by Spark."""
THROUGHPUT: Final = "-XX:+UseParallelGC"
"""Jobs on one machine want to be done soon; the short pauses that Java aims at otherwise cost CPU time."""
OWN_DEFAULTS: Final = frozenset(("SPARK_HOME", "SPARK_CONF_DIR"))
"""Where one of these is set, there may be a spark-defaults.conf, whose options for Java stay as they are."""
TASK_PIECE_BYTES: Final = 16 * 1024 * 1024
"""What Spark hands a Python task in one piece, at most: rows may be large."""
SECRET_OPTIONS: Final = "(?i)url|connection|password|secret|token|key"


def spark_session(**conf: object) -> SparkSession:
    """The Spark session of this process, started if there is none: `spark_session(master="local[2]")`.

    Names are Spark's own (`**{"spark.executor.memory": "4g"}`) or `master` and `app_name`. The default master is all
    cores of this machine. `SparkUnavailable` if Spark or Java is missing. With Spark Connect (`SPARK_REMOTE`, or a
    session that was connected before) it is the Connect session: the data source has to be installed on that server.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkUnavailable("Spark is not installed: `pip install 'tandembus[spark]'` installs it") from None
    wanted = _spark_names(conf)
    if is_connect(wanted):
        return SparkSession.builder.config(map={"spark.sql.session.timeZone": "UTC", **wanted}).getOrCreate()
    prepare_environment(wanted.get("spark.master"))
    builder = SparkSession.builder
    for name, value in {**default_settings(wanted.get("spark.master")), **wanted}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if "spark.log.level" not in wanted:
        session.sparkContext.setLogLevel("ERROR")
    return session


def is_connect(wanted: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> bool:
    """Whether Spark runs elsewhere and is talked to over Spark Connect: there is no Java here to prepare."""
    mode = wanted.get("spark.api.mode", environment.get("SPARK_API_MODE", ""))
    return "spark.remote" in wanted or not CONNECTED.isdisjoint(environment) or mode.lower() == "connect"


def prepare_environment(master: str | None = None, environment: MutableMapping[str, str] = os.environ) -> None:
    """What must be true before Spark's Java side starts."""
    if SUBMITTED not in environment:
        ensure_java(environment)
    # Otherwise workers take whatever `python3` is first on the PATH.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_local(master, environment):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def default_settings(master: str | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What holds unless the caller says otherwise."""
    settings = {
        "spark.app.name": "tandembus",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.redaction.options.regex": SECRET_OPTIONS,
        "spark.sql.execution.arrow.maxBytesPerBatch": str(TASK_PIECE_BYTES),
    }
    if master is None and SUBMITTED not in environment:
        settings["spark.master"] = DEFAULT_MASTER
    if _is_local(master, environment):
        settings["spark.sql.shuffle.partitions"] = str(_local_cores(master or DEFAULT_MASTER))
        if OWN_DEFAULTS.isdisjoint(environment):
            settings["spark.driver.extraJavaOptions"] = THROUGHPUT
    return settings


def _is_local(master: str | None, environment: Mapping[str, str]) -> bool:
    """What `spark-submit` was told is not known here, and need not be local."""
    if master is None:
        return SUBMITTED not in environment
    return master.startswith("local")


def _local_cores(master: str) -> int:
    """The cores of `local[N]`; a batch of messages is small, and more parts than cores only cost time."""
    count = master.partition("[")[2].rstrip("]").partition(",")[0]
    if count.isdigit():
        return max(1, int(count))
    return (os.cpu_count() or 1) if count == "*" else 1


def _spark_names(conf: dict[str, object]) -> dict[str, str]:
    named: dict[str, str] = {}
    for name, value in conf.items():
        full = SHORT_NAMES.get(name, name)
        if not full.startswith("spark."):
            raise InvalidArgument(f"{name!r} is no setting of Spark: their names begin with 'spark.'")
        named[full] = str(value).lower() if isinstance(value, bool) else str(value)
    return named
