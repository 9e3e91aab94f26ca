"""The commands of the jobs on Spark: mistakes that are told before it starts, and how a job ends."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.cli.failures import FAILED, INTERRUPTED, NOT_FOUND, TRY_LATER, UNREACHABLE, WRONG_USAGE, Failure
from tandembus.cli.spark import NO_SOURCE, SparkTarget, run_to_its_end
from tandembus.cli.spark_master import check_form, require_answer
from tandembus.spark.jobs.streaming import JobFailed
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = "Endpoint=sb://127.0.0.1:9/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


def told(arguments: list[str]) -> str:
    result = CliRunner().invoke(main, ["spark", *arguments])
    assert result.exit_code != 0
    return " ".join(result.output.split())


@covers("D3")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["capture", "orders"], "Missing option '--output'"),
        (["capture", "--output", "x"], "What is to be captured?"),
        (["capture", "--output", "x"], "a topic with --topic: one of them."),
        (["capture", "orders", "--topic", "events", "--output", "x"], "a topic with --topic: not both of them."),
        (["capture", "orders", "--create-subscription", "--output", "x"], "--create-subscription goes with --topic."),
        (["capture", "orders", "--compact", "x", "--output", "y"], "--compact takes what was captured, and no entity."),
    ],
)
def test_a_capture_that_makes_no_sense_is_refused(arguments: list[str], text: str) -> None:
    assert text in told([*arguments, "--connection-string", NOBODY])


@covers("D3")
@pytest.mark.parametrize(
    ("entity", "code", "text"),
    [
        ("nosuch", NOT_FOUND, "'sb://localhost/nosuch' could not be found"),
        ("events", FAILED, "'sb://localhost/events' is a topic: messages are received from its subscriptions"),
    ],
)
def test_what_cannot_be_captured_is_told_before_spark_starts_and_leaves_no_files(
    entity: str, code: int, text: str, tmp_path: Path
) -> None:
    with EmbeddedNamespace(name="contoso") as namespace:
        namespace.create_topic("events")
        arguments = ["--output", str(tmp_path / "archive"), "--connection-string", namespace.connection_string]
        result = CliRunner().invoke(main, ["spark", "capture", entity, *arguments, "--once"])
    assert result.exit_code == code
    assert text in " ".join(result.output.split())
    assert "starting Spark" not in result.output
    assert list(tmp_path.iterdir()) == []


@covers("D2")
def test_a_syphon_needs_a_checkpoint_and_two_namespaces() -> None:
    pytest.importorskip("pyspark")
    assert "Missing option '--checkpoint'" in told(["syphon", "--primary", NOBODY, "--secondary", NOBODY])
    assert "cannot be its own secondary" in told(
        ["syphon", "--primary", NOBODY, "--secondary", NOBODY, "--checkpoint", "x"]
    )


@covers("D2")
def test_a_syphon_without_backlog_queues_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with EmbeddedNamespace(name="contoso") as primary, EmbeddedNamespace(name="secondary") as secondary:
        namespaces = ["--primary", primary.connection_string, "--secondary", secondary.connection_string]
        text = told(["syphon", *namespaces, "--checkpoint", str(tmp_path)])
    assert "There are no backlog queues of 'contoso' on the secondary." in text
    assert "SharedAccessKey" not in text


@covers("D2", "D6")
def test_a_syphon_on_a_cluster_keeps_its_checkpoint_where_all_machines_reach_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    other = NOBODY.replace(":9/", ":10/")
    namespaces = ["--primary", NOBODY, "--secondary", other, "--master", "spark://nobody:7077"]
    result = CliRunner().invoke(main, ["spark", "syphon", *namespaces, "--checkpoint", str(tmp_path)])
    assert result.exit_code == WRONG_USAGE
    assert f"file://{tmp_path.resolve()} if they are at that place on each" in " ".join(result.output.split())


@covers("D6")
@pytest.mark.parametrize("option", [["--master", "MASTER"], ["--conf", "spark.master=MASTER"]])
@pytest.mark.parametrize(
    "master",
    ["bogus", "local[x]", "local[0]", "spark://", "spark://localhost", "spark://a:1;b:2", "k8s://", "sc://a:1"],
)
def test_what_is_no_master_is_told_before_anything_else(master: str, option: list[str]) -> None:
    result = CliRunner().invoke(
        main, ["spark", "usage", "nosuch", *[each.replace("MASTER", master) for each in option]]
    )
    assert result.exit_code == WRONG_USAGE
    assert f"{master!r} is no master of Spark" in " ".join(result.output.split())


@covers("D6")
@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[4]",
        "local[*]",
        "local[*,3]",
        "local-cluster[2, 1, 1024]",
        "spark://one.example:7077,two:7077",
        "spark://[::1]:7077",
        "yarn",
        "k8s://https://kubernetes.default.svc",
    ],
)
def test_every_master_that_spark_knows_is_taken(master: str) -> None:
    assert check_form(master) == master


@covers("D6")
def test_a_master_that_does_not_answer_is_told_without_starting_spark() -> None:
    with pytest.raises(Failure, match="No Spark master answers at spark://localhost:1,") as failure:
        require_answer("spark://localhost:1,127.0.0.1:2")
    assert failure.value.exit_code == UNREACHABLE


@covers("D6")
def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        require_answer(f"spark://localhost:1,127.0.0.1:{master.getsockname()[1]}")


class Started(SparkTarget):
    """With a session that is not asked for anything."""

    def session(self, app_name: str) -> SparkSession:
        return cast("SparkSession", None)


def interrupted(_: SparkSession) -> int:
    raise KeyboardInterrupt


def failing(_: SparkSession) -> int:
    raise JobFailed("the disk is full")


@covers("D2", "D3")
@pytest.mark.parametrize(
    ("job", "once", "code"),
    [
        (lambda _: 0, True, 0),
        (lambda _: TRY_LATER, True, TRY_LATER),
        (interrupted, True, INTERRUPTED),
        (interrupted, False, 0),
    ],
)
def test_a_job_ends_with_the_exit_code_of_what_it_did(
    job: Callable[[SparkSession], int], once: bool, code: int
) -> None:
    told: list[str] = []
    with pytest.raises(SystemExit) as end:
        run_to_its_end(Started(None, (), False), "job", once, job, lambda: told.append("told"), "Again.")
    assert end.value.code == code
    assert told == (["told"] if job is interrupted else [])


@covers("D2", "D3")
def test_a_job_that_failed_says_why_and_what_to_do() -> None:
    with pytest.raises(Failure, match="the disk is full") as failure:
        run_to_its_end(Started(None, (), False), "job", True, failing, lambda: None, "Again.")
    assert (failure.value.exit_code, failure.value.advice) == (FAILED, "Again.")


@covers("D6")
def test_what_spark_refuses_is_told_in_a_sentence() -> None:
    errors = pytest.importorskip("pyspark.errors")

    def refused(text: str) -> Callable[[SparkSession], int]:
        def job(_: SparkSession) -> int:
            raise errors.PySparkException(text)

        return job

    for text, told, advice in (
        ("no such path\nmore", "no such path", "Again."),
        ("[DATA_SOURCE_NOT_FOUND] Failed", "Spark's Python has no tandembus.", NO_SOURCE),
    ):
        with pytest.raises(Failure) as failure:
            run_to_its_end(Started(None, (), False), "job", True, refused(text), lambda: None, "Again.")
        assert (failure.value.message, failure.value.advice) == (told, advice)
