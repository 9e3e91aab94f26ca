"""Sending dead letters again, when some of them are refused."""

from rich.progress import Progress

from tandembus.amqp.encoding.delivery_states import Outcome
from tandembus.amqp.encoding.sections import application_properties_section, data_section
from tandembus.amqp.engine import AmqpError
from tandembus.cli.deadletter import Source, _resubmit, _resubmit_here, _resubmit_there
from tandembus.cli.target import Target
from tandembus.client import SubQueue, connect
from tandembus.client.upkeep import Resubmitted
from tandembus.errors import InvalidOperation
from tests.covers import covers
from tests.unit.client.fake_namespace import FakeNamespace

DEAD = "orders/$DeadLetterQueue"
REASON = application_properties_section({"DeadLetterReason": "why"})
OUTCOMES = {0x24: "completed", 0x26: "released"}


def source_of(namespace: FakeNamespace) -> Source:
    return Source(Target(namespace.connection_string, None, False), "orders", SubQueue.DEAD_LETTER)


@covers("M3")
async def test_accepted_ones_leave_the_dead_letter_queue_and_refused_ones_are_given_back_at_the_end() -> None:
    async with FakeNamespace() as namespace:
        names = (b"a", b"bad-1", b"b", b"bad-2", b"c")
        namespace.queues[DEAD] = [REASON + data_section(name) for name in names]
        namespace.refusals[b"bad"] = AmqpError("amqp:not-allowed", "not like this")
        progress = Progress(disable=True)
        async with await connect(namespace.connection_string) as bus:
            moved, refusals = await _resubmit(bus, source_of(namespace), "orders", 100, progress, progress.add_task(""))
        assert moved == 3
        assert [type(refusal) for refusal in refusals] == [InvalidOperation, InvalidOperation]
        assert namespace.queues["orders"] == [data_section(name) for name in (b"a", b"b", b"c")]
        settled = [(first, OUTCOMES[o.code]) for first, _, o in namespace.settled if isinstance(o, Outcome)]
        assert settled == [(0, "completed"), (2, "completed"), (4, "completed"), (1, "released"), (3, "released")]


@covers("M3")
async def test_a_service_that_cannot_do_it_by_itself_is_asked_the_usual_way() -> None:
    async with FakeNamespace() as namespace:
        progress = Progress(disable=True)
        source = source_of(namespace)
        task = progress.add_task("")
        assert await _resubmit_there(source, "orders", 5, progress, task) is None
        namespace.queues[DEAD] = [REASON + data_section(b"a")]
        outcome = await _resubmit_here(source, "orders", 5, progress, task)
        assert outcome == Resubmitted(1, 0)
        assert namespace.queues["orders"] == [data_section(b"a")]


@covers("M3")
async def test_no_more_are_taken_than_were_asked_for() -> None:
    async with FakeNamespace() as namespace:
        namespace.queues[DEAD] = [data_section(b"%d" % number) for number in range(500)]
        progress = Progress(disable=True)
        async with await connect(namespace.connection_string) as bus:
            moved, _ = await _resubmit(bus, source_of(namespace), "orders", 250, progress, progress.add_task(""))
        assert moved == 250
        assert len(namespace.queues["orders"]) == 250
        assert len(namespace.queues[DEAD]) == 250
