"""What a front end tells of the whole namespace, whose other parts may be in other processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tandembus.front_end.http.topology import TopologySource
from tandembus.metering import MeterTotals
from tandembus.security.one_time_codes import OneTimeCodes

MeterSource = Callable[[], Awaitable[MeterTotals]]
MetricsSource = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    topology: TopologySource | None = None
    """Which processes and stores there are, and where fragments are; None where nobody knows."""
    meter: MeterSource | None = None
    """All that is counted; None where this process counts everything."""
    codes: OneTimeCodes | None = None
    """Codes that sign somebody in once; None where there are none."""
    metrics: MetricsSource | None = None
    """All that Prometheus is told; None where nobody gathers it."""
    has_open_metrics: bool = False
    """Anybody may read them."""
