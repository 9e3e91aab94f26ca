"""The end of one life of a fragment's memory, when its store is gone, and the beginning of the next, from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from tandembus.broker.applying import forget_commit
from tandembus.broker.duplicates import DuplicateDetection, RecentIds
from tandembus.broker.lane import Lane
from tandembus.broker.locks import LockTable
from tandembus.broker.session_locks import lose_all_sessions
from tandembus.broker.sessions import SessionIndex
from tandembus.broker.settings import FragmentSettings
from tandembus.errors import BusError
from tandembus.store.messaging_store import DEAD_LETTER, LANES, MAIN, NUMBER_BITS, TRANSFER, BlockRecord

if TYPE_CHECKING:
    from tandembus.broker.fragment import Fragment

BACKLOG_PART: Final = "/x-servicebus-transfer/"
"""In the names of queues that hold messages for entities of another namespace."""


def fail(fragment: Fragment, error: BusError) -> None:
    fragment.failure = error
    fragment.is_void = True
    fragment.is_dirty = False
    for operation in fragment.staged.committing_sends + fragment.staged.sends:
        operation.reply.sent(operation, error)
    for removal in fragment.staged.committing_removals + fragment.take_removals():
        # Gone or not, it is not delivered: that is what the mode means. The credit is still the client's.
        removal.consumer.removing_count -= 1
        removal.consumer.credit += 1
    locks = fragment.staged.locks() + fragment.moves.clear()
    for lock in locks:
        reply = lock.reply
        if reply is not None:
            reply.settled(lock, error)
    for state in fragment.staged.committing_states + fragment.staged.session_states:
        state.reply(error)
    for promise in fragment.staged.committing_promises + fragment.staged.promises:
        promise.reply(error)
    for asked in fragment.staged.committing_ledger + fragment.staged.ledger:
        asked.answer(error)
    lose_all_sessions(fragment, error)
    fragment.locks.void()
    fragment.staged.forget_waiting()
    fragment.budget.uncommitted_bytes -= fragment.counted_uncommitted_bytes
    fragment.uncommitted_bytes = 0
    fragment.counted_uncommitted_bytes = 0
    forget_commit(fragment)
    for transaction in fragment.transactions.clear():
        transaction.reply.discharged(transaction, error)
    fragment.let_go()
    for consumers in fragment.lane_consumers:
        consumers.lose_locks()


def start_over(fragment: Fragment, epoch: int, blocks: list[list[BlockRecord]], recent_ids: RecentIds | None) -> None:
    fragment.let_go()
    if recent_ids is not None:
        settings = fragment.settings
        fragment.duplicates = DuplicateDetection(
            fragment.key, recent_ids, fragment.budget, settings.is_partitioned, settings.ignores_key_case
        )
    topic, fan_out = fragment.topic, fragment.fan_out
    source = topic.main if topic is not None else None
    fragment.lanes = new_lanes(fragment.key, fragment.index, fragment.settings, source)
    fragment.main = fragment.lanes[MAIN]
    fragment.dead_letter = fragment.lanes[DEAD_LETTER]
    fragment.transfer = fragment.lanes[TRANSFER]
    fragment.subscription_bytes = 0
    fragment.counted_bytes = 0
    if fan_out is not None:
        fan_out.forget()
    fragment.main.newest_enqueued_at = fragment.clock.now_ms()
    fragment.locks = LockTable(int(fragment.index), epoch)
    fragment.partners = []
    for code in range(len(fragment.lanes)):
        fragment.lanes[code].load(blocks[code])
        fragment.lane_consumers[code].start_over(fragment.lanes[code], fragment.locks)
    fragment.may_have_orphans()
    if fragment.keeps_orphans or topic is not None:
        fragment.main.refer_all()
    if topic is not None:
        fragment.counted_bytes = fragment.live_bytes() - fragment.main.live_bytes
        topic.subscription_bytes += fragment.counted_bytes
    if fragment.settings.requires_session:
        watchers = fragment.sessions.watchers if fragment.sessions is not None else []
        fragment.sessions = SessionIndex(fragment.main, fragment.settings)
        fragment.sessions.watchers = watchers
        fragment.lane_consumers[MAIN].sessions = fragment.sessions
    fragment.failure = None
    fragment.is_void = False


def new_lanes(key: i64, index: i64, settings: FragmentSettings, source: Lane | None) -> list[Lane]:
    """In the order of their codes."""
    lanes: list[Lane] = []
    is_backlog = BACKLOG_PART in settings.path.lower()
    for code in LANES:
        lane = Lane(key, code, settings.block_size, index << NUMBER_BITS, source if code == MAIN else None)
        lane.path = settings.path
        lane.is_backlog = is_backlog
        lane.ignores_key_case = settings.ignores_key_case
        lanes.append(lane)
    return lanes
