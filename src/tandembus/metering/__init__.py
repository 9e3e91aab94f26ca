"""Counts what is billable, live and in files; what it costs is decided elsewhere."""

from tandembus.metering.files import MeterSettings, figures
from tandembus.metering.meter import NAMESPACE_ENTITY, OTHER_ENTITIES, EntityTotal, Meter, MeterTotals
from tandembus.metering.slot import UNIT_BYTES, Count, MeterSlot, operations_for

__all__ = [
    "NAMESPACE_ENTITY",
    "OTHER_ENTITIES",
    "UNIT_BYTES",
    "Count",
    "EntityTotal",
    "Meter",
    "MeterSettings",
    "MeterSlot",
    "MeterTotals",
    "figures",
    "operations_for",
]
