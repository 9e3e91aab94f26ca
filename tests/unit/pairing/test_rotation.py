"""Which backlog queue takes the next message."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tandembus.clock import ManualClock
from tandembus.pairing.rotation import Rotation
from tests.covers import covers

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(4)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rotation(clock: ManualClock) -> Rotation:
    return Rotation(QUEUES, 60.0, clock, random.Random(7))


@covers("N6")
def test_a_sender_keeps_the_queue_it_was_given(rotation: Rotation) -> None:
    own = rotation.pick()
    assert all(rotation.pick(own) == own for _ in range(50))


@covers("N6")
def test_senders_who_do_not_know_each_other_share_the_load(rotation: Rotation) -> None:
    picked = Counter(rotation.pick() for _ in range(400))
    assert set(picked) == set(QUEUES)
    assert min(picked.values()) > 60


@covers("N7")
def test_a_dropped_queue_is_replaced_for_everybody_and_told_once(rotation: Rotation) -> None:
    assert rotation.drop(QUEUES[1])
    assert not rotation.drop(QUEUES[1])
    assert QUEUES[1] not in {rotation.pick(QUEUES[1]) for _ in range(200)}
    assert rotation.available == (QUEUES[0], QUEUES[2], QUEUES[3])


@covers("N7")
def test_a_dropped_queue_stays_out_while_others_do_the_work(rotation: Rotation, clock: ManualClock) -> None:
    rotation.drop(QUEUES[1])
    clock.advance(3600.0)
    assert QUEUES[1] not in rotation.available


@covers("N7")
def test_when_all_are_out_nobody_is_picked_until_time_brings_all_of_them_back(
    rotation: Rotation, clock: ManualClock
) -> None:
    for queue in QUEUES:
        rotation.drop(queue)
    assert rotation.pick(QUEUES[0]) is None
    assert rotation.pick_for_key("alice") is None
    clock.advance(59.9)
    assert rotation.pick() is None
    clock.advance(0.1)
    assert rotation.available == tuple(QUEUES)


@covers("N6")
def test_a_key_always_finds_the_same_queue_in_every_process(rotation: Rotation, clock: ManualClock) -> None:
    other = Rotation(QUEUES, 60.0, clock, random.Random(99))
    keys = [f"session-{number}" for number in range(200)]
    picked = [rotation.pick_for_key(key) for key in keys]
    assert picked == [other.pick_for_key(key) for key in keys]
    assert set(picked) == set(QUEUES)


@covers("N6", "N7")
def test_the_keys_of_a_dropped_queue_move_together_and_the_others_stay(rotation: Rotation) -> None:
    keys = [f"session-{number}" for number in range(200)]
    before = {key: rotation.pick_for_key(key) for key in keys}
    rotation.drop(QUEUES[3])
    for key, queue in before.items():
        assert rotation.pick_for_key(key) == (QUEUES[0] if queue == QUEUES[3] else queue)


def test_restoring_brings_all_back_at_once(rotation: Rotation) -> None:
    rotation.drop(QUEUES[2])
    rotation.restore()
    assert rotation.available == tuple(QUEUES)
