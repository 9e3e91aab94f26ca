"""What an outage costs by the meters of both namespaces: six operations a message, and nothing else that grows with
their number but one peek per answer (N13)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from tandembus.pairing.syphon.client_port import ClientPrimary
from tandembus.pairing.syphon.look_ahead import PAGE
from tandembus.pairing.syphon.ports import PrimaryUnreachable
from tandembus.pairing.syphon.settings import SyphonSettings
from tests.covers import covers
from tests.integration.syphons import Pair, everything, numbered, pair, until

COUNT = 100
ONCE = SyphonSettings(quiet_s=0.1)


class AwayPrimary(ClientPrimary):
    """A port to a primary that cannot be reached at first."""

    is_away = True

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        if self.is_away:
            raise PrimaryUnreachable("away")
        await super().send(path, payloads)


async def whole_namespace_out(both: Pair) -> None:
    primary = AwayPrimary(both.connection_to(both.primary))
    async with both.syphoning(primary=primary):
        await both.divert("orders", numbered(COUNT))
        await until(lambda: is_stuck(both))
        primary.is_away = False
        await until(lambda: is_empty(both))


async def one_entity_out(both: Pair) -> None:
    fault = await both.primary.inject_fault("entity/orders", "unavailable")
    async with both.syphoning():
        await both.divert("orders", numbered(COUNT))
        await until(lambda: is_stuck(both))
        await both.primary.heal(fault)
        await until(lambda: is_empty(both))


async def two_syphons(both: Pair) -> None:
    fault = await both.primary.inject_fault("entity/orders", "unavailable")
    async with both.syphoning(), both.syphoning():
        await both.divert("orders", numbered(COUNT))
        await until(lambda: is_stuck(both))
        await both.primary.heal(fault)
        await until(lambda: is_empty(both))


async def ten_restarts(both: Pair) -> None:
    fault = await both.primary.inject_fault("entity/orders", "unavailable")
    await both.divert("orders", numbered(COUNT))
    for _ in range(10):
        both.figures.troubled(both.queues[0], OSError("stopped"))
        async with both.syphoning():
            await until(lambda: is_stuck(both))
    await both.primary.heal(fault)
    async with both.syphoning():
        await until(lambda: is_empty(both))


async def once_after_the_outage(both: Pair) -> None:
    await both.divert("orders", numbered(COUNT))
    assert await both.syphon(ONCE).run(once=True)


async def once_during_and_after_the_outage(both: Pair) -> None:
    await both.divert("orders", numbered(COUNT))
    async with both.primary.fault("entity/orders", "unavailable"):
        assert not await both.syphon(ONCE).run(once=True)
    assert await both.syphon(ONCE).run(once=True)


@covers("N13")
@pytest.mark.parametrize(
    ("outage", "further_operations"),
    [
        (whole_namespace_out, 12),
        (one_entity_out, 12),
        (two_syphons, 24),
        (ten_restarts, 12 + 10 * 5),
        (once_after_the_outage, 6),
        (once_during_and_after_the_outage, 12),
    ],
)
async def test_messages_of_an_outage_cost_six_operations_and_an_amount_that_does_not_grow_with_them(
    outage: Callable[[Pair], Awaitable[None]], further_operations: int
) -> None:
    async with pair("orders") as both:
        await outage(both)
        assert len(await everything_settled(both)) == COUNT
        assert all_operations(both) - 6 * COUNT <= further_operations + 2 * COUNT / PAGE, operations(both)


@covers("N13")
async def test_messages_that_stand_before_live_ones_cost_two_operations_more() -> None:
    async with pair("orders", "events") as both:
        fault = await both.primary.inject_fault("entity/orders", "unavailable")
        async with both.syphoning():
            await both.divert("orders", numbered(COUNT))
            await both.divert("events", numbered(1))
            await until(lambda: has_moved(both, 1))
            assert (await both.primary.counts("events")).active == 1
            await both.primary.heal(fault)
            await until(lambda: is_empty(both))
        assert len(await everything_settled(both)) == COUNT
        assert 8 * COUNT - 10 <= all_operations(both) <= 8 * COUNT + 30, operations(both)


async def everything_settled(both: Pair) -> list[object]:
    """Receives what came home, as an application does; each is completed."""
    return list(await everything(both.primary, "orders"))


def all_operations(both: Pair) -> int:
    """Of both namespaces. What comes home is received and deleted here: one operation less than with a completion."""
    found = operations(both)
    return sum(found.values()) + COUNT


def operations(both: Pair) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for name, namespace in (("primary", both.primary), ("secondary", both.secondary)):
        for one in namespace.node.meter.totals().since_start:
            if one.operation != "manage":
                found[name, one.operation] = found.get((name, one.operation), 0) + one.count.operations
    return found


async def is_stuck(both: Pair) -> bool:
    return bool(both.figures.stuck_paths)


async def has_moved(both: Pair, count: int) -> bool:
    return both.figures.moved_count >= count


async def is_empty(both: Pair) -> bool:
    return await both.left() == 0
