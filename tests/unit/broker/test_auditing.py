"""The audit: every message that is accepted has a record of the same commit, and so has whatever becomes of it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from tandembus.amqp.encoding.sections import application_properties_section, data_section, properties_section
from tandembus.broker import browsing
from tandembus.broker.dropping import drop_fragments
from tandembus.broker.locks import COMPLETE
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.transactions import TransactionSettlement
from tandembus.clock import ManualClock
from tandembus.errors import StoreFull
from tandembus.message import parse_message
from tandembus.store.audit_trail import BEGAN
from tandembus.store.memory import Fault, MemoryDisk
from tandembus.store.messaging_store import DEAD_LETTER, MAIN, AuditPage
from tests.covers import covers
from tests.unit.broker.audited import Comparison, KeepingSink
from tests.unit.broker.one_queue import KEY, OneQueue, message, ping, small
from tests.unit.broker.one_topic import ALL, OneTopic, rule_set
from tests.unit.broker.several_queues import SeveralQueues, settings


class Audited:
    """A queue whose audit is compared with its store behind every commit."""

    def __init__(self, settings: FragmentSettings | None = None, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.sink = KeepingSink()
        self.comparison = Comparison(self.disk)
        self.queue = OneQueue(settings, self.disk, audit_sink=self.sink)

    def counts(self) -> Counter[str]:
        assert self.comparison.disagreement is None
        return Counter(self.sink.kinds(self.disk))


@covers("D5")
async def test_each_accepted_message_and_each_end_has_one_record() -> None:
    audited = Audited(small(max_delivery_count=1, duplicate_window_ms=60_000))
    async with audited.queue as queue:
        await queue.send("completed", "dead", "failed", "deleted", "left")
        receiver = queue.receiver()
        await queue.complete(await receiver.take_one())
        await queue.dead_letter(await receiver.take_one(), "bad")
        await queue.abandon(await receiver.take_one())
        assert await browsing.delete_batch(queue.broker, queue.fragment, MAIN, 1, queue.clock.now_ms() + 1) == 1
        await queue.send("left")
        queue.stage(ping())
        await queue.quiet()
    counts = audited.counts()
    assert counts == {
        "accepted": 5,
        "duplicate": 1,
        "completed": 1,
        "dead_lettered": 2,
        "dead_letter": 2,
        "removed": 1,
    }


@covers("D5")
async def test_time_to_live_schedules_and_receive_and_delete_are_recorded() -> None:
    audited = Audited()
    async with audited.queue as queue:
        await queue.send("short", ttl_ms=1000)
        await queue.schedule("later", 10.0)
        cancelled = await queue.schedule("never", 10.0)
        await browsing.cancel_scheduled(queue.broker, queue.fragment, [cancelled])
        await queue.pass_time(20.0)
        assert await queue.receiver(is_destructive=True).take(5) == ["later"]
    assert audited.counts() == {
        "accepted": 1,
        "scheduled": 2,
        "cancelled": 1,
        "expired": 1,
        "left": 1,
        "activated": 1,
        "removed": 1,
    }


@covers("D5")
async def test_a_record_tells_id_session_and_for_a_backlog_the_entity_it_is_for() -> None:
    sink, backlog = KeepingSink(), small()
    backlog.path = "contoso/x-servicebus-transfer/0"
    async with OneQueue(backlog, audit_sink=sink) as queue:
        payload = properties_section("id-7") + application_properties_section(
            {"x-ms-path": "orders", "x-ms-sessionid": "s1"}
        )
        queue.stage(parse_message(payload + data_section(b"")))
        queue.stage(message("plain", session_id="s2"))
        await queue.quiet()
        first, second = sink.entries(queue.disk)
        assert (first.message_id, first.session_id, first.path) == ("id-7", "s1", "orders")
        assert (second.message_id, second.session_id, second.path) == ("plain", "s2", "")


@covers("D5")
async def test_text_that_is_none_holds_up_neither_the_queue_nor_the_audit() -> None:
    sink, backlog = KeepingSink(), small()
    backlog.path = "contoso/x-servicebus-transfer/0"
    no_text = b"\xff\xfe"
    bad_id = b"\x00\x53\x73\xc0\x05\x01\xa1\x02" + no_text
    bad_property = b"\x00\x53\x74\xc1\x08\x02\xa1\x01k\xa1\x02" + no_text
    async with OneQueue(backlog, audit_sink=sink) as queue:
        first = queue.stage(parse_message(bad_id + data_section(b"")))
        second = queue.stage(parse_message(properties_section("id-7") + bad_property + data_section(b"")))
        await queue.quiet()
        assert first.is_accepted
        assert second.is_accepted
        assert [entry.message_id for entry in sink.entries(queue.disk)] == ["a102fffe", "id-7"]


@covers("D5")
async def test_a_transaction_is_recorded_as_a_whole_or_not_at_all() -> None:
    audited = Audited()
    async with audited.queue as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.fault_next(Fault.FULL)
        refused = queue.discharge([message("b")], TransactionSettlement(lock, COMPLETE))
        assert isinstance(await refused.wait(), StoreFull)
        queue.broker.room.set_short(False)
        assert audited.counts() == {"accepted": 1}
        lock = await queue.receiver().take_one()
        assert await queue.discharge([message("b")], TransactionSettlement(lock, COMPLETE)).wait() is None
    assert audited.counts() == {"accepted": 2, "completed": 1}


@covers("D5")
async def test_a_full_store_leaves_refused_sends_out_and_settles_with_a_record() -> None:
    audited = Audited()
    async with audited.queue as queue:
        await queue.send("a")
        lock = await queue.receiver().take_one()
        queue.fault_next(Fault.FULL)
        settled, refused = queue.settle(lock, COMPLETE), queue.stage(message("b"))
        await queue.quiet()
        assert settled.is_accepted
        assert isinstance(refused.error, StoreFull)
    assert audited.counts() == {"accepted": 1, "completed": 1}


@covers("D5")
@pytest.mark.parametrize("fault", [Fault.UNKNOWN_LOST, Fault.UNKNOWN_KEPT])
async def test_whichever_commit_fails_records_and_messages_agree(fault: Fault) -> None:
    for failing in range(3, 14):
        audited = Audited()
        audited.disk.faults[failing] = fault
        await one_life(audited.queue)
        audited.disk.faults.clear()
        async with await audited.queue.after_crash() as queue:
            await use(queue)
            left = await queue.peek()
        counts = audited.counts()
        assert counts["accepted"] == len(left) + counts["completed"] + counts["dead_lettered"] + counts["expired"]


async def one_life(queue: OneQueue) -> None:
    """Until the store fails, or all is done."""
    await queue.__aenter__()
    work = asyncio.ensure_future(use(queue))
    failed = asyncio.ensure_future(queue.failed())
    await asyncio.wait((work, failed), return_when=asyncio.FIRST_COMPLETED)
    for task in (work, failed):
        task.cancel()
    await asyncio.gather(work, failed, return_exceptions=True)


async def use(queue: OneQueue) -> None:
    """A commit for each step."""
    await queue.send("a")
    await queue.send("b", "c")
    await queue.send("short", ttl_ms=1000)
    receiver = queue.receiver()
    await queue.complete(await receiver.take_one())
    await queue.dead_letter(await receiver.take_one())
    await queue.pass_time(2.0)
    await queue.send("d")


@covers("D5")
async def test_a_topic_records_what_it_published_and_each_subscription_its_copies() -> None:
    disk, sink = MemoryDisk(), KeepingSink()
    comparison = Comparison(disk, [KEY])
    subscribed = {8: (small(), ALL), 9: (small(), rule_set("x = 1")), 10: (small(), rule_set("1 = 1", "SET x = 2"))}
    async with OneTopic(subscribed, disk=disk, audit_sink=sink) as topic:
        await topic.publish(message("a"), message("b"))
        await topic.schedule("later", 5.0)
        await topic.pass_time(10.0)
        await topic.subscription(8).complete(await topic.subscription(8).receiver().take_one())
        await topic.unsubscribe(10)
        await drop_fragments(topic.broker, [10])
    assert comparison.disagreement is None
    counts = Counter(sink.kinds(disk))
    assert counts == {
        "published": 2,
        "scheduled": 1,
        "distributed": 1,
        "copied": 6,
        "completed": 1,
        "dropped": 4,
    }


@covers("D5")
async def test_what_is_forwarded_leaves_one_entity_and_arrives_at_the_other() -> None:
    disk, sink = MemoryDisk(), KeepingSink()
    comparison = Comparison(disk)
    queues = SeveralQueues({"a": settings(forward_to="b"), "b": settings()}, disk, audit_sink=sink)
    async with queues:
        await queues.send("a", "1", "2")
    assert comparison.disagreement is None
    assert Counter(sink.kinds(disk)) == {"accepted": 2, "forwarded": 2, "arrived": 2}


@covers("D5")
async def test_records_are_handed_on_once_and_leave_the_store_but_for_the_newest() -> None:
    audited = Audited()
    async with audited.queue as queue:
        audit = queue.broker.audit
        assert audit is not None
        for body in ("a", "b", "c"):
            await queue.send(body)
        await audit.export()
        await audit.export()
        assert len(audited.disk.audit_pages) == 1
        assert max(audited.disk.audit_pages) == max(audited.sink.pages)
        async with await queue.after_crash() as again:
            await again.send("d")
    assert audited.counts()["accepted"] == 4


class SlowSink(KeepingSink):
    """Writes when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.go_on = threading.Event()

    def append(self, store_id: bytes, pages: Sequence[AuditPage]) -> None:
        self.has_begun.set()
        self.go_on.wait()
        super().append(store_id, pages)


@covers("D5")
async def test_whoever_stops_while_records_are_handed_on_does_not_hand_them_on_again() -> None:
    sink = SlowSink()
    async with OneQueue(audit_sink=sink) as queue:
        await queue.send("a")
        assert queue.broker.audit is not None
        exporting = asyncio.create_task(queue.broker.audit.export())
        await asyncio.to_thread(sink.has_begun.wait)
        exporting.cancel()
        await asyncio.gather(exporting, return_exceptions=True)
        stopping = asyncio.create_task(queue.broker.stop())
        await asyncio.sleep(0)
        sink.go_on.set()
        await stopping
    assert sink.kinds(queue.disk) == ["accepted"]


@covers("D5")
async def test_an_export_that_is_interrupted_is_finished_before_the_next() -> None:
    audited = Audited()
    audited.sink.may_write.clear()
    async with audited.queue as queue:
        audit = queue.broker.audit
        assert audit is not None
        await queue.send("a")
        export = asyncio.ensure_future(audit.export())
        await asyncio.to_thread(audited.sink.is_writing.wait)
        export.cancel()
        await asyncio.gather(export, return_exceptions=True)
        again = asyncio.ensure_future(audit.export())
        await asyncio.sleep(0)
        audited.sink.may_write.set()
        await again
    assert audited.counts() == {"accepted": 1}


@covers("D5")
async def test_records_wait_in_the_store_while_they_cannot_be_written() -> None:
    audited = Audited()
    async with audited.queue as queue:
        audit = queue.broker.audit
        assert audit is not None
        audited.sink.error = OSError("no space left")
        await queue.send("a")
        with pytest.raises(OSError, match="no space"):
            await audit.export()
        assert audited.sink.pages == {}
        audited.sink.error = None
        await audit.export()
    assert audited.counts() == {"accepted": 1}
    assert sorted(audited.sink.pages) == [1, 2]


@covers("D5")
async def test_the_end_of_the_records_is_noted_at_an_orderly_stop_and_at_no_other() -> None:
    audited = Audited()
    async with audited.queue as queue:
        await queue.send("a")
        again = await queue.after_crash()
    assert audited.sink.finished is None, "killed"
    async with again as queue:
        await queue.send("b")
        audited.sink.error = OSError("no space left")
    assert audited.sink.finished is None, "the rest could not be handed on"
    audited.sink.error = None
    async with await again.after_crash() as queue:
        await queue.send("c")
    assert audited.sink.finished == max(audited.sink.pages) == max(audited.disk.audit_pages)
    async with await queue.after_crash():
        assert audited.sink.finished is None, "from the beginning, before anything is accepted"


@covers("D5")
async def test_records_of_a_store_that_was_put_back_go_on_behind_those_in_the_files() -> None:
    sink, disk = KeepingSink(), MemoryDisk()
    async with OneQueue(disk=disk, audit_sink=sink) as queue:
        await queue.send("before")
    copied = dict(disk.audit_pages), dict(disk.bodies), dict(disk.blocks), disk.epoch
    async with OneQueue(disk=disk, audit_sink=sink) as queue:
        await queue.send("gone")
        await queue.send("gone too")
    disk.audit_pages, disk.bodies, disk.blocks, disk.epoch = copied
    async with OneQueue(disk=disk, audit_sink=sink) as queue:
        await queue.send("after")
    assert sink.kinds(disk) == ["accepted", "accepted", "accepted", "began", "accepted"]
    assert sink.entries(disk)[-1].message_id == "after"


@covers("D5")
async def test_an_audit_that_is_switched_on_says_what_it_found() -> None:
    disk, clock, sink = MemoryDisk(), ManualClock(), KeepingSink()
    async with OneQueue(FragmentSettings(), disk, clock) as queue:
        await queue.send("a", "b")
        await queue.complete(await queue.receiver().take_one())
        assert disk.audit_pages == {}
    async with OneQueue(FragmentSettings(), disk, clock, audit_sink=sink) as queue:
        await queue.send("c")
    begun = [entry for entry in sink.entries(disk) if entry.kind == BEGAN]
    assert [(entry.fragment, entry.lane, entry.number, entry.count) for entry in begun] == [(KEY, MAIN, 3, 1)]
    async with OneQueue(FragmentSettings(), disk, clock, audit_sink=sink) as queue:
        await queue.dead_letter(await queue.receiver().take_one())
    assert len([entry for entry in sink.entries(disk) if entry.kind == BEGAN]) == 1
    assert [entry.lane for entry in sink.entries(disk)][-2:] == [MAIN, DEAD_LETTER]
