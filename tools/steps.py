"""Runs one step of an installation: says what it does, and on a terminal shows that it goes on."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence


def run_step(what: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether the command succeeded. Its own output, if any, says why it failed."""
    print(what, flush=True)
    return _wait_for(subprocess.Popen(command, env=environment)) == 0


def _wait_for(process: "subprocess.Popen[bytes]") -> int:
    is_watched = sys.stderr.isatty()
    began_at = time.monotonic()
    while True:
        try:
            code = process.wait(1.0)
        except subprocess.TimeoutExpired:
            if is_watched:
                print(f"\r  {time.monotonic() - began_at:,.0f} s ", end="", file=sys.stderr, flush=True)
            continue
        if is_watched:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        return code
