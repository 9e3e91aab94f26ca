"""What is said when a namespace cannot be started."""

from __future__ import annotations

from typing import Final

import click

EXIT_REFUSED: Final = 1


def tell_refusal(error: Exception) -> None:
    click.echo(f"tandembus cannot start: {error}", err=True)
    if isinstance(error, OSError):
        click.echo(f"Try: {_advice_for(error)}", err=True)


def _advice_for(error: OSError) -> str:
    """Trouble with a file names it; trouble with a port cannot."""
    if error.filename is not None:
        return "--data chooses another data folder, one that this user may write to."
    return "--amqp-port, --http-port and --amqps-port choose other ports (0: any free one)."
