"""`tandembus version`."""

from __future__ import annotations

import platform

import click

import tandembus
from tandembus import build
from tandembus.cli.output import print_json
from tandembus.cli.target import json_option


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Say which tandembus this is, and whether it is compiled.

    \b
    JSON: {"version", "build": "compiled" | "interpreted", "python", "sources_fit"}
    """
    current = build.current()
    if as_json:
        facts = {"version": tandembus.__version__, "build": current.kind, "python": platform.python_version()}
        print_json({**facts, "sources_fit": current.sources_fit})
        return
    click.echo(f"tandembus {tandembus.__version__} ({build.describe()}, Python {platform.python_version()})")
