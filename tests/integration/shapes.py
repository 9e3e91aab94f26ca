"""The shapes in which a test's entities come: plain or partitioned, in one process or over several brokers.

Clients cannot tell them apart, so the tests of what clients see run on all of them. Where the specification itself
makes a difference (order over fragments, keys in transactions), the test asks for the shape and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topology:
    """Which processes a namespace consists of."""

    name: str
    options: tuple[str, ...] = ()


ONE_PROCESS = Topology("one-process")
TWO_STORES = Topology("two-stores", ("--stores", "2"))
TWO_BROKERS = Topology("two-brokers", ("--brokers", "2"))
THREE_BROKERS = Topology("three-brokers", ("--brokers", "3"))


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    topology: Topology
    is_partitioned: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What its queues and topics are made with."""
        return {"enable_partitioning": True} if self.is_partitioned else {}

    def as_sent(self, found: Sequence[T], key: Any = None) -> list[T]:
        """What was received, to be compared with what was sent one by one: without a key that is in order only where
        there is one fragment (P5)."""
        return sorted(found, key=key) if self.is_partitioned else list(found)


PLAIN = Shape("plain", ONE_PROCESS)
PARTITIONED = Shape("partitioned", TWO_STORES, is_partitioned=True)
PLAIN_ON_BROKERS = Shape("plain-on-brokers", TWO_BROKERS)
PARTITIONED_ON_BROKERS = Shape("partitioned-on-brokers", TWO_BROKERS, is_partitioned=True)
PLAIN_ON_THREE = Shape("plain-on-three", THREE_BROKERS)
PARTITIONED_ON_THREE = Shape("partitioned-on-three", THREE_BROKERS, is_partitioned=True)


def on_shapes(*shapes: Shape) -> pytest.MarkDecorator:
    """For `pytestmark`: the module's tests run on each of these."""
    return pytest.mark.parametrize("shape", shapes, indirect=True, scope="module", ids=[one.name for one in shapes])
