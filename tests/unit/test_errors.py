"""Errors that are kept, and those that are raised."""

from __future__ import annotations

import importlib
import pkgutil
import traceback

import pytest

import tandembus
from tandembus.errors import StoreUnavailable, anew
from tandembus.store.memory import Fault
from tests.unit.broker.one_queue import OneQueue, message


def test_no_module_has_an_error_ready_for_everybody() -> None:
    """Whoever raises one adds frames to it, and they stay in memory for the life of the process."""
    found = []
    for info in pkgutil.walk_packages(tandembus.__path__, "tandembus."):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            found += [f"{info.name}.{name}" for name, value in vars(module).items() if isinstance(value, BaseException)]
    assert found == []


def test_an_error_is_made_anew_with_its_kind_and_text_and_nothing_else() -> None:
    kept = StoreUnavailable("It is out.")
    with pytest.raises(StoreUnavailable, match=r"^It is out\.$") as raised:
        raise anew(kept)
    assert raised.value is not kept
    assert kept.__traceback__ is None


def frame_count(error: BaseException) -> int:
    return sum(1 for _ in traceback.walk_tb(error.__traceback__))


async def test_a_store_that_is_out_does_not_remember_whom_it_was_told_to() -> None:
    async with OneQueue() as queue:
        queue.fault_next(Fault.UNKNOWN_LOST)
        queue.open_faults = [StoreUnavailable("It is out.")] * 1000
        queue.stage(message("lost"))
        failure = await queue.failed()
        before = frame_count(failure)
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                queue.stage(message("refused"))
            with pytest.raises(StoreUnavailable):
                _ = queue.broker.store
        assert queue.fragment.failure is failure
        assert frame_count(failure) == before
        queue.open_faults.clear()
