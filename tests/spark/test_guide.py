"""What docs/spark.md, spark-jobs.md, usage.md and reconciliation.md show runs as it is written."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tandembus.cli import main
from tandembus.client import connect
from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.guides.blocks import Block, Order, blocks_of
from tests.integration.serving import serving
from tests.integration.syphons import wait_until
from tests.unit.spark.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENTS = Path(__file__).parents[2] / "docs"


def blocks(name: str, language: str) -> list[Block]:
    found = [block for block in blocks_of(DOCUMENTS / name) if block.language == language]
    assert found
    return found


async def open_owner(namespace: EmbeddedNamespace, entity: str, owner: str) -> None:
    async with await connect(namespace.connection_string) as bus:
        await (await bus.reservations(entity)).open_owner(owner)


def run_commands(blocks: list[Block], folder: Path) -> None:
    """In this process, which has a Spark session already; what runs until Ctrl-C does its work once."""
    for block in blocks:
        for line in block.text.splitlines():
            text = re.sub("/archive|/var/lib|/tmp(?=/copier)", str(folder), line)
            words = shlex.split(os.path.expandvars(text), comments=True)
            if words[:1] != ["tandembus"] or words[1] in ("serve", "up"):
                continue
            once = ["--once"] if block.order is Order.KEEP_RUNNING else []
            result = CliRunner().invoke(main, [*words[1:], *once])
            assert result.exit_code == 0, f"{block}: {line}\n{result.output}"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedNamespace]:
    """A pair in this process; returns its primary."""
    monkeypatch.chdir(tmp_path)
    with EmbeddedNamespace(name="primary") as primary, EmbeddedNamespace(name="secondary") as secondary:
        monkeypatch.setenv("TANDEMBUS_CONNECTION_STRING", primary.connection_string)
        monkeypatch.setenv("PRIMARY", primary.connection_string)
        monkeypatch.setenv("SECONDARY", secondary.connection_string)
        secondary.create_queue("primary/x-servicebus-transfer/0")
        yield primary


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the data of a pair is that keeps records, under the names that the documents use."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as running:
        for side, data in (("primary", "tandembus-data"), ("secondary", "tandembus-data-secondary")):
            namespace = running.enter_context(serving(tmp_path / data, "--name", side, "--audit"))
            (tmp_path / f"{side}-data").symlink_to(tmp_path / data)
            monkeypatch.setenv(f"TANDEMBUS_{side.upper()}", namespace.connection_string)
            runner = CliRunner(env={"TANDEMBUS_CONNECTION_STRING": namespace.connection_string})
            assert runner.invoke(main, ["queue", "create", "orders"]).exit_code == 0
            assert runner.invoke(main, ["send", "orders", "hello"]).exit_code == 0
        prices = CliRunner().invoke(main, ["cost", "--show-prices", "us"]).stdout
        (tmp_path / "ours.toml").write_text(re.sub("(?m)^as_of = .*", "as_of = 2026-12-01", prices))
        wait_until(lambda: len(list(tmp_path.glob("tandembus-data*/audit/store-0/*.jsonl"))) == 2)
        yield tmp_path


@covers("D1")
def test_the_examples_of_the_guide_run_as_they_are_written(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(namespace, "orders")
    stage.create()
    namespace.create_queue("copies", requires_duplicate_detection=True)
    names: dict[str, object] = {}
    for example in blocks("spark.md", "python"):
        exec(example.text.replace("/tmp/copier", str(tmp_path)), names)
    assert "partition_key" in capsys.readouterr().out
    assert stage.peek() == []
    assert {message.message_id for message in stage.peek("copies")} == {"by hand", *(f"o{n}" for n in range(1000))}
    spark.sql("drop table orders_table")


@covers("D1")
def test_the_commands_of_the_guide_run_as_they_are_written(pair: EmbeddedNamespace, tmp_path: Path) -> None:
    start, release = [block for block in blocks("spark.md", "sh") if block.order is Order.RUN]
    run_commands([start], tmp_path)
    asyncio.run(open_owner(pair, "orders", "copier"))
    (tmp_path / "copier" / "offsets").mkdir(parents=True)
    run_commands([release], tmp_path)


@covers("D3")
def test_the_jobs_run_as_they_are_written(spark: SparkSession, pair: EmbeddedNamespace, tmp_path: Path) -> None:
    pair.create_topic("orders")
    run_commands(blocks("spark-jobs.md", "sh"), tmp_path)
    assert list(tmp_path.glob("orders/_checkpoint"))


def test_the_bill_is_made_as_it_is_written(
    spark: SparkSession, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = CliRunner().invoke(main, ["spark", "reconcile", "tandembus-data", "tandembus-data-secondary", "--json"])
    (folders / "reconciled.json").write_text(answer.stdout)
    run_commands(blocks("usage.md", "sh"), folders)
    for example in blocks("usage.md", "python"):
        exec(example.text, {})
    assert len(capsys.readouterr().out.split()) == 2


def test_the_records_of_a_pair_are_reconciled_as_it_is_written(spark: SparkSession, folders: Path) -> None:
    run_commands(blocks("reconciliation.md", "sh"), folders)
