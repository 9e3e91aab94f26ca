"""What stands behind an entity of one fragment, where that is in this process."""

from __future__ import annotations

from tandembus.broker.fragment import Fragment
from tandembus.faults.gate import FaultGate
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.namespace.entity import Entity


def fragment_of(entity: Entity) -> Fragment:
    traffic = entity.traffic.inner if isinstance(entity.traffic, FaultGate) else entity.traffic
    assert isinstance(traffic, LocalTraffic)
    return traffic.fragment
