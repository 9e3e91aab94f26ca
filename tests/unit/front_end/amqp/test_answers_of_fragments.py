"""What a commit did for many fragments is told to a client in as few frames as if it were one."""

from __future__ import annotations

from tandembus.amqp.encoding.delivery_states import ACCEPTED_STATE
from tandembus.amqp.encoding.sections import data_section, properties_section
from tandembus.amqp.engine import DispositionReceived
from tandembus.amqp.engine.events import SettlementConfirmed
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.namespace.partitioned_traffic import PartitionedTraffic
from tandembus.namespace.placement import turns_by_store
from tests.covers import covers
from tests.unit.front_end.amqp.linked_queue import LinkedQueue
from tests.unit.namespace.partitioned_queue import PartitionedQueue

COUNT = 48


def send_many(linked: LinkedQueue) -> None:
    link, _ = linked.sender()
    for index in range(COUNT):
        link.send(str(index).encode(), properties_section(f"{index}") + data_section(b"x"), False, None)


def ranges_in(linked: LinkedQueue) -> list[int]:
    """How many sends each frame speaks of."""
    return [len(event.deliveries) for event in linked.at_client if isinstance(event, DispositionReceived)]


@covers("P5", "M12")
async def test_sends_that_went_round_the_fragments_are_accepted_as_one_range() -> None:
    async with PartitionedQueue(broker_count=1) as queue:
        linked = LinkedQueue(queue)
        send_many(linked)
        await linked.settle_down()
        assert ranges_in(linked) == [COUNT]


@covers("P5", "M12")
async def test_of_two_stores_each_accepts_the_runs_that_went_to_it() -> None:
    async with PartitionedQueue(broker_count=2) as queue:
        order = turns_by_store([index % 2 for index in range(FRAGMENT_COUNT)])
        settings, clock = queue.partition_settings, queue.clock
        queue.traffic = PartitionedTraffic(queue.locals(), settings, clock, queue.timers.later, order=order)
        linked = LinkedQueue(queue)
        send_many(linked)
        await linked.settle_down()
        assert ranges_in(linked) == [FRAGMENT_COUNT // 2] * (COUNT * 2 // FRAGMENT_COUNT)
        assert {int(one.main.live_count) for one in queue.fragments} == {COUNT // FRAGMENT_COUNT}


@covers("P6", "M12")
async def test_settlements_of_many_fragments_are_echoed_as_one_range() -> None:
    async with PartitionedQueue(broker_count=1) as queue:
        linked = LinkedQueue(queue)
        send_many(linked)
        await linked.settle_down()
        link, _ = linked.receiver()
        deliveries = await linked.received(link, COUNT)
        ids = [delivery.delivery_id for delivery in deliveries]
        linked.session.settle(ids[0], ids[-1], ACCEPTED_STATE, False)
        await linked.settle_down()
        echoes = [event for event in linked.at_client if isinstance(event, SettlementConfirmed)]
        assert [(one.first, one.last) for one in echoes] == [(ids[0], ids[-1])]
