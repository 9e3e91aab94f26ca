"""Receivers whose fragment goes out of reach in the middle of something."""

from __future__ import annotations

from tandembus.store.memory import Fault
from tests.covers import covers
from tests.unit.faults.gated_queue import GatedQueue


@covers("B3", "P6")
async def test_a_drain_that_an_outage_cuts_off_is_over() -> None:
    async with GatedQueue() as queue:
        await queue.send(*[f"m{number}" for number in range(40)])  # more than the window: the rest has to be read
        link = queue.link()
        link.ask(30, is_draining=True)
        delivered = len(link.bodies)
        assert (delivered < 30, link.drained_count) == (True, 0)
        queue.inject("unavailable")
        assert link.drained_count == 1
        queue.heal()
        await queue.quiet()
        assert (len(link.bodies), link.drained_count) == (delivered, 1), "its credit went with the drain"


@covers("B3", "P6")
async def test_a_receiver_that_has_drained_before_keeps_its_credit_in_an_outage() -> None:
    async with GatedQueue() as queue:
        link = queue.link()
        link.ask(5, is_draining=True)
        await queue.quiet()
        assert link.drained_count == 1
        link.ask(5)
        queue.inject("unavailable")
        assert (link.drained_count, link.consumer.credit) == (1, 5)
        queue.heal()
        await queue.send("a")
        assert link.bodies == ["a"]


@covers("B3", "P6")
async def test_a_drain_that_waits_at_a_slow_fragment_is_told_once_when_that_goes_out() -> None:
    async with GatedQueue() as queue:
        await queue.send(*[f"m{number}" for number in range(40)])
        link = queue.link()
        link.ask(30, is_draining=True)
        queue.inject("slow", latency_ms=500)
        link.ask(5, is_draining=True)
        queue.inject("unavailable", name="f2")
        assert link.drained_count == 1


@covers("B3", "P6")
async def test_a_drain_ends_after_the_removals_that_belong_to_it() -> None:
    async with GatedQueue() as queue:
        await queue.send("a")
        link = queue.link(is_destructive=True)
        queue.disk.faults[queue.disk.commit_count + 1] = Fault.HANG
        link.ask(5, is_draining=True)
        await queue.disk.is_hanging.wait()
        queue.inject("unavailable")
        assert (link.bodies, link.drained_count) == ([], 0), "it is being removed, and within the credit"
        queue.disk.go_on.set()
        await queue.quiet()
        assert (link.bodies, link.drained_count) == (["a"], 0)
        queue.timers.pass_time(0.1)
        assert link.drained_count == 1
