"""Every code block of the README and the documents is run, read, or said to be neither, with a reason."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.guides.blocks import ROOT, Block, Order, blocks_of, without_fences
from tests.guides.stages import stage_of
from tests.guides.story import JS, telling

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RUN = ("sh", "python", "js", "console")
READ = ("json", "toml")
SHOWN = ("text", "yaml")
"""Diagrams, what a program prints, and files of other programs."""
ELSEWHERE = {
    "docs/faults.md": "tests/integration/test_fault_guide.py",
    "docs/pairing.md": "tests/integration/test_pairing_guide.py",
    "docs/transactions.md": "tests/integration/test_transactions_document.py",
    "docs/testing.md": "tests/integration/test_pytest_plugin.py",
    "docs/spark.md": "tests/spark/test_guide.py",
    "docs/spark-jobs.md": "tests/spark/test_guide.py",
    "docs/usage.md": "tests/spark/test_guide.py",
    "docs/reconciliation.md": "tests/spark/test_guide.py",
}
"""Documents that other tests run: with Spark, with pytest itself, or line by line."""
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/guides/*.md"))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def to_run(path: Path) -> list[Block]:
    return [block for block in blocks_of(path) if block.language in RUN and block.order is not Order.LEAVE]


STORIES = [path for path in DOCUMENTS if name_of(path) not in ELSEWHERE and to_run(path)]


@pytest.mark.parametrize("path", STORIES, ids=name_of)
def test_a_document_works_for_whoever_pastes_it(path: Path, tmp_path: Path) -> None:
    blocks = to_run(path)
    if any(block.language == "js" for block in blocks) and not (JS / "node_modules" / "ws").exists():
        pytest.skip("a block needs the JavaScript SDK, which is not installed")
    with stage_of(name_of(path), tmp_path) as stage, telling(tmp_path, stage) as story:
        for block in blocks:
            story.run(block)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_block_says_what_it_is(path: Path) -> None:
    assert [str(block) for block in blocks_of(path) if block.language not in (*RUN, *READ, *SHOWN)] == []
    indented = re.findall(r"(?:^|\n\n)(?: {4}|\t)(?! *[-*\d])(.*)", without_fences(path.read_text()))
    assert indented == [], "code belongs into fences, where it can be found"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_what_is_meant_for_machines_can_be_read(path: Path) -> None:
    for block in blocks_of(path):
        if block.order is Order.LEAVE:
            continue
        if block.language == "json":
            json.loads(block.text)
        if block.language == "toml":
            tomllib.loads(block.text)


@pytest.mark.parametrize(("document", "test"), ELSEWHERE.items())
def test_a_document_that_is_run_elsewhere_is_run_there(document: str, test: str) -> None:
    assert Path(document).name in (ROOT / test).read_text()
