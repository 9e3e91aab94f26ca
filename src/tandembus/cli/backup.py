"""`tandembus backup`."""

from __future__ import annotations

from pathlib import Path

import click

from tandembus.cli.output import print_json, say
from tandembus.cli.parameters import moment_text
from tandembus.cli.target import json_option
from tandembus.cli.upkeep import byte_progress, folder_option, upkeep_failures
from tandembus.clock import SystemClock
from tandembus.node.upkeep.backup import make_backup


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@folder_option
@json_option
def backup(destination: Path, data: Path, as_json: bool) -> None:
    """Copy a whole namespace into a new folder, while it runs or stopped.

    The copy shows one instant: every message that was acknowledged before is in it. Nobody has to wait for it, but the
    stores grow while it is made. It holds the keys of the namespace: keep it as you keep those.

    \b
    Examples:
      tandembus backup /backups/2030-01-31
      tandembus backup --data /var/lib/tandembus /backups/2030-01-31 --json

    \b
    JSON: {"destination", "namespace", "created_at", "stores", "files", "size_bytes", "seconds"}
    """
    clock = SystemClock()
    started = clock.monotonic()
    with upkeep_failures(), byte_progress("copying") as begun:
        manifest = make_backup(data, destination, clock, begun)
    seconds = clock.monotonic() - started
    if as_json:
        facts = {"namespace": manifest.namespace, "created_at": moment_text(manifest.created_at)}
        sizes = {"stores": manifest.stores, "files": len(manifest.files), "size_bytes": manifest.size_bytes}
        print_json({"destination": str(destination), **facts, **sizes, "seconds": round(seconds, 3)})
        return
    say(
        "backed up ",
        (str(destination), "bold"),
        f": {len(manifest.files):,} files, {manifest.size_bytes:,} bytes in {seconds:.1f} s, "
        f"as of {moment_text(manifest.created_at)}",
    )
