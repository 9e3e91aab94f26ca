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
BROKERS = Topology("brokers", ("--brokers", "3"))


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    topology: Topology
    is_partitioned: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What its queues and topics are made with."""
        return {"enable_partitioning": True} if self.is_partitioned else {}

    @property
    def key(self) -> str | None:
        """A partition key for messages whose order matters, or that belong to one transaction: with it they are in one
        fragment (P10, P16). What has only one needs none."""
        return "together" if self.is_partitioned else None

    def as_sent(self, found: Sequence[T], key: Any = None) -> list[T]:
        """What was received, to be compared with what was sent one by one: without a key that is in order only where
        there is one fragment (P5)."""
        return sorted(found, key=key) if self.is_partitioned else list(found)


PLAIN = Shape("plain", ONE_PROCESS)
PARTITIONED = Shape("partitioned", TWO_STORES, is_partitioned=True)
PLAIN_ON_BROKERS = Shape("plain-on-brokers", BROKERS)
PARTITIONED_ON_BROKERS = Shape("partitioned-on-brokers", BROKERS, is_partitioned=True)
EVERY: tuple[Shape, ...] = (PLAIN, PARTITIONED, PLAIN_ON_BROKERS, PARTITIONED_ON_BROKERS)


def on_shapes(*shapes: Shape) -> pytest.MarkDecorator:
    """For `pytestmark`: the module's tests run on each of these, as far as they use entities of the running namespaces
    (or ask for `shape` themselves)."""
    return pytest.mark.shapes(*shapes)


on_every_shape = on_shapes(*EVERY)
