"""Links that sign somebody in to the dashboard of a namespace on this machine, and where keys and links may be printed.
Imports little: `up` uses it, too."""

from __future__ import annotations

import html
import sys
from pathlib import Path
from typing import Final

from tandembus.clock import SystemClock
from tandembus.security.key_file import write_private
from tandembus.security.one_time_codes import FOLDER, OneTimeCodes

DASHBOARD: Final = "dashboard "
"""How a line begins that holds a link."""


SHOW_KEY_HELP: Final = "Print the key and the link also where the output is no terminal, such as in a pipe."
HIDDEN: Final = (
    "The key is printed to a terminal only, or with --show-key. `tandembus connection-string --data {data}` prints it, "
    "and `tandembus dashboard --data {data}` a link that signs in."
)


def may_show_key(is_asked_for: bool) -> bool:
    """Output that is no terminal is often a file or a journal, which keeps the key and has other readers."""
    return is_asked_for or sys.stdout.isatty()


def endpoint_of(connection_string: str) -> str:
    """Returns the endpoint of a connection string, without the key."""
    return connection_string.partition(";")[0].removeprefix("Endpoint=")


def sign_in_link(data: Path, host: str, http_port: int) -> str:
    """A new one, good once and for an hour. The code is behind the '#': no proxy and no log sees it on the way. Raises
    OSError where the folder cannot be written to."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{http_port}/#sign-in={OneTimeCodes(data).make(SystemClock().now())}"


def page_to(link: str, data: Path) -> Path:
    """A page that only its owner can read and that leads to the link, which then stands on nobody's command line."""
    page = (data / FOLDER).with_suffix(".html").absolute()
    write_private(page, f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">\n'.encode())
    return page
