"""`tandembus backup`, `restore` and `check`: copies of data folders, and whether their records are sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from tandembus.cli.failures import EXISTS_ALREADY, FAILED, NOT_FOUND, TRY_LATER, Failure
from tandembus.cli.output import (
    ProgressLine,
    Size,
    counted,
    moment_text,
    print_json,
    print_table,
    say,
    size_words,
)
from tandembus.cli.target import DEFAULT_FOLDER, data_option, json_option
from tandembus.clock import SystemClock
from tandembus.errors import StoreDamaged, StoreUnavailable
from tandembus.node.upkeep.backup import DestinationExists, NoNamespace, make_backup
from tandembus.node.upkeep.check import Part, check_folder
from tandembus.node.upkeep.folders import environments_of
from tandembus.node.upkeep.manifest import MANIFEST_FILE, BackupError, Manifest
from tandembus.node.upkeep.restore import NotEmpty, restore_backup

HEADINGS: Final = ("part", "state", "messages", "records", "size", "epoch", "put aside")
SHOWN: Final = 20
"""Findings of a part that people are shown; `--json` has more."""
FAILURES: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (DestinationExists, EXISTS_ALREADY, "Name a folder that does not exist yet."),
    (NotEmpty, EXISTS_ALREADY, "Name a new or an empty folder with --data."),
    (NoNamespace, NOT_FOUND, "--data names another folder."),
    (BackupError, FAILED, ""),
    (StoreDamaged, FAILED, "`tandembus check` shows what is wrong; restore a backup that is sound."),
    (StoreUnavailable, TRY_LATER, ""),
)
KINDS: Final[dict[type[Exception], str]] = {NoNamespace: "NamespaceNotFound", BackupError: "BackupError"}


@contextmanager
def progress_of(label: str) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Shows how many bytes are done, once the total is known, and turns failures into those of the command line."""
    with ProgressLine(label, shown=size_words) as progress:

        def begin(total: int) -> Callable[[int], None]:
            progress.total = total
            return progress.advance

        try:
            yield begin
        except tuple([kind for kind, _, _ in FAILURES]) as error:
            kind, code, advice = next(each for each in FAILURES if isinstance(error, each[0]))
            raise Failure(str(error), code, advice, KINDS.get(kind, kind.__name__)) from None


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@data_option
@json_option
def backup(destination: Path, data: Path, as_json: bool) -> None:
    """Copy a whole namespace into a new folder, while it runs or stopped.

    The copy shows one instant: every message that was acknowledged before is in it. Nobody has to wait for it, but the
    stores grow while it is made. It holds the keys of the namespace: keep it as you keep those.

    \b
    Examples:
      tandembus backup --data /var/lib/tandembus /backups/2030-01-31
    """
    clock = SystemClock()
    started = clock.monotonic()
    with progress_of("copying") as begun:
        manifest = make_backup(data, destination, clock, begun)
    _answer(as_json, "backed up", "destination", destination, manifest, clock.monotonic() - started)


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Data folder to make: one that does not exist, or is empty.",
)
@json_option
def restore(source: Path, data: Path, as_json: bool) -> None:
    """Make a data folder out of a backup.

    Every file is compared with its checksum. The namespace that is served from it then has what was there at the
    instant of the backup. It gives out no sequence number and no lock token that the old one has given out since. Do
    not run both.

    \b
    Examples:
      tandembus restore /backups/2030-01-31 --data /var/lib/tandembus
      tandembus serve --data /var/lib/tandembus
    """
    clock = SystemClock()
    started = clock.monotonic()
    with progress_of("restoring") as begun:
        restored = restore_backup(source, data, clock, begun)
    more = {"version": restored.manifest.version, "notes": list(restored.notes)}
    _answer(as_json, "restored", "data", data, restored.manifest, clock.monotonic() - started, more)
    for each in restored.notes if not as_json else ():
        say(("warning: ", "yellow"), each)


def _answer(
    as_json: bool,
    verb: str,
    name: str,
    folder: Path,
    made: Manifest,
    seconds: float,
    more: dict[str, Any] | None = None,
) -> None:
    created_at = moment_text(made.created_at)
    if as_json:
        facts = {name: str(folder), "namespace": made.namespace, "created_at": created_at, "stores": made.stores}
        sizes = {"files": len(made.files), "size_bytes": made.size_bytes, "seconds": round(seconds, 3)}
        print_json({**facts, **sizes, **(more or {})})
    else:
        size = f"{len(made.files):,} files, {size_words(made.size_bytes)} in {seconds:.1f} s"
        say(f"{verb} ", (str(folder), "bold"), f": {size}, as of {created_at}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=DEFAULT_FOLDER)
@json_option
def check(folder: Path, as_json: bool) -> None:
    """Verify every record of a data folder or of a backup, and change nothing.

    The namespace may be running: what is looked at is its state at one instant. FOLDER is ./tandembus-data where none
    is given. Exit code 0: all is sound; 1: there is damage.
    """
    if not environments_of(folder) and not (folder / MANIFEST_FILE).exists():
        raise Failure(f"There is no namespace and no backup in {folder}.", NOT_FOUND, kind="NamespaceNotFound")
    with progress_of("checking") as begun:
        parts = check_folder(folder, begun)
    damage_count = sum(part.damage_count for part in parts)
    if as_json:
        facts = {"folder": str(folder), "is_sound": damage_count == 0}
        print_json({**facts, "parts": [asdict(part) for part in parts]})
    else:
        _show(parts, damage_count)
    if damage_count:
        click.get_current_context().exit(FAILED)


def _show(parts: list[Part], damage_count: int) -> None:
    print_table(HEADINGS, [_row(part) for part in parts])
    for part in parts:
        for finding in part.findings[:SHOWN]:
            say((part.name, "bold red"), f": {finding}")
        if part.damage_count > SHOWN:
            say((part.name, "bold red"), f": and {part.damage_count - SHOWN:,} more")
    if damage_count:
        text = "docs/backup.md says what each finding costs; a backup that is sound can be restored."
        say(("Try:   ", "cyan"), text)


def _row(part: Part) -> list[object]:
    state = (counted(part.damage_count, "finding"), "bold red") if part.damage_count else ("sound", "green")
    counts = [part.message_count, part.record_count, Size(part.size_bytes), part.epoch, part.quarantined_count or None]
    return [part.name, state, *counts]
