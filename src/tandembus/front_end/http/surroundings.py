"""What a front end tells of the whole namespace, whose other parts may be in other processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandembus.front_end.http.topology import TopologySource
from tandembus.metering import MeterTotals
from tandembus.pair_view.view import Seen
from tandembus.security.one_time_codes import OneTimeCodes

MeterSource = Callable[[], Awaitable[MeterTotals]]
MetricsSource = Callable[[], Awaitable[str]]
PairSource = Callable[[], Awaitable[Seen]]
AskPartner = Callable[[str], Awaitable[Mapping[str, object]]]


def _unknown() -> None:
    return None


def _yes() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Surroundings:
    topology: TopologySource | None = None
    """Which processes and stores there are, and where fragments are; None where nobody knows."""
    meter: MeterSource | None = None
    """All that is counted; None where this process counts everything."""
    ask_partner: AskPartner | None = None
    """What the other namespace of the pair answers to a GET of this path; None where there is none. Raises a BusError
    that says why, if it does not answer."""
    partner_name: Callable[[], str | None] = _unknown
    """What that one is called; None where that is not known."""
    codes: OneTimeCodes | None = None
    """Codes that sign somebody in once; None where there are none."""
    metrics: MetricsSource | None = None
    """All that Prometheus is told; None where nobody gathers it."""
    has_open_metrics: bool = False
    """Anybody may read them."""
    meter_folder: Path | None = None
    """Where the meters of all processes write; None where nobody knows."""
    pair: PairSource | None = None
    """All that is seen of a pair; None where this process sees everything."""
    serves_a_store: Callable[[], bool] = _yes
    """Whether at least one messaging store is within reach."""
