"""What a Spark session is started with."""

from __future__ import annotations

import sys

import pytest

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
