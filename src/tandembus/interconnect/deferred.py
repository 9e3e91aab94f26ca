"""What waits at the broker's end of a channel until its fragment is open."""

from __future__ import annotations

from tandembus.errors import BusError
from tandembus.interconnect.local_traffic import LocalTraffic


class Deferred:
    """Carried out in the order of arrival, or refused when the fragment cannot be opened."""

    def carry_out(self, traffic: LocalTraffic) -> None:
        raise AssertionError("must be implemented")

    def refuse(self, error: BusError) -> None:
        raise AssertionError("must be implemented")
