"""Every code block of the README and the documents is run, read, or said to be neither, with a reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.guides.blocks import ROOT, Block, Order, blocks_of
from tests.guides.story import telling

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RUN = ("sh", "python", "js")
READ = ("json", "toml", "yaml")
PICTURES = ("text", "")
"""Diagrams, and what a program prints."""
ELSEWHERE = {
    "docs/faults.md": "tests/integration/test_fault_guide.py",
    "docs/pairing.md": "tests/integration/test_pairing_guide.py",
    "docs/transactions.md": "tests/integration/test_transactions_document.py",
    "docs/spark.md": "tests/spark/test_guide.py",
    "docs/testing.md": "tests/integration/test_pytest_plugin.py",
}
"""Documents that other tests run, since they need more than a shell."""
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/guides/*.md"))]
STORIES = [path for path in DOCUMENTS if str(path.relative_to(ROOT)) not in ELSEWHERE]


def runs(path: Path) -> list[Block]:
    return [block for block in blocks_of(path) if block.language in RUN and block.order is not Order.NO]


@pytest.mark.parametrize("path", [path for path in STORIES if runs(path)], ids=lambda path: path.stem)
def test_a_guide_works_for_whoever_pastes_it(path: Path, tmp_path: Path) -> None:
    with telling(tmp_path) as story:
        for block in runs(path):
            story.run(block)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_every_block_says_what_it_is(path: Path) -> None:
    known = {*RUN, *READ, *PICTURES, "console"}
    assert [str(block) for block in blocks_of(path) if block.language not in known] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_what_is_meant_for_machines_can_be_read(path: Path) -> None:
    for block in blocks_of(path):
        if block.language == "json" and block.order is Order.RUN:
            json.loads(block.text)
        if block.language == "toml" and block.order is Order.RUN:
            tomllib.loads(block.text)


@pytest.mark.parametrize(("document", "test"), ELSEWHERE.items())
def test_a_document_that_is_run_elsewhere_is_run_there(document: str, test: str) -> None:
    assert Path(document).name in (ROOT / test).read_text()
