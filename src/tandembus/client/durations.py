"""Durations as a client has them: seconds, infinity for ever."""

from __future__ import annotations

import math
from typing import Final

from tandembus.descriptions.durations import parse_duration
from tandembus.errors import InvalidArgument, MalformedData

NEVER: Final = math.inf
"""A duration that means "for ever": no time to live, never idle for too long."""


def duration_of(text: str) -> float:
    """Seconds of an ISO 8601 duration; the service's longest one is `NEVER`."""
    try:
        duration_s = parse_duration(text.strip(), "the duration")
    except InvalidArgument as error:
        raise MalformedData(str(error)) from None
    return NEVER if duration_s is None else duration_s
