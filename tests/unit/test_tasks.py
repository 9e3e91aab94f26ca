"""Tasks that must live as long as the process."""

from __future__ import annotations

import asyncio

import pytest

from tandembus.tasks import carry_on, essential
from tests.covers import covers


async def break_down() -> None:
    raise RuntimeError("broken")


async def ended(task: asyncio.Task[None]) -> None:
    """Its end is known to everybody who is told of it."""
    await asyncio.wait([task])
    await asyncio.sleep(0)


@covers("M13")
async def test_who_can_stop_the_process_is_told_when_an_essential_task_breaks() -> None:
    told: list[BaseException] = []
    await ended(essential(break_down(), "work", told.append))
    assert [str(error) for error in told] == ["broken"]


@covers("M13")
async def test_an_essential_task_that_breaks_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await ended(essential(break_down(), "work", carry_on))
    (record,) = [one for one in caplog.records if one.levelname == "CRITICAL"]
    assert "'work'" in record.getMessage()


@covers("M13")
async def test_a_cancelled_task_is_no_fault() -> None:
    told: list[BaseException] = []
    task = essential(asyncio.sleep(3600), "work", told.append)
    task.cancel()
    await ended(task)
    assert told == []


@covers("M13")
async def test_a_task_that_comes_to_its_own_end_is_no_fault() -> None:
    told: list[BaseException] = []
    await ended(essential(asyncio.sleep(0), "work", told.append))
    assert told == []
