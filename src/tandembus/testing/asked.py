"""Settings of an entity as the SDKs name them: `lock_duration`, not `lock_duration_s`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta

from tandembus.descriptions import EntityStatus

Setting = str | int | float | bool | timedelta | EntityStatus | None


def asked_for(description: type, settings: Mapping[str, Setting]) -> dict[str, object]:
    """The description's fields. A name that is not known is a TypeError, as for any keyword."""
    fields = {field.name.removesuffix("_s"): field.name for field in dataclasses.fields(description)}
    for name in settings:
        if name not in fields:
            known = ", ".join(sorted(fields))
            raise TypeError(f"{name!r} is no setting of a {description.__name__}; there are {known}")
    return {fields[name]: _converted(fields[name], value) for name, value in settings.items()}


def _converted(field: str, value: Setting) -> object:
    if field == "status" and isinstance(value, str):
        return EntityStatus(value)
    return seconds_of(value) if field.endswith("_s") and isinstance(value, (int, float, timedelta)) else value


def seconds_of(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
