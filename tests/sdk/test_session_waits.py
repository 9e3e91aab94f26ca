"""How long a receiver waits for a session, and for its detach after a lapse, in time that is put forward."""

from __future__ import annotations

from asyncio import to_thread
from functools import partial

import pytest

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.values import Typed, uint
from tandembus.limits import Limits
from tandembus.testing import AsyncEmbeddedNamespace
from tests.covers import covers
from tests.integration.raw_amqp import RawAmqp, plain
from tests.integration.shapes import PARTITIONED, PLAIN, Shape, on_shapes
from tests.integration.simulated_time import SimulatedTimeLoop, run_simulated
from tests.integration.test_wire_sessions import accept, ask, refusal

pytestmark = on_shapes(PLAIN, PARTITIONED)

QUEUE = "sessions"
ULONG = 0x80
DAY_S = 86_400.0


def assert_nothing_is_said(raw: RawAmqp) -> None:
    """What was sent before the answer to an echo has come before it."""
    raw.perform(codes.FLOW, [uint(0), uint(65536), uint(0), uint(65536), None, None, None, None, False, True])
    assert raw.next_frame().code == codes.FLOW


async def log_in(namespace: AsyncEmbeddedNamespace, shape: Shape) -> RawAmqp:
    await namespace.create_queue(QUEUE, requires_session=True, **shape.settings)
    raw = await to_thread(RawAmqp, namespace.port)
    await to_thread(partial(raw.log_in, key=namespace.node.key))
    return raw


async def wait_in_vain(shape: Shape, timeout: object, seconds: float, loop: SimulatedTimeLoop) -> None:
    async with AsyncEmbeddedNamespace(stores=2) as namespace:
        with await log_in(namespace, shape) as raw:
            await to_thread(partial(ask, raw, QUEUE, None, timeout=timeout))
            await loop.quiet()
            loop.jump(seconds / 2)
            await to_thread(assert_nothing_is_said, raw)
            loop.jump(seconds / 2)
            assert await to_thread(refusal, raw) == "com.microsoft:timeout"


@covers("M7")
@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, 60.0), (uint(90_000), 90.0), (30_000.5, 30.0), (Typed(ULONG, 2**64 - 1), DAY_S), (float("inf"), DAY_S)],
)
def test_an_accept_waits_as_long_as_its_client_asks_and_a_minute_otherwise(
    shape: Shape, timeout: object, seconds: float
) -> None:
    run_simulated(partial(wait_in_vain, shape, timeout, seconds))


async def lose_session(shape: Shape, limits: Limits, seconds: float, loop: SimulatedTimeLoop) -> None:
    async with AsyncEmbeddedNamespace(stores=2, limits=limits) as namespace:
        with await log_in(namespace, shape) as raw:
            await to_thread(accept, raw, QUEUE, "a")
            await namespace.clock.advance(60)
            await to_thread(assert_nothing_is_said, raw)
            loop.jump(seconds / 2)
            await to_thread(assert_nothing_is_said, raw)
            loop.jump(seconds / 2)
            detached = await to_thread(raw.expect, codes.DETACH)
            assert plain(detached.error(2)[0]) == "com.microsoft:session-lock-lost"


@covers("M7")
@pytest.mark.parametrize(("limits", "seconds"), [(Limits(), 5.0), (Limits(session_detach_delay_s=40.0), 40.0)])
def test_a_link_is_detached_five_seconds_after_its_session_was_lost_or_as_set(
    shape: Shape, limits: Limits, seconds: float
) -> None:
    run_simulated(partial(lose_session, shape, limits, seconds))
