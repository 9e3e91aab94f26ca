"""Dispositions that say nothing final: the delivery stays with its receiver."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import encode, uint, ulong
from tandembus.amqp.encoding.delivery_states import ACCEPTED_STATE
from tandembus.amqp.encoding.values import Described
from tests.covers import covers
from tests.unit.broker.one_queue import OneQueue
from tests.unit.front_end.amqp.linked_queue import LinkedQueue

UNDECIDED = {
    "no state": encode(None),
    "received": encode(Described(ulong(0x23), [uint(0), ulong(0)])),
}
undecided = pytest.mark.parametrize("state", UNDECIDED.values(), ids=UNDECIDED.keys())


@undecided
@covers("M2", "M12")
async def test_an_unsettled_disposition_that_decides_nothing_keeps_the_lock(state: bytes) -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        number = int(delivery.delivery_id)
        linked.session.settle(number, number, state, False)
        await linked.settle_down()
        assert linked.confirmations() == []
        assert len(queue.fragment.locks) == 1
        assert await queue.peek() == ["a"]


@undecided
@covers("M2", "M12")
async def test_a_decision_after_an_undecided_disposition_counts(state: bytes) -> None:
    async with OneQueue() as queue:
        await queue.send("a")
        linked = LinkedQueue(queue)
        link, _ = linked.receiver()
        (delivery,) = await linked.received(link, 1)
        number = int(delivery.delivery_id)
        linked.session.settle(number, number, state, False)
        linked.session.settle(number, number, ACCEPTED_STATE, False)
        await linked.settle_down()
        assert len(linked.confirmations()) == 1
        assert await queue.peek() == []
