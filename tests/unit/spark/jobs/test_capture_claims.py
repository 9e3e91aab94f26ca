"""An output belongs to one capture, and its batches to one course of a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.capture import NOTE, QUERY, SINK_LOG, CaptureOptions, claim_output
from tandembus.spark.jobs.hadoop_files import Folder
from tandembus.spark.source.offsets import newest
from tests.covers import covers

CONNECTION = "Endpoint=sb://contoso.example;SharedAccessKeyName=listen;SharedAccessKey=c2VjcmV0"


class LocalFolder:
    """As Spark's, without Java."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def names(self, name: str = "") -> list[str]:
        folder = self._path / name
        return [each.name for each in folder.iterdir()] if folder.exists() else []

    def read(self, name: str) -> str | None:
        file = self._path / name
        return file.read_text() if file.exists() else None

    def write(self, name: str, text: str) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        (self._path / name).write_text(text)


def claim(options: CaptureOptions) -> None:
    output, checkpoint = LocalFolder(options.output), LocalFolder(options.checkpoint)
    claim_output(cast(Folder, output), cast(Folder, checkpoint), options)


def log_batches(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


@pytest.fixture
def options(tmp_path: Path) -> CaptureOptions:
    return CaptureOptions(CONNECTION, "Orders", str(tmp_path / "output"), str(tmp_path / "checkpoint"))


@covers("D3")
def test_an_output_has_its_owner_before_the_first_batch(options: CaptureOptions) -> None:
    claim(options)
    first = Path(options.output, NOTE).read_text()
    assert "c2VjcmV0" not in first
    claim(options)
    assert Path(options.output, NOTE).read_text() == first
    with pytest.raises(InvalidArgument, match=r"another capture wrote \('orders' of contoso.example\)"):
        claim(replace(options, entity="invoices"))
    with pytest.raises(InvalidArgument, match=r"another capture wrote \('orders' of contoso.example\)"):
        claim(replace(options, checkpoint=f"{options.checkpoint}-2"))
    assert not Path(f"{options.checkpoint}-2").exists()


@covers("D3")
def test_an_owner_that_was_killed_before_it_wrote_its_name_goes_on(options: CaptureOptions) -> None:
    claim(options)
    Path(options.output, NOTE).unlink()
    claim(options)
    assert Path(options.output, NOTE).exists()


@covers("D3")
def test_an_output_that_has_batches_is_not_given_to_a_checkpoint_without_any(options: CaptureOptions) -> None:
    log_batches(Path(options.output, SINK_LOG), "0")
    with pytest.raises(InvalidArgument, match="was captured with another checkpoint"):
        claim(options)


@covers("D3")
@pytest.mark.parametrize(
    ("written", "planned", "committed", "refusal"),
    [
        (3, 3, 3, None),
        (3, 3, 2, None),
        (2, 3, 2, None),
        (3, 2, 2, "is older than .* batch 3 where the checkpoint ends with 2"),
        (0, -1, -1, "is older than"),
        (2, 3, 3, "has written batch 3, and .* ends with 2"),
        (-1, 3, 3, "has written batch 3"),
    ],
)
def test_an_output_and_a_checkpoint_of_different_times_are_refused(
    options: CaptureOptions, written: int, planned: int, committed: int, refusal: str | None
) -> None:
    claim(options)
    places = (Path(options.output, SINK_LOG), Path(options.checkpoint, "offsets"), Path(options.checkpoint, "commits"))
    for folder, last in zip(places, (written, planned, committed), strict=True):
        log_batches(folder, *map(str, range(last + 1)))
    if refusal is None:
        claim(options)
        return
    with pytest.raises(InvalidArgument, match=refusal):
        claim(options)


def test_the_newest_batch_is_found_among_what_else_is_in_a_log() -> None:
    assert newest(["9.compact", ".10.crc", "8", "10", ".11.a-b.tmp"]) == 10
    assert newest(["18", "19.compact"]) == 19
    assert newest([]) == -1


@covers("D3")
@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}'])
@pytest.mark.parametrize("is_note", [True, False])
def test_a_damaged_claim_is_told_and_nothing_is_written(options: CaptureOptions, damage: str, is_note: bool) -> None:
    claim(options)
    damaged = Path(options.output, NOTE) if is_note else Path(options.checkpoint, QUERY)
    damaged.write_text(damage)
    with pytest.raises(InvalidArgument, match=f"{damaged.name} is damaged"):
        claim(options)
    assert damaged.read_text() == damage
