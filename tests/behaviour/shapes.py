"""The shapes on which behaviour is tested: clients cannot tell them apart.

Where the specification itself makes a difference (order over fragments, keys in transactions), a test asks for the
shapes on which it means something.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    stores: int = 1
    is_partitioned: bool = False
    has_channel: bool = False
    """Whether message brokers are processes of their own, behind a channel in memory."""


PLAIN = Shape("plain")
PARTITIONED = Shape("partitioned", stores=2, is_partitioned=True)
CHANNEL = Shape("channel", stores=2, has_channel=True)
PARTITIONED_CHANNEL = Shape("partitioned-channel", stores=2, is_partitioned=True, has_channel=True)
EVERY = (PLAIN, PARTITIONED, CHANNEL, PARTITIONED_CHANNEL)
UNPARTITIONED = (PLAIN, CHANNEL)
SPREAD = (PARTITIONED, PARTITIONED_CHANNEL)


def on_shapes(*shapes: Shape) -> pytest.MarkDecorator:
    """For a test or a module: it runs on each of these shapes, else on all of them."""
    return pytest.mark.shapes(*shapes)
