"""The clock: schedules, times to live, tokens and certificates go by it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

from tandembus.cli.diagnosis.finding import Area, Finding
from tandembus.cli.diagnosis.served import Served
from tandembus.clock import Clock
from tandembus.node.upkeep.folders import environments_of
from tandembus.store.embedded.lmdb_file import DATA_FILE

AREA: Final = Area("clock")
EARLIEST: Final = datetime(2025, 1, 1, tzinfo=timezone.utc).timestamp()
LATEST: Final = datetime(2100, 1, 1, tzinfo=timezone.utc).timestamp()
MOST_SKEW_S: Final = 2.0
"""A Date header counts whole seconds."""
MOST_STEP_S: Final = 0.05
ANSWERS_WITHIN_S: Final = 3.0


def examine(data: Path, served: Served, clock: Clock) -> Iterator[Finding]:
    before, inexact_s = _ahead(clock)
    yield _sane(clock.now(), data)
    if served.is_running and served.facts is not None:
        yield _skew(served.facts.host, served.facts.http_port, clock)
    after, more_inexact_s = _ahead(clock)
    step = after - before
    if abs(step) > MOST_STEP_S + inexact_s + more_inexact_s:
        text = f"the wall clock was set by {step:+.3f} s while it was looked at"
        yield AREA.warning("steps", text, "Let a time service slew the clock (chrony, systemd-timesyncd).")
    else:
        yield AREA.ok("steps", "wall clock and monotonic clock go alike")


def _ahead(clock: Clock) -> tuple[float, float]:
    """How far the wall clock is ahead of the monotonic one, and how inexact that is: on a busy machine a process may
    have to wait between two looks."""
    started = clock.monotonic()
    now = clock.now()
    ended = clock.monotonic()
    return now - ended, ended - started


def _sane(now: float, data: Path) -> Finding:
    shown = datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds") if 0 <= now < 1e11 else str(now)
    if not EARLIEST < now < LATEST:
        advice = "Set the clock: messages would expire, and certificates count as not valid."
        return AREA.problem("time", f"it is {shown}, says the clock", advice)
    newest = max((float((one / DATA_FILE).stat().st_mtime) for one in environments_of(data)), default=0.0)
    if newest > now + 60:
        advice = "Set the clock: what is scheduled comes late, and what should expire stays."
        return AREA.problem("time", f"it is {shown}, and a store was written {newest - now:,.0f} s later", advice)
    return AREA.ok("time", shown)


def _skew(host: str, port: int, clock: Clock) -> Finding:
    """Against the namespace itself: a container, or a virtual machine, may have its own idea."""
    started = clock.monotonic()
    try:
        date = _date_of(host, port)
    except (OSError, http.client.HTTPException) as error:
        advice = "Look at its log; `tandembus topology` tells the state of its parts."
        return AREA.problem("namespace", f"port {port} of {host} does not answer: {error}", advice)
    answer_s = clock.monotonic() - started
    if date is None:
        advice = "Is it really a namespace? `tandembus topology` asks it."
        return AREA.warning("namespace", f"port {port} does not tell the time", advice)
    skew = date - clock.now()
    if abs(skew) > MOST_SKEW_S + answer_s:
        return AREA.warning("namespace", f"its clock is {skew:+.0f} s from this one", "Set both by a time service.")
    return AREA.ok("namespace", f"its clock agrees; it answered in {answer_s * 1000:.0f} ms")


def _date_of(host: str, port: int) -> float | None:
    """None: it tells none that can be read."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWERS_WITHIN_S)
    try:
        connection.request("GET", "/")
        return parsedate_to_datetime(connection.getresponse().getheader("Date", "")).timestamp()
    except ValueError:
        return None
    finally:
        connection.close()
