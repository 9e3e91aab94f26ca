"""One message broker: owns fragments and the store they live in, and runs the commit loop.

Everything staged in one turn of the event loop shares one commit and one sync. At most one commit is under way; while
it runs the next one gathers. When the store fails with an unknown outcome nothing is pretended: all is answered as
failed, all memory of the fragments is dropped, and the store is opened again, first after a second, then ever later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from tandembus.broker.applying import applied, refuse_sends, show
from tandembus.broker.budget import Budget
from tandembus.broker.collecting import collect, collect_sends, collect_transactions, emit, take_partners
from tandembus.broker.consumers import LaneConsumers
from tandembus.broker.duplicates import TRIM_SLICE, RecentIds
from tandembus.broker.forwarding import Forwarding
from tandembus.broker.fragment import Fragment
from tandembus.broker.lane import Lane
from tandembus.broker.locks import MessageLock
from tandembus.broker.moving import has_transfers
from tandembus.broker.session_reading import load_tail, serve_sessions
from tandembus.broker.settings import FragmentSettings
from tandembus.broker.subscriptions import FanOut
from tandembus.broker.timers import DueWork
from tandembus.clock import Clock
from tandembus.errors import BusError, EntityNotFound, OperationTimeout, StoreFull, StoreUnavailable
from tandembus.message import Message
from tandembus.rules import RuleSet
from tandembus.store.messaging_store import (
    LANES,
    NEVER,
    SCHEDULED,
    BodyRange,
    Changes,
    Damage,
    FragmentHead,
    HistoryTrim,
    MessagingStore,
    Overlay,
    Place,
    SessionState,
)
from tandembus.tasks import WhenBroken, carry_on, essential

log = logging.getLogger("tandembus.broker")

FIRST_REOPEN_S = 1.0
LAST_REOPEN_S = 30.0
DROP_SLICE = 1000
"""Bodies of a deleted entity that go in one commit, so that a huge deletion holds nobody up."""
THIN_DEBT = 64
HISTORY_PAGE_BYTES = 64 * 1024
"""Message ids read at once when a fragment is opened: others get their turn in between."""
SPARSE = 4
"""Numbers that are spread wider than this, for each of them, are no range."""
WATCH_S = 0.5

SubscriptionPart = tuple[int, FragmentSettings, RuleSet]
"""What a topic needs to know of a subscription: its fragment's key, its settings, its rules."""


class MessageBroker:
    def __init__(
        self,
        open_store: Callable[[], Awaitable[MessagingStore]],
        clock: Clock,
        budget: Budget | None = None,
        window_bytes: int = 256 << 20,
        commit_outage_s: float = 5.0,
    ) -> None:
        self._open_store = open_store
        self._clock = clock
        self._budget = budget or Budget(clock)
        self._window_bytes = window_bytes
        self._commit_outage_s = commit_outage_s
        self._commit_began_at: float | None = None
        self._store: MessagingStore | None = None
        self._fragments: dict[int, Fragment] = {}
        self._opening: dict[int, asyncio.Task[Fragment]] = {}
        self._dirty: list[Fragment] = []
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._is_short_of_room = False
        self._is_full = False
        self._failure: StoreUnavailable | None = None
        self._lost: StoreUnavailable | None = None
        """Why the store must be given up, found by somebody beside the commit loop."""
        self._commit_done = asyncio.Event()
        self._commit_lock = asyncio.Lock()
        self._hungry: list[Fragment] = []
        self.open_by_key: Callable[[int], Awaitable[Fragment | None]] = _unknown_fragment
        """Opens the fragment of a key, for due work of fragments that nobody has used yet."""
        self.on_turn_end: Callable[[], None] = _nothing
        """Called after each turn's answers are written to their links, so that the sockets are flushed once."""
        self.commit_count = 0
        self.damage_count = 0
        self.when_broken: WhenBroken = carry_on
        self._due = DueWork(self, clock)
        self.forwarding = Forwarding(self, clock)
        self._forwarder: asyncio.Task[None] | None = None

    @property
    def store(self) -> MessagingStore:
        """The open store; raises while there is none."""
        if self._store is None:
            raise self._failure or StoreUnavailable("The messaging store is not open.")
        return self._store

    @property
    def is_short_of_room(self) -> bool:
        return self._is_short_of_room

    @property
    def failure(self) -> StoreUnavailable | None:
        return self._failure

    async def start(self) -> None:
        self._store = await self._open_store()
        self._check_room()
        self._tasks = [
            essential(self._commit_loop(), "commit loop", self.when_broken),
            essential(self._due.run(), "due work", self.when_broken),
            essential(self._watch_commits(), "watching commits", self.when_broken),
        ]
        self._forwarder = essential(self.forwarding.run(), "forwarding", self.when_broken)

    async def stop(self) -> None:
        """Commit what was accepted, then close."""
        self._is_stopping = True
        await self.stop_forwarding()
        await self.finish_staged()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def stop_forwarding(self) -> None:
        """What is on its way arrives; the rest stays where it is until the next life."""
        if self._forwarder is not None:
            self._forwarder.cancel()
            await asyncio.gather(self._forwarder, return_exceptions=True)

    async def finish_staged(self) -> None:
        """Returns when everything staged is committed and answered, or the store has failed."""
        while self._store is not None and not all(fragment.is_idle() for fragment in self._fragments.values()):
            await self.next_turn()

    async def next_turn(self) -> None:
        """Returns after the next turn of the commit loop."""
        self._commit_done.clear()
        self._work.set()
        await self._commit_done.wait()

    async def between_commits(self, act: Callable[[], None]) -> None:
        """Something that no commit may see happen, such as a jump of the clock: it would count as the time it took."""
        async with self._commit_lock:
            act()

    async def catch_up(self) -> None:
        """Returns when all that is due by the clock as it is now is done: locks, schedules, expiry."""
        await self._due.catch_up()

    # Fragments.

    def fragments(self) -> Sequence[Fragment]:
        return list(self._fragments.values())

    async def open_fragment(self, key: int, index: int, settings: FragmentSettings) -> Fragment:
        """The fragment, read from the store on first use."""
        fragment = self._fragments.get(key)
        if fragment is not None:
            return fragment
        return await self._open_once(key, lambda: self._open(key, index, settings))

    async def _open_once(self, key: int, opening: Callable[[], Coroutine[object, object, Fragment]]) -> Fragment:
        """Whoever comes while it is being opened gets the same one."""
        task = self._opening.get(key)
        if task is None:
            task = asyncio.create_task(opening())
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(task)

    def _new_fragment(self, key: int, index: int, settings: FragmentSettings) -> Fragment:
        return Fragment(key, index, settings, self._clock, self.store.epoch, self._budget, self._wake)

    async def _open(self, key: int, index: int, settings: FragmentSettings) -> Fragment:
        fragment = self._new_fragment(key, index, settings)
        await self._load(fragment)
        self._tell_room(fragment)
        self._fragments[key] = fragment
        self.forwarding.look(fragment)
        return fragment

    async def _load(self, fragment: Fragment) -> None:
        """A topic with all its subscriptions: they use its numbers."""
        if fragment.topic is not None:
            return
        await self._load_one(fragment)
        if fragment.fan_out is not None:
            for subscription in list(fragment.fan_out.subscriptions.values()):
                await self._load_one(subscription)

    async def _load_one(self, fragment: Fragment) -> None:
        store = self.store
        key = int(fragment.key)
        recent_ids = await self._load_recent_ids(fragment)
        fragment.start_over(store.epoch, [list(await store.blocks(key, lane)) for lane in LANES], recent_ids)
        if fragment.needs_columns():
            await load_tail(self, fragment)

    async def _load_recent_ids(self, fragment: Fragment) -> RecentIds | None:
        window_ms = int(fragment.settings.duplicate_window_ms)
        if window_ms == 0:
            return None
        recent_ids = RecentIds()
        at_ms, number = max(self._clock.now_ms() - window_ms + 1, 0), 0
        while page := await self.store.history(int(fragment.key), at_ms, number, HISTORY_PAGE_BYTES):
            for record in page:
                recent_ids.load(record)
            at_ms, number = page[-1].at_ms, page[-1].number + 1
            await asyncio.sleep(0)
        return recent_ids

    async def trim_history(self, fragment: Fragment) -> None:
        """Message ids whose time is over leave the memory, and soon the store."""
        duplicates = fragment.duplicates
        if duplicates is None:
            return
        until_ms = self._clock.now_ms() - int(fragment.settings.duplicate_window_ms)
        while duplicates.forget(until_ms):
            await asyncio.sleep(0)
            if fragment.duplicates is not duplicates:
                return
        if duplicates.may_be_stale:
            duplicates.may_be_stale = False
            earliest = await self.store.history(int(fragment.key), 0, 0, 0)
            if earliest and earliest[0].at_ms <= until_ms:
                duplicates.may_be_stale = True
                fragment.trim_history()

    # Topics.

    async def open_topic(
        self,
        key: int,
        index: int,
        settings: FragmentSettings,
        subscriptions: Sequence[SubscriptionPart],
        keeps_orphans: bool = False,
    ) -> Fragment:
        """The topic's fragment with those of all its subscriptions, read from the store on first use. Messages that
        none of them has are dropped, unless there may be others."""
        fragment = self._fragments.get(key)
        if fragment is not None:
            return fragment
        return await self._open_once(key, lambda: self._open_topic(key, index, settings, subscriptions, keeps_orphans))

    async def _open_topic(
        self,
        key: int,
        index: int,
        settings: FragmentSettings,
        subscriptions: Sequence[SubscriptionPart],
        keeps_orphans: bool,
    ) -> Fragment:
        topic = self._new_fragment(key, index, settings)
        topic.keeps_orphans = keeps_orphans
        topic.fan_out = FanOut(topic)
        for part in subscriptions:
            self._new_subscription(topic, topic.fan_out, part)
        await self._load(topic)
        for fragment in (topic, *topic.fan_out.subscriptions.values()):
            self._tell_room(fragment)
            self._fragments[int(fragment.key)] = fragment
            self.forwarding.look(fragment)
        if topic.has_staged():
            topic.look_for_orphans()  # a crash may have come between a subscription's end and that of its messages
        return topic

    def _new_subscription(self, topic: Fragment, fan_out: FanOut, part: SubscriptionPart) -> Fragment:
        key, settings, rules = part
        fragment = self._new_fragment(key, int(topic.index), settings)
        fragment.topic = topic
        fragment.rules = rules
        fan_out.subscriptions[key] = fragment
        return fragment

    def add_subscription(self, topic: Fragment, key: int, settings: FragmentSettings, rules: RuleSet) -> Fragment:
        """A new subscription gets what is sent from now on; its fragment was made before."""
        assert topic.fan_out is not None
        fragment = self._new_subscription(topic, topic.fan_out, (key, settings, rules))
        fragment.start_over(self.store.epoch, [[] for _ in LANES], None)
        if settings.requires_session:
            topic.main.begin_column()
        self._tell_room(fragment)
        self._fragments[key] = fragment
        return fragment

    async def drop_subscription(self, topic: Fragment, key: int) -> None:
        """What only this subscription had is gone; the rest stays with the others. Its own records go with its
        fragment, see `drop_fragment`."""
        assert topic.fan_out is not None
        fragment = topic.fan_out.subscriptions.pop(key, None)
        if fragment is None:
            return
        self._fragments.pop(key, None)
        fragment.fail(EntityNotFound("The messaging entity was deleted."))
        async with self._commit_lock:
            pass  # a commit under way may still give it messages
        number = 1
        while numbers := fragment.main.next_live(number, DROP_SLICE):
            for one in numbers:
                topic.main.unrefer(one)
            number = numbers[-1] + 1
            await asyncio.sleep(0)
        topic.look_for_orphans()

    async def make_fragment(self, key: int, incarnation: int, index: int) -> None:
        """Durably, so that a fragment the catalog names is always there."""
        changes = Changes()
        changes.heads.append(FragmentHead(key, incarnation, index, False))
        await self._commit_alone(changes)

    def close_fragment(self, key: int) -> bool:
        """Let go of an unused fragment's memory; all of it is in the store. Returns whether it is gone."""
        fragment = self._fragments.get(key)
        if fragment is None:
            return True
        family = _family(fragment)
        is_in_use = any(one.has_staged() or has_transfers(one) or len(one.locks) > 0 for one in family)
        if is_in_use or fragment.topic is not None:
            return False  # a subscription goes with its topic
        for one in family:
            self._fragments.pop(int(one.key), None)
            one.is_closed = True
            one.let_go()
        return True

    async def drop_fragment(self, key: int) -> None:
        """Delete a fragment with all it holds, in slices."""
        fragment = self._fragments.get(key)
        if fragment is not None and fragment.topic is not None:
            await self.drop_subscription(fragment.topic, key)
        elif fragment is not None:
            for one in _family(fragment):
                self._fragments.pop(int(one.key), None)
                one.fail(EntityNotFound("The messaging entity was deleted."))
        async with self._commit_lock:
            pass  # a commit under way may still write to it
        for lane in LANES:
            while numbers := await self.store.bodies_left(key, lane, DROP_SLICE):
                changes = Changes()
                changes.dropped_bodies.append(BodyRange(key, lane, numbers[0], numbers[-1]))
                await self._commit_alone(changes)
                await asyncio.sleep(0)
            await self._drop_records(key, lane)
        while await self.store.history(key, 0, 0, 0):
            changes = Changes()
            changes.trimmed_history.append(HistoryTrim(key, 1 << 62, TRIM_SLICE))
            await self._commit_alone(changes)
            await asyncio.sleep(0)
        await self._drop_session_states(key)
        changes = Changes()
        changes.dropped_heads.append(key)
        await self._commit_alone(changes)

    async def _drop_records(self, key: int, lane: int) -> None:
        changes = Changes()
        changes.dropped_blocks = [Place(key, lane, record.block) for record in await self.store.blocks(key, lane)]
        overlays = await self.store.overlays(key, lane, 0, (1 << 48) - 1)
        changes.dropped_overlays = [Place(key, lane, overlay.number) for overlay in overlays]
        changes.dropped_columns = [BodyRange(key, lane, 0, (1 << 48) - 1)]
        await self._commit_alone(changes)

    async def _drop_session_states(self, key: int) -> None:
        while states := await self.store.session_states(key, None, DROP_SLICE):
            changes = Changes()
            changes.session_states = [SessionState(key, one.session_id, None, 0) for one in states]
            await self._commit_alone(changes)
            await asyncio.sleep(0)

    async def _commit_alone(self, changes: Changes) -> None:
        """A commit of the broker's own, between two turns."""
        async with self._commit_lock:
            store = self.store
            try:
                await self._watched(store, changes)
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

    async def forget_due(self, changes: Changes) -> None:
        """Due entries that lead nowhere any more."""
        await self._commit_alone(changes)

    async def thin(self) -> bool:
        """While nothing else is going on: free the bodies of settled messages that stragglers keep in place. Only bits
        that are durable count, hence under the commit lock. Returns whether there was anything to free."""
        async with self._commit_lock:
            changes = Changes()
            for fragment in self._fragments.values():
                if fragment.is_void:
                    continue  # its bits may be those of a commit that never happened
                if any(lane.thin(changes, THIN_DEBT) for lane in fragment.lanes):
                    break
            if changes.dropped_bodies:
                await self._watched(self.store, changes)
        return bool(changes.dropped_bodies)

    # The commit loop.

    def _wake(self, fragment: Fragment) -> None:
        self._dirty.append(fragment)
        self._work.set()

    async def _commit_loop(self) -> None:
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
        self._hungry.append(fragment)
        self._work.set()

    async def _turn(self) -> None:
        dirty, hungry = self._dirty, self._hungry
        self._dirty, self._hungry = [], []
        fragments = self._open_ones(dirty)
        for fragment in fragments:
            fragment.is_dirty = False
        plain = [fragment for fragment in fragments if not fragment.has_only_transactions()]
        involved = await self._commit_staged(plain) if plain else []
        involved += await self._commit_transactions(fragments)
        for fragment in self._open_ones(fragments + involved + hungry):
            await self.hand_over(fragment)
            if fragment.has_staged() and not fragment.is_dirty:
                fragment.is_dirty = True
                self._wake(fragment)
        self.on_turn_end()

    def _open_ones(self, fragments: list[Fragment]) -> list[Fragment]:
        """Each once, and only those that were not closed or dropped meanwhile."""
        return [one for one in dict.fromkeys(fragments) if self._fragments.get(int(one.key)) is one]

    async def _commit_staged(self, fragments: list[Fragment]) -> list[Fragment]:
        """Returns all fragments that had a part in it."""
        for fragment in fragments:
            await self._read_needed_bodies(fragment)
        changes, arrivals = Changes(), Changes()
        async with self._commit_lock:
            fragments = self._collect(self._open_ones(fragments), changes, arrivals)
            await self._commit(fragments, changes, arrivals)
        self._apply(fragments)
        return fragments

    def _collect(self, fragments: list[Fragment], changes: Changes, arrivals: Changes) -> list[Fragment]:
        """Everything is numbered first and the block records are written then: what one fragment collects may change
        another. Returns all that have a part in the commit."""
        for fragment in fragments:
            collect(fragment, changes)
        fragments = _with_partners(fragments)
        for fragment in fragments:
            collect_sends(fragment, arrivals)
        return self._emit(fragments, changes)

    def _emit(self, fragments: list[Fragment], changes: Changes) -> list[Fragment]:
        involved = _with_partners(fragments)
        for fragment in involved:
            emit(fragment, changes)
        return involved

    async def _commit_transactions(self, fragments: list[Fragment]) -> list[Fragment]:
        """In a commit of their own: nothing of a transaction can be left out of it, so when it does not fit, nothing
        else is to be left out with it."""
        fragments = [one for one in self._open_ones(fragments) if one.transactions.staged]
        if not fragments:
            return []
        for fragment in fragments:
            arrived, damaged = await self._read_bodies(fragment, fragment.take_transactions())
            if not fragment.is_void:
                fragment.transaction_bodies_arrived(arrived, damaged)
        changes = Changes()
        async with self._commit_lock:
            fragments = self._open_ones(fragments)
            for fragment in fragments:
                collect_transactions(fragment, changes)
            fragments = self._emit(fragments, changes)
            try:
                await self._watched(self.store, changes)
            except StoreFull as error:
                await self._roll_back(fragments, error)
                return []
        self._apply(fragments)
        return fragments

    async def _roll_back(self, fragments: list[Fragment], error: StoreFull) -> None:
        """Nothing was written, so the store is as it was before: take up the state of these fragments again. Their
        locks are lost, messages not."""
        log.warning("the messaging store is full: sends are refused until there is room")
        self._set_short_of_room(True)
        families = [one for fragment in fragments for one in _family(fragment)]
        for fragment in dict.fromkeys(families):
            fragment.fail(error)
        for fragment in dict.fromkeys(families):
            await self._load(fragment)
            self.want(fragment)
            self.forwarding.look(fragment)

    def _apply(self, fragments: list[Fragment]) -> None:
        """The commit is durable."""
        self.commit_count += 1
        for fragment in fragments:
            show(fragment)
        for fragment in fragments:
            applied(fragment)
        for fragment in fragments:
            self.forwarding.look(fragment)

    async def _commit(self, fragments: list[Fragment], changes: Changes, arrivals: Changes) -> None:
        bodies, overlays, schedules = len(changes.bodies), len(changes.overlays), len(changes.schedules)
        changes.bodies += arrivals.bodies
        changes.overlays += arrivals.overlays
        changes.schedules += arrivals.schedules
        history = len(changes.history)
        changes.history += arrivals.history
        states = len(changes.session_states)
        changes.session_states += arrivals.session_states
        try:
            await self._watched(self.store, changes)
        except StoreFull as error:
            log.warning("the messaging store is full: sends are refused until there is room")
            self._set_short_of_room(True)
            del changes.bodies[bodies:], changes.overlays[overlays:], changes.schedules[schedules:]
            del changes.history[history:]
            del changes.session_states[states:]
            for fragment in fragments:
                refuse_sends(fragment, changes, error)
            await self._watched(self.store, changes)

    async def _watched(self, store: MessagingStore, changes: Changes) -> None:
        """Every commit's time is taken: whichever hangs holds up all that are to follow."""
        self._commit_began_at = self._clock.monotonic()
        try:
            await store.commit(changes)
        finally:
            self._commit_began_at = None

    async def _read_needed_bodies(self, fragment: Fragment) -> None:
        arrived, damaged = await self._read_bodies(fragment, fragment.take_needing_body())
        if not fragment.is_void:
            fragment.bodies_arrived(arrived, damaged)

    async def _read_bodies(
        self, fragment: Fragment, locks: list[MessageLock]
    ) -> tuple[list[tuple[MessageLock, Message]], list[MessageLock]]:
        """The messages of these locks, and the locks of those that cannot be read."""
        arrived: list[tuple[MessageLock, Message]] = []
        damaged: list[MessageLock] = []
        for lane in LANES:
            of_lane = [lock for lock in locks if lock.lane == lane]
            position = 0
            while position < len(of_lane):
                numbers = [int(lock.number) for lock in of_lane[position:]]
                for record in await self._bodies(fragment, fragment.lane(lane), numbers, 1 << 30):
                    lock = of_lane[position]
                    position += 1
                    if isinstance(record, Damage):
                        self.report_damage(fragment, lane, record)
                        lock.is_damaged = not record.is_missing
                        damaged.append(lock)
                    else:
                        arrived.append((lock, record))
        return arrived, damaged

    # Handing over.

    async def hand_over(self, fragment: Fragment) -> None:
        """Deliver what is ready; read on while somebody has credit for more."""
        for consumers in fragment.lane_consumers:
            if consumers.sessions is not None:
                await serve_sessions(self, fragment)
                consumers.finish_drains()
            elif not consumers.is_empty():
                await self._serve_lane(fragment, consumers)
                consumers.finish_drains()

    async def _serve_lane(self, fragment: Fragment, consumers: LaneConsumers) -> None:
        fragment.pump()
        settings = fragment.settings
        low_messages, low_bytes = settings.window_messages // 2, settings.window_bytes // 2
        while consumers.is_hungry() and consumers.lane.wants_refill(low_messages, low_bytes):
            if len(fragment.locks) >= settings.max_locks:
                break
            before = consumers.lane.window_end, len(consumers.lane.returned)
            await self._refill(fragment, consumers.lane)
            fragment.pump()
            if before == (consumers.lane.window_end, len(consumers.lane.returned)):
                break

    async def _refill(self, fragment: Fragment, lane: Lane) -> None:
        settings = fragment.settings
        were_returned = len(lane.returned) > 0
        numbers = lane.plan_refill(max(settings.window_messages - len(lane.ready), 1))
        if not numbers:
            return
        room = max(settings.window_bytes - lane.ready_bytes, 1)
        records = await self.read_messages(fragment, lane, numbers, int(room))
        lane.unplan(numbers[len(records) :], were_returned)
        lane.refill([record for record in records if isinstance(record, Message)])

    async def read_messages(
        self, fragment: Fragment, lane: Lane, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        """Bodies with their overlays laid over them; damaged ones are taken out of the queue and reported."""
        key, code = int(fragment.key), int(lane.code)
        records = await self._bodies(fragment, lane, numbers, max_bytes)
        overlays = {overlay.number: overlay for overlay in await self._overlays(key, code, numbers[: len(records)])}
        for record in records:
            overlay = overlays.get(int(record.number))
            if isinstance(record, Damage):
                self._take_out(fragment, code, record, overlay)
            elif overlay is not None:
                record.delivery_count = overlay.delivery_count
                record.application_properties = overlay.application_properties
        return records

    async def _bodies(
        self, fragment: Fragment, lane: Lane, numbers: Sequence[int], max_bytes: int
    ) -> Sequence[Message | Damage]:
        records = await self.store.bodies(int(lane.body_fragment), int(lane.code), numbers, max_bytes)
        if lane.source is not None:
            for record in records:
                if isinstance(record, Message):
                    record.expires_at = fragment.expiry_of(record)
        return records

    async def _overlays(self, key: int, code: int, numbers: Sequence[int]) -> Sequence[Overlay]:
        """Neighbours are read as a range; what lies far apart one by one, so as not to pass over all in between."""
        first, last = min(numbers, default=0), max(numbers, default=0)
        if last - first > SPARSE * len(numbers):
            return await self.store.overlays_at(key, code, numbers)
        return await self.store.overlays(key, code, first, last)

    def report_damage(self, fragment: Fragment, lane: int, damage: Damage) -> None:
        self.damage_count += 1
        log.error(
            "damaged record: fragment %d, lane %d, number %d: %s. It was set aside; the rest of the queue goes on.",
            fragment.key,
            lane,
            damage.number,
            damage.reason,
        )

    def _take_out(self, fragment: Fragment, code: int, damage: Damage, overlay: Overlay | None) -> None:
        lane = fragment.lane(code)
        if fragment.is_void or not lane.is_free(damage.number):
            return  # gone since it was asked for
        self.report_damage(fragment, code, damage)
        lock = fragment.lock_number(code, damage.number, lane.live_bytes // max(lane.live_count, 1), NEVER)
        lock.is_damaged = not damage.is_missing
        if overlay is not None:
            lock.delivery_count = overlay.delivery_count
            lock.application_properties = overlay.application_properties
        if lane.is_parked(damage.number):
            lock.is_scheduled = overlay is not None and overlay.state == SCHEDULED
            lock.is_deferred = not lock.is_scheduled
        fragment.remove(lock, None)

    # Trouble.

    async def _watch_commits(self) -> None:
        """In a task of its own: everything else may be waiting for the commit that hangs."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.check_commit()

    def check_commit(self) -> None:
        """A commit that hangs is an outage, not overload: new sends get a time-out, which clients count as such."""
        began_at = self._commit_began_at
        is_hanging = began_at is not None and self._clock.monotonic() - began_at > self._commit_outage_s
        for fragment in self._fragments.values():
            if is_hanging and fragment.failure is None:
                fragment.failure = OperationTimeout("The messaging store does not answer.")
            elif not is_hanging and isinstance(fragment.failure, OperationTimeout):
                fragment.failure = None

    def check_windows(self) -> None:
        """Many quiet queues must not fill the memory together: where nobody is waiting, the window is given up."""
        used = sum(int(lane.ready_bytes) for one in self._fragments.values() for lane in one.lanes)
        for fragment in self._fragments.values():
            if used <= self._window_bytes:
                return
            for consumers in fragment.lane_consumers:
                if not consumers.is_hungry():
                    used -= int(consumers.lane.ready_bytes)
                    consumers.lane.evict()
                    if consumers.sessions is not None:
                        consumers.sessions.forget_bodies()

    def check_room(self) -> None:
        """Looked at every second: sends stop below the reserve and resume above twice that."""
        if self._store is not None:
            self._check_room()

    def _check_room(self) -> None:
        room = self.store.room()
        if self._is_short_of_room:
            self._set_short_of_room(room.free_bytes < 2 * room.reserve_bytes)
        else:
            self._set_short_of_room(room.free_bytes < room.reserve_bytes)

    def _set_short_of_room(self, is_short: bool) -> None:
        if is_short != self._is_short_of_room:
            log.warning("the messaging store %s", "is short of room" if is_short else "has room again")
        self._is_short_of_room = is_short
        self._is_full = self._is_full and is_short
        for fragment in self._fragments.values():
            self._tell_room(fragment)

    def _tell_room(self, fragment: Fragment) -> None:
        fragment.is_short_of_room = self._is_short_of_room
        fragment.is_full = self._is_full

    async def _start_over_as_full(self, error: StoreFull) -> None:
        """Even what only moves messages does not fit. Nothing was written, so the store is as it was before: take up
        its state again, and leave activating and dead-lettering until there is room. Locks are lost, messages not."""
        log.warning("the messaging store has no room to move messages: only receiving and completing go on")
        self._end_all(error)
        self._is_full = True
        try:
            for fragment in self.fragments():
                await self._load(fragment)
                self._tell_room(fragment)
                self.want(fragment)
                self.forwarding.look(fragment)
        except Exception as failure:
            await self._fail(failure)

    def _end_all(self, error: BusError) -> None:
        """Answer all that is staged or under way as failed; memory of the fragments is void."""
        self._dirty = []
        for fragment in self._fragments.values():
            fragment.fail(error)
        self.on_turn_end()

    async def _fail(self, error: Exception) -> None:
        log.error("the messaging store failed, its last commit's outcome is unknown: %s", error, exc_info=error)
        self._failure = StoreUnavailable("The messaging store failed.")
        if isinstance(error, StoreUnavailable):
            self._failure = error
        self._end_all(self._failure)
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
            await asyncio.sleep(delay)
            try:
                self._store = await self._open_store()
                for fragment in self.fragments():
                    await self._load(fragment)
                    self.want(fragment)
                break
            except Exception as error:
                log.error("the messaging store cannot be opened yet: %s", error)
                self._end_all(self._failure or StoreUnavailable("The messaging store failed."))
                await self._close_store()
                delay = min(delay * 2, LAST_REOPEN_S)
        self._failure = None
        for fragment in self.fragments():
            self.forwarding.look(fragment)
        log.warning("the messaging store is open again")


def _family(fragment: Fragment) -> list[Fragment]:
    """A topic with its subscriptions, or a queue alone."""
    head = fragment.topic or fragment
    return [head, *head.fan_out.subscriptions.values()] if head.fan_out is not None else [head]


def _with_partners(fragments: list[Fragment]) -> list[Fragment]:
    """These and all that have a part in their commit, and in turn the partners of those: a message may be forwarded to
    a topic, and so reach its subscriptions."""
    involved = dict.fromkeys(fragments)
    unasked = list(involved)
    while unasked:
        for partner in take_partners(unasked.pop(0)):
            if partner not in involved:
                involved[partner] = None
                unasked.append(partner)
    return list(involved)


def _nothing() -> None:
    return


async def _unknown_fragment(_key: int) -> Fragment | None:
    return None
