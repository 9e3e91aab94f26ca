"""Links that sign somebody in to the dashboard of a namespace on this machine. Imports little: `up` uses it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tandembus.clock import SystemClock
from tandembus.security.one_time_codes import OneTimeCodes

DASHBOARD: Final = "dashboard "
"""How a line begins that holds a link."""


def sign_in_link(data: Path, host: str, http_port: int) -> str:
    """A new one, good once and for an hour. The code is behind the '#': no proxy and no log sees it on the way. Raises
    OSError where the folder cannot be written to."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{http_port}/#sign-in={OneTimeCodes(data).make(SystemClock().now())}"
