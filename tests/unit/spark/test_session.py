"""What a Spark session is started with."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.errors import InvalidArgument
from tandembus.spark import spark_session
from tandembus.spark.session import default_settings, prepare_environment

pytest.importorskip("pyspark")


def test_a_name_that_is_no_setting_of_spark_is_refused_before_anything_starts() -> None:
    with pytest.raises(InvalidArgument, match=r"begin with 'spark\.'"):
        spark_session(executor_memory="4g")


@pytest.mark.parametrize(("master", "count"), [("local", "1"), ("local[3]", "3"), ("local[2,4]", "2")])
def test_a_local_session_shuffles_into_as_many_parts_as_it_has_cores(master: str, count: str) -> None:
    assert default_settings(master)["spark.sql.shuffle.partitions"] == count


def test_a_cluster_keeps_its_own_number_of_parts_and_its_own_addresses() -> None:
    environment = {"PYSPARK_GATEWAY_PORT": "1"}
    prepare_environment("spark://host:7077", environment)
    assert "spark.sql.shuffle.partitions" not in default_settings("spark://host:7077")
    assert "SPARK_LOCAL_IP" not in environment
    assert environment["PYSPARK_PYTHON"] == sys.executable


def test_what_was_submitted_without_naming_a_master_here_is_not_taken_for_local() -> None:
    environment = {"PYSPARK_GATEWAY_PORT": "1"}
    prepare_environment(None, environment)
    assert "SPARK_LOCAL_IP" not in environment
    settings = default_settings(None, environment)
    assert {"spark.master", "spark.sql.shuffle.partitions", "spark.driver.extraJavaOptions"}.isdisjoint(settings)
    assert default_settings(None, {})["spark.master"] == "local[*]"


def test_options_for_java_in_defaults_of_the_users_own_stay() -> None:
    assert "spark.driver.extraJavaOptions" in default_settings("local[2]", {})
    assert "spark.driver.extraJavaOptions" not in default_settings("local[2]", {"SPARK_CONF_DIR": "/etc/spark"})


def test_what_the_user_has_set_stays() -> None:
    environment = {"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_PYTHON": "/opt/python", "SPARK_LOCAL_IP": "10.0.0.1"}
    prepare_environment("local[2]", environment)
    assert environment["PYSPARK_PYTHON"] == "/opt/python"
    assert environment["SPARK_LOCAL_IP"] == "10.0.0.1"


class ConnectSession:
    """Has nothing of Java, as a session of Spark Connect."""


class ConnectBuilder:
    """Stands in for Spark's own, which needs packages that only Spark Connect uses."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def config(self, *, map: dict[str, str]) -> ConnectBuilder:
        self.given = map
        return self

    def getOrCreate(self) -> ConnectSession:  # noqa: N802
        return ConnectSession()


def test_with_spark_connect_the_session_is_that_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ConnectBuilder()
    module = ModuleType("pyspark.sql.connect.session")
    module.SparkSession = type("SparkSession", (), {"builder": builder})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert isinstance(spark_session(app_name="orders"), ConnectSession)
    assert builder.given.keys() == {"spark.app.name", "spark.sql.session.timeZone", "spark.remote"}


def test_a_job_says_that_it_does_not_run_over_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example")
    result = CliRunner().invoke(main, ["spark", "capture", "--compact", "x", "--output", "y"])
    assert result.exit_code == 1
    assert "The jobs do not run over Spark Connect." in result.stderr
    assert "Unset SPARK_REMOTE" in result.stderr
