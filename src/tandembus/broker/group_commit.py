"""One group commit: what all fragments have staged is collected, made durable together, and answered.

Sends come last and apart, so that a full store can have the same commit without them. Transactions have a commit of
their own, since nothing of one can be left out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tandembus.broker.applying import apply_all, refuse_sends
from tandembus.broker.collecting import collect_all, collect_transactions, emit_all
from tandembus.broker.fragment import Fragment
from tandembus.broker.loading import load
from tandembus.broker.reading import bodies_of_locks
from tandembus.broker.settlement_bodies import bodies_arrived, take_needing_body, transaction_bodies_arrived
from tandembus.broker.topics import family_of
from tandembus.errors import StoreFull
from tandembus.store.messaging_store import Changes

if TYPE_CHECKING:
    from tandembus.broker.message_broker import MessageBroker

log = logging.getLogger("tandembus.broker")


class GroupCommit:
    def __init__(self, broker: MessageBroker) -> None:
        self._broker = broker
        self._large_count = 0

    async def commit_staged(self, fragments: list[Fragment]) -> list[Fragment]:
        """Returns all fragments that had a part in it."""
        fragments = self._with_one_large(fragments)
        for fragment in fragments:
            if fragment.staged.needing_body:
                await self._read_needed_bodies(fragment)
        changes, arrivals = self._broker.new_changes(), self._broker.new_changes()
        async with self._broker.commit_lock:
            fragments = collect_all(self._broker.open_ones(fragments), changes, arrivals)
            await self._commit(fragments, changes, arrivals)
        self._apply(fragments)
        return fragments

    def _with_one_large(self, fragments: list[Fragment]) -> list[Fragment]:
        """Those with a large message to commit take turns: a commit of many would hold up all others for long."""
        large = [one for one in fragments if one.settings.may_have_large and one.staged.has_large()]
        if len(large) < 2:
            return fragments
        left_out = set(large)
        self._large_count += 1
        left_out.remove(large[self._large_count % len(large)])
        return [one for one in fragments if one not in left_out]

    async def _read_needed_bodies(self, fragment: Fragment) -> None:
        arrived, damaged = await bodies_of_locks(self._broker, fragment, take_needing_body(fragment))
        if not fragment.is_void:
            bodies_arrived(fragment, arrived, damaged)

    async def _commit(self, fragments: list[Fragment], changes: Changes, arrivals: Changes) -> None:
        without_sends = _Sizes(changes)
        _add(changes, arrivals)
        try:
            await self._write(changes)
        except StoreFull as error:
            log.warning("the messaging store is full: sends are refused until there is room")
            self._broker.room.set_short(True)
            without_sends.restore(changes)
            for fragment in fragments:
                refuse_sends(fragment, changes, error)
            await self._write(changes)

    async def _write(self, changes: Changes) -> None:
        """With the marks of all whose operations are part of it."""
        broker = self._broker
        changes.marks = broker.channel_marks.records(broker.clock.now_ms())
        await broker.commit_watched(changes)
        broker.channel_marks.committed()

    def _apply(self, fragments: list[Fragment]) -> None:
        """The commit is durable."""
        self._broker.commit_count += 1
        self._broker.figures.answered(fragments)
        apply_all(fragments)
        for fragment in fragments:
            self._broker.forwarding.look(fragment)

    # Transactions.

    async def commit_transactions(self, fragments: list[Fragment]) -> list[Fragment]:
        """In a commit of their own: nothing of a transaction can be left out of it, so when it does not fit, nothing
        else is to be left out with it."""
        broker = self._broker
        fragments = [one for one in broker.open_ones(fragments) if one.transactions.staged]
        if not fragments:
            return []
        others = [other for fragment in fragments for other in fragment.take_transactions()]
        fragments = list(dict.fromkeys(fragments + others))
        for fragment in fragments:
            arrived, damaged = await bodies_of_locks(broker, fragment, fragment.transactions.needing_body())
            if not fragment.is_void:
                transaction_bodies_arrived(fragment, arrived, damaged)
        changes = broker.new_changes()
        async with broker.commit_lock:
            fragments = broker.open_ones(fragments)
            for fragment in fragments:
                collect_transactions(fragment, changes)
            fragments = emit_all(fragments, changes)
            try:
                await self._write(changes)
            except StoreFull as error:
                await self._roll_back(fragments, error)
                return []
        self._apply(fragments)
        return fragments

    async def _roll_back(self, fragments: list[Fragment], error: StoreFull) -> None:
        """Nothing was written, so the store is as it was before: take up the state of these fragments again. Their
        locks are lost, messages not."""
        broker = self._broker
        log.warning("the messaging store is full: sends are refused until there is room")
        broker.room.set_short(True)
        families = [one for fragment in fragments for one in family_of(fragment)]
        for fragment in dict.fromkeys(families):
            fragment.fail(error)
        await broker.load_marks(broker.store)
        for fragment in dict.fromkeys(families):
            await load(broker, fragment)
            broker.want(fragment)
            broker.forwarding.look(fragment)


class _Sizes:
    """How much stood in the changes before the sends were added."""

    def __init__(self, changes: Changes) -> None:
        self._bodies = len(changes.bodies)
        self._overlays = len(changes.overlays)
        self._schedules = len(changes.schedules)
        self._history = len(changes.history)
        self._states = len(changes.session_states)

    def restore(self, changes: Changes) -> None:
        del changes.bodies[self._bodies :]
        del changes.overlays[self._overlays :]
        del changes.schedules[self._schedules :]
        del changes.history[self._history :]
        del changes.session_states[self._states :]
        if changes.audit is not None:
            changes.audit.more = None
        changes.high_waters = []


def _add(changes: Changes, arrivals: Changes) -> None:
    """What sends bring; high waters come with nothing else."""
    changes.bodies += arrivals.bodies
    changes.overlays += arrivals.overlays
    changes.schedules += arrivals.schedules
    changes.history += arrivals.history
    changes.session_states += arrivals.session_states
    changes.high_waters = arrivals.high_waters
    if changes.audit is not None:
        changes.audit.more = arrivals.audit
