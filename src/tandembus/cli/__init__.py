"""The `tandembus` command. Nothing but `main` is for other packages."""

from tandembus.cli.main import main

__all__ = ["main"]
