"""One message broker: owns fragments and the store they live in, and runs the commit loop.

Everything staged in one turn of the event loop shares one commit and one sync. At most one commit is under way; while
it runs the next one gathers. When the store fails with an unknown outcome nothing is pretended: all is answered as
failed, all memory of the fragments is dropped, and the store is opened again, first after a second, then ever later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from tandembus.broker.auditing import Audit, AuditSink
from tandembus.broker.budget import Budget
from tandembus.broker.channel_marks import ChannelMarks
from tandembus.broker.forwarding import Forwarding
from tandembus.broker.fragment import Fragment
from tandembus.broker.group_commit import GroupCommit
from tandembus.broker.handing_over import hand_over
from tandembus.broker.housekeeping import check_windows
from tandembus.broker.loading import load
from tandembus.broker.moving import has_transfers
from tandembus.broker.session_locks import send_watchers_away
from tandembus.broker.session_serving import SessionServing
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.store_figures import StoreFigures
from tandembus.broker.store_room import StoreRoom
from tandembus.broker.timers import DueWork
from tandembus.broker.topics import family_of
from tandembus.clock import Clock
from tandembus.errors import BusError, OperationTimeout, StoreDamaged, StoreFull, StoreUnavailable, anew
from tandembus.large_messages import patience_s
from tandembus.store.audit_trail import AuditTrail
from tandembus.store.messaging_store import (
    Changes,
    FragmentHead,
    MessagingStore,
)
from tandembus.tasks import WhenBroken, carry_on, essential

log = logging.getLogger("tandembus.broker")

FIRST_REOPEN_S = 1.0
LAST_REOPEN_S = 30.0
WATCH_S = 0.5


class MessageBroker:
    def __init__(
        self,
        open_store: Callable[[], Awaitable[MessagingStore]],
        clock: Clock,
        budget: Budget | None = None,
        window_bytes: int = 256 << 20,
        commit_outage_s: float = 5.0,
        audit_sink: AuditSink | None = None,
    ) -> None:
        self._open_store = open_store
        self.clock = clock
        self.budget = budget or Budget(clock)
        self._window_bytes = window_bytes
        self._commit_outage_s = commit_outage_s
        self._commit_began_at: float | None = None
        self._store: MessagingStore | None = None
        self.by_key: dict[int, Fragment] = {}
        self._opening: dict[int, asyncio.Task[Fragment]] = {}
        self._dirty: list[Fragment] = []
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self.room = StoreRoom(self.fragments)
        self._failure: StoreUnavailable | None = None
        self._lost: StoreUnavailable | None = None
        """Why the store must be given up, found by somebody beside the commit loop."""
        self._reopen_now = asyncio.Event()
        self._commit_done = asyncio.Event()
        self.commit_lock = asyncio.Lock()
        self._hungry: list[Fragment] = []
        self.open_by_key: Callable[[int], Awaitable[Fragment | None]] = _unknown_fragment
        """Opens the fragment of a key, for due work of fragments that nobody has used yet."""
        self.is_known_fragment: Callable[[int], bool] = _is_known
        """Whether an entity has a fragment of this key, wherever it is."""
        self.on_turn_end: Callable[[], None] = _nothing
        """Called after each turn's answers are written to their links, so that the sockets are flushed once."""
        self.on_failed: list[Callable[[StoreUnavailable], None]] = []
        """Called when the store has failed, after everything was answered so. What was collected and answered with an
        error may have been carried out all the same: the marks say, once the store is open again."""
        self.on_reopened: list[Callable[[], None]] = []
        """Called when it is open again, under another epoch: marks and fragments are what the store says."""
        self.channel_marks = ChannelMarks()
        self.commit_count = 0
        self.figures = StoreFigures()
        self.damage_count = 0
        self.when_broken: WhenBroken = carry_on
        self._commits = GroupCommit(self)
        self._due = DueWork(self, clock)
        self.session_serving = SessionServing(self)
        self.forwarding = Forwarding(self, clock)
        self._forwarder: asyncio.Task[None] | None = None
        self.audit = Audit(self, audit_sink) if audit_sink is not None else None
        """None: nothing is noted."""

    @property
    def store(self) -> MessagingStore:
        """The open store; raises while there is none."""
        if self._store is None:
            raise anew(self._failure or StoreUnavailable("The messaging store is not open."))
        return self._store

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def is_short_of_room(self) -> bool:
        return self.room.is_short

    @property
    def failure(self) -> StoreUnavailable | None:
        return self._failure

    async def start(self) -> None:
        self._store = await self._open_audited()
        await self.load_marks(self._store)
        self.room.check(self._store)
        self._run()

    def start_without_store(self, error: StoreUnavailable) -> None:
        """For a store that cannot be opened: all that needs it is refused, and it is tried again as after a failure."""
        self._failure = StoreUnavailable(str(error))
        self._run()

    def _run(self) -> None:
        self._tasks = [
            essential(self._commit_loop(), "commit loop", self.when_broken),
            essential(self._due.run(), "due work", self.when_broken),
            essential(self._watch_commits(), "watching commits", self.when_broken),
            essential(self.session_serving.run(), "session serving", self.when_broken),
        ]
        if self.audit is not None:
            self._tasks.append(essential(self.audit.run(), "audit", self.when_broken))
        self._forwarder = essential(self.forwarding.run(), "forwarding", self.when_broken)

    async def _open_audited(self) -> MessagingStore:
        store = await self._open_store()
        try:
            if self.audit is not None:
                await self.audit.opened(store)
        except BaseException:
            await store.close()
            raise
        return store

    async def stop(self) -> None:
        """Commit what was accepted, then close."""
        self._is_stopping = True
        await self.stop_forwarding()
        await self.finish_staged()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._store is not None:
            await self._export_rest()
            await self._store.close()
            self._store = None

    async def _export_rest(self) -> None:
        """After an orderly stop the audit's files say it all."""
        try:
            if self.audit is not None:
                await self.audit.finish()
        except (OSError, StoreUnavailable) as error:
            log.error("audit records wait in the messaging store for the next start: %s", error)

    async def stop_forwarding(self) -> None:
        """What is on its way arrives; the rest stays where it is until the next life."""
        if self._forwarder is not None:
            self._forwarder.cancel()
            await asyncio.gather(self._forwarder, return_exceptions=True)

    async def finish_staged(self) -> None:
        """Returns when everything staged is committed and answered, or the store has failed."""
        while self._store is not None and not all(fragment.is_idle() for fragment in self.by_key.values()):
            await self.next_turn()

    async def next_turn(self) -> None:
        """Returns after the next turn of the commit loop."""
        self._commit_done.clear()
        self._work.set()
        await self._commit_done.wait()

    async def between_commits(self, act: Callable[[], None]) -> None:
        """Something that no commit may see happen, such as a jump of the clock: it would count as the time it took."""
        async with self.commit_lock:
            act()

    async def catch_up(self) -> None:
        """Returns when all that is due by the clock as it is now is done: locks, schedules, expiry."""
        await self._due.catch_up()

    # Fragments.

    def fragments(self) -> Sequence[Fragment]:
        return list(self.by_key.values())

    async def open_fragment(self, key: int, index: int, settings: FragmentSettings) -> Fragment:
        """The fragment, read from the store on first use."""
        fragment = self.by_key.get(key)
        if fragment is not None:
            return fragment
        return await self.open_once(key, lambda: self._open(key, index, settings))

    async def open_once(self, key: int, opening: Callable[[], Coroutine[object, object, Fragment]]) -> Fragment:
        """Whoever comes while it is being opened gets the same one."""
        task = self._opening.get(key)
        if task is None:
            task = asyncio.create_task(opening())
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(task)

    def new_fragment(self, key: int, index: int, settings: FragmentSettings) -> Fragment:
        epoch = self._store.epoch if self._store is not None else 0
        fragment = Fragment(key, index, settings, self.clock, epoch, self.budget, self._wake)
        fragment.figures = self.figures.of(key)
        return fragment

    async def take_up(self, fragment: Fragment) -> None:
        """Read its state, and that of all its family. While the store is out of reach it takes nothing and says why;
        it is read with all others when the store is back."""
        try:
            if self._failure is None:
                await load(self, fragment)
        except StoreUnavailable:
            if self._failure is None:
                raise
        if self._failure is not None:
            for one in family_of(fragment):
                one.fail(self._failure)

    async def _open(self, key: int, index: int, settings: FragmentSettings) -> Fragment:
        fragment = self.new_fragment(key, index, settings)
        await self.take_up(fragment)
        self.room.tell(fragment)
        self.by_key[key] = fragment
        self.forwarding.look(fragment)
        return fragment

    async def make_fragment(self, key: int, incarnation: int, index: int) -> None:
        """Durably, so that a fragment the catalog names is always there."""
        changes = Changes()
        changes.heads.append(FragmentHead(key, incarnation, index, False))
        await self.commit_alone(changes)

    def close_fragment(self, key: int) -> bool:
        """Let go of an unused fragment's memory; all of it is in the store. Returns whether it is gone."""
        fragment = self.by_key.get(key)
        if fragment is None:
            return True
        family = family_of(fragment)
        is_in_use = any(one.has_staged() or has_transfers(one) or len(one.locks) > 0 for one in family)
        if is_in_use or fragment.topic is not None:
            return False  # a subscription goes with its topic
        for one in family:
            self.by_key.pop(int(one.key), None)
            one.figures.held = one.holding()
            one.note_oldest()
            one.close()
            send_watchers_away(one)
        return True

    async def commit_alone(self, changes: Changes) -> None:
        """A commit of the broker's own, between two turns."""
        async with self.commit_lock:
            store = self.store
            try:
                await self.commit_watched(changes)
            except StoreFull:
                raise
            except StoreUnavailable as error:
                self.give_up(store, error)
                raise

    def give_up(self, store: MessagingStore, error: StoreUnavailable) -> None:
        """Somebody beside the commit loop found the store unusable: the loop fails and reopens it, even if nobody
        commits anything for long."""
        if self._store is store:
            self._lost = error
            self._work.set()

    def lose_store(self, error: StoreUnavailable) -> None:
        """Whatever is open has failed, although nobody was asking for anything."""
        if self._store is not None:
            self.give_up(self._store, error)

    def reopen_soon(self) -> None:
        """Whatever kept the store from being opened may be over: the next try need not be waited for."""
        self._reopen_now.set()

    # The commit loop.

    def _wake(self, fragment: Fragment) -> None:
        self._dirty.append(fragment)
        self._work.set()

    async def _commit_loop(self) -> None:
        if self._store is None:
            await self._reopen()
        while True:
            if self._work.is_set():
                await asyncio.sleep(0)  # sockets are read between two turns, however much is staged
            await self._work.wait()
            self._work.clear()
            try:
                if self._lost is not None:
                    raise self._lost
                await self._turn()
            except asyncio.CancelledError:
                raise
            except StoreFull as error:
                await self._start_over_as_full(error)
            except Exception as error:
                await self._fail(error)
            self._commit_done.set()

    def want(self, fragment: Fragment) -> None:
        """Somebody has credit for more than is in memory, or drains."""
        if fragment.sessions is not None:
            self.session_serving.want(fragment)
        self._hungry.append(fragment)
        self._work.set()

    async def _turn(self) -> None:
        dirty, hungry = self._dirty, self._hungry
        self._dirty, self._hungry = [], []
        fragments = self.open_ones(dirty)
        for fragment in fragments:
            fragment.is_dirty = False
        plain = [fragment for fragment in fragments if not fragment.has_only_transactions()]
        involved = await self._commits.commit_staged(plain) if plain else []
        involved += await self._commits.commit_transactions(fragments)
        for fragment in self.open_ones(fragments + involved + hungry):
            await hand_over(self, fragment)
            if fragment.has_staged() and not fragment.is_dirty:
                fragment.is_dirty = True
                self._wake(fragment)
        self.on_turn_end()

    def open_ones(self, fragments: list[Fragment]) -> list[Fragment]:
        """Each once, and only those that were not closed or dropped meanwhile."""
        return [one for one in dict.fromkeys(fragments) if self.by_key.get(int(one.key)) is one]

    async def load_marks(self, store: MessagingStore) -> None:
        self.channel_marks.load(list(await store.marks()))

    async def commit_watched(self, changes: Changes) -> None:
        """By whoever has the commit lock. Every commit's time is taken: whichever hangs holds up all that are to
        follow."""
        if self.audit is not None:
            self.audit.write_page(changes, self.store.epoch)
        store = self.store
        self._commit_began_at = began_at = self.clock.monotonic()
        try:
            await store.commit(changes)
        finally:
            self._commit_began_at = None
        self.figures.committed(self.clock.monotonic() - began_at, store.last_commit)
        if self.audit is not None:
            self.audit.committed(changes)

    def new_changes(self) -> Changes:
        """For a commit that accepts or settles messages."""
        changes = Changes()
        if self.audit is not None:
            changes.audit = AuditTrail()
        return changes

    # Trouble.

    async def _watch_commits(self) -> None:
        """In a task of its own: everything else may be waiting for the commit that hangs."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.check_commit()

    @property
    def is_hanging(self) -> bool:
        """A commit takes longer than any commit may."""
        began_at = self._commit_began_at
        if began_at is None:
            return False
        late_s = self.clock.monotonic() - began_at - self._commit_outage_s
        # Large messages may take their time, also on a slow disk.
        return late_s > 0 and late_s > patience_s(sum(one.uncommitted_bytes for one in self.by_key.values()))

    def check_commit(self) -> None:
        """A commit that hangs is an outage, not overload: new sends get a time-out, which clients count as such."""
        is_hanging = self.is_hanging
        for fragment in self.by_key.values():
            if is_hanging and fragment.failure is None:
                fragment.failure = OperationTimeout("The messaging store does not answer.")
            elif not is_hanging and isinstance(fragment.failure, OperationTimeout):
                fragment.failure = None

    def check_windows(self) -> None:
        check_windows(self, self._window_bytes)

    def check_room(self) -> None:
        if self._store is not None:
            self.room.check(self._store)

    async def _start_over_as_full(self, error: StoreFull) -> None:
        """Even what only moves messages does not fit. Nothing was written, so the store is as it was before: take up
        its state again, and leave activating and dead-lettering until there is room. Locks are lost, messages not."""
        log.warning("the messaging store has no room to move messages: only receiving and completing go on")
        self._end_all(error)
        self.room.is_full = True
        try:
            await self.load_marks(self.store)
            for fragment in self.fragments():
                await self._load_again(fragment)
                self.room.tell(fragment)
                self.want(fragment)
                self.forwarding.look(fragment)
        except Exception as failure:
            await self._fail(failure)

    def _end_all(self, error: BusError) -> None:
        """Answer all that is staged or under way as failed; memory of the fragments is void."""
        self._dirty = []
        for fragment in self.by_key.values():
            fragment.fail(error)
        self.on_turn_end()

    async def _fail(self, error: Exception) -> None:
        log.error("the messaging store failed, its last commit's outcome is unknown: %s", error, exc_info=error)
        self._reopen_now.clear()
        self._failure = StoreUnavailable("The messaging store failed.")
        if isinstance(error, StoreUnavailable):
            self._failure = error
        self._end_all(self._failure)
        for tell in self.on_failed:
            tell(self._failure)
        await self._close_store()
        if not self._is_stopping:
            await self._reopen()

    async def _close_store(self) -> None:
        store, self._store = self._store, None
        self._lost = None
        if store is not None:
            try:
                await store.close()
            except Exception:
                log.exception("closing the failed store")

    async def _reopen(self) -> None:
        delay = FIRST_REOPEN_S
        while True:
            await self._wait_to_reopen(delay)
            try:
                self._store = await self._open_audited()
                await self.load_marks(self._store)
                while void := self._void_ones():
                    for fragment in void:
                        await self._load_again(fragment)
                        self.want(fragment)
                break
            except Exception as error:
                log.error("the messaging store cannot be opened: %s", error)
                if isinstance(error, StoreDamaged):
                    self._failure = StoreUnavailable(str(error))
                    delay = LAST_REOPEN_S  # it stays so until somebody replaces the file
                self._end_all(self._failure or StoreUnavailable("The messaging store failed."))
                await self._close_store()
                delay = min(delay * 2, LAST_REOPEN_S)
        self._failure = None
        for fragment in self.fragments():
            self.forwarding.look(fragment)
        log.warning("the messaging store is open again")
        for tell in self.on_reopened:
            tell()

    async def _load_again(self, fragment: Fragment) -> None:
        await load(self, fragment)
        if fragment.topic is None:
            for one in family_of(fragment):
                self.forwarding.hold_again(one)

    async def _wait_to_reopen(self, delay: float) -> None:
        # Not `wait_for`: it would miss that it is cancelled when the time is over in the same turn of the loop.
        timer = asyncio.get_running_loop().call_later(delay, self._reopen_now.set)
        try:
            await self._reopen_now.wait()
        finally:
            timer.cancel()
        self._reopen_now.clear()

    def _void_ones(self) -> list[Fragment]:
        """What is to be read anew; also what came while the store was out of reach, or while others were read."""
        heads = [one for one in self.fragments() if one.topic is None]
        return [head for head in heads if any(one.is_void for one in family_of(head))]


def _nothing() -> None:
    return


def _is_known(_key: int) -> bool:
    return True


async def _unknown_fragment(_key: int) -> Fragment | None:
    return None
