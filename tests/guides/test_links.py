"""Links between documents lead somewhere: to a file that is there, and a heading that is in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.guides.blocks import ROOT, without_fences

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("benchmarks/**/*.md"))]
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_CODE = re.compile(r"`[^`\n]*`")
_ELSEWHERE = re.compile(r"[a-z]+:")


def links_of(document: Path) -> list[str]:
    text = _CODE.sub("", without_fences(document.read_text()))
    return [link for link in _LINK.findall(text) if not _ELSEWHERE.match(link)]


@cache
def anchors_of(document: Path) -> frozenset[str]:
    """As GitHub and the site make them of headings."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.*?) *$", without_fences(document.read_text()), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.append(anchor if anchor not in found else f"{anchor}-{found.count(anchor)}")
    return frozenset(found)


def is_there(document: Path, link: str) -> bool:
    path, _, anchor = unquote(link).partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.exists() or ROOT not in (target, *target.parents):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors_of(target))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    assert [link for link in links_of(document) if not is_there(document, link)] == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    readme = ROOT / "README.md"
    assert is_there(readme, "docs/pairing.md#the-syphon")
    for link in ("docs/none.md", "docs/pairing.md#none", "#none", "../outside.md", "LICENSE#none"):
        assert not is_there(readme, link)


def test_every_decision_is_in_their_list() -> None:
    folder = ROOT / "docs" / "decisions"
    assert links_of(folder / "README.md") == [path.name for path in sorted(folder.glob("0*.md"))]


def test_every_picture_is_shown_and_small() -> None:
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    shown = {(document.parent / link).resolve() for document in DOCUMENTS for link in links_of(document)}
    assert [picture.name for picture in pictures if picture not in shown] == []
    assert sum(picture.stat().st_size for picture in pictures) < 600_000
