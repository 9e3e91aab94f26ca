"""`tandembus check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from tandembus.cli.data_folder import DEFAULT_FOLDER
from tandembus.cli.failures import FAILED, NOT_FOUND, Failure
from tandembus.cli.output import counted, print_json, print_table, say
from tandembus.cli.target import json_option
from tandembus.cli.upkeep import byte_progress, upkeep_failures
from tandembus.node.upkeep.check import Part, check_folder
from tandembus.node.upkeep.folders import environments_of
from tandembus.node.upkeep.manifest import MANIFEST_FILE

HEADINGS: Final = ("part", "state", "messages", "records", "bytes", "epoch", "put aside")
SHOWN: Final = 20
"""Findings of a part that people are shown; `--json` has more."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=DEFAULT_FOLDER)
@json_option
def check(folder: Path, as_json: bool) -> None:
    """Verify every record of a data folder or of a backup, and change nothing.

    The namespace may be running: what is looked at is its state at one instant. FOLDER is ./tandembus-data where none
    is given. Exit code 0: all is sound; 1: there is damage.

    \b
    Examples:
      tandembus check
      tandembus check /backups/2030-01-31 --json

    \b
    JSON: {"folder", "is_sound", "parts": [{"name", "record_count", "message_count", "epoch", "size_bytes",
           "quarantined_count", "damage_count", "findings": []}]}
    """
    if not environments_of(folder) and not (folder / MANIFEST_FILE).exists():
        raise Failure(f"There is no namespace and no backup in {folder}.", NOT_FOUND, kind="NamespaceNotFound")
    with upkeep_failures(), byte_progress("checking") as begun:
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
        say(("Try:   ", "cyan"), "docs/backup.md says what each finding costs; a backup that is sound can be restored.")


def _row(part: Part) -> list[object]:
    counts = [part.message_count, part.record_count, part.size_bytes, part.epoch, part.quarantined_count or None]
    return [part.name, _state(part), *counts]


def _state(part: Part) -> Text:
    if part.damage_count:
        return Text(counted(part.damage_count, "finding"), "bold red")
    return Text("sound", "green")
