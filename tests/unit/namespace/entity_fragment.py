"""What stands behind an entity of one fragment, where that is in this process."""

from __future__ import annotations

from tandembus.broker.fragment import Fragment
from tandembus.interconnect.local_traffic import LocalTraffic
from tandembus.namespace.entity import Entity


def fragment_of(entity: Entity) -> Fragment:
    assert isinstance(entity.traffic, LocalTraffic)
    return entity.traffic.fragment
