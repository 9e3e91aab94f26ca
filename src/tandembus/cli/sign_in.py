"""Links that sign somebody in to the dashboard of a namespace on this machine. Imports little: `up` uses it, too."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Final

from tandembus.clock import SystemClock
from tandembus.security.key_file import write_private
from tandembus.security.one_time_codes import FOLDER, OneTimeCodes

DASHBOARD: Final = "dashboard "
"""How a line begins that holds a link."""


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
