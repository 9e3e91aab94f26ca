"""Every code block of the README and the documents is run, read, or said to be neither, with a reason."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.guides.blocks import ROOT, Block, Order, blocks_of, without_fences
from tests.guides.stages import stage_of
from tests.guides.story import FILES, JS, telling

RUN = ("sh", "python", "js", "console", *FILES)
READ = ("json", "toml")
SHOWN = ("text", "yaml", "csharp")
"""Diagrams, what a program prints, files of other programs, and a language whose tools cannot be had here."""
ELSEWHERE = {
    "docs/faults.md": "tests/integration/test_fault_guide.py",
    "docs/pairing.md": "tests/integration/test_pairing_guide.py",
    "docs/transactions.md": "tests/integration/test_transactions_document.py",
    "docs/testing.md": "tests/integration/test_pytest_plugin.py",
    "docs/spark.md": "tests/spark/test_guide.py",
    "docs/spark-jobs.md": "tests/spark/test_guide.py",
    "docs/usage.md": "tests/spark/test_guide.py",
    "docs/reconciliation.md": "tests/spark/test_guide.py",
    "docs/quickstart/java.md": "tests/sdk/java/test_java.py",
    "docs/quickstart/go.md": "tests/sdk/go/test_go.py",
}
"""Documents that other tests run: with Spark, with pytest itself, or line by line."""
FOLDERS = ("docs", "docs/guides", "docs/quickstart")
DOCUMENTS = [ROOT / "README.md", *(path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md")))]


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
    if any(re.search(r"\bcurl ", block.text) for block in blocks) and shutil.which("curl") is None:
        pytest.skip("a block needs curl, which is not installed")
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
