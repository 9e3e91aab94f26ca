"""What docs/spark.md shows runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tandembus.testing import EmbeddedNamespace
from tests.covers import covers
from tests.unit.spark.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parent.parent.parent / "docs" / "spark.md"


@covers("D1")
def test_the_examples_of_the_guide_run_as_they_are_written(
    spark: SparkSession, namespace: EmbeddedNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(namespace, "orders")
    stage.create()
    namespace.create_queue("copies", requires_duplicate_detection=True)
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(example.replace("/tmp/copier", str(tmp_path)), names)
    assert "partition_key" in capsys.readouterr().out
    assert stage.peek() == []
    assert {message.message_id for message in stage.peek("copies")} == {f"o{n}" for n in range(1000)}
