"""`tandembus restore`."""

from __future__ import annotations

from pathlib import Path

import click

from tandembus.cli.output import print_json, say
from tandembus.cli.parameters import moment_text
from tandembus.cli.target import json_option
from tandembus.cli.upkeep import byte_progress, upkeep_failures
from tandembus.clock import SystemClock
from tandembus.node.upkeep.restore import restore_backup


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
    Example:
      tandembus restore /backups/2030-01-31 --data /var/lib/tandembus
      tandembus serve --data /var/lib/tandembus

    \b
    JSON: {"data", "namespace", "created_at", "version", "stores", "files", "size_bytes", "seconds", "notes": []}
    """
    clock = SystemClock()
    started = clock.monotonic()
    with upkeep_failures(), byte_progress("restoring") as begun:
        restored = restore_backup(source, data, clock, begun)
    seconds, manifest = clock.monotonic() - started, restored.manifest
    if as_json:
        facts = {"namespace": manifest.namespace, "created_at": moment_text(manifest.created_at)}
        sizes = {"stores": manifest.stores, "files": len(manifest.files), "size_bytes": manifest.size_bytes}
        rest = {"seconds": round(seconds, 3), "notes": list(restored.notes)}
        print_json({"data": str(data), **facts, "version": manifest.version, **sizes, **rest})
        return
    say(
        "restored ",
        (str(data), "bold"),
        f": {len(manifest.files):,} files, {manifest.size_bytes:,} bytes in {seconds:.1f} s, "
        f"as of {moment_text(manifest.created_at)}",
    )
    for note in restored.notes:
        say(("warning: ", "yellow"), note)
