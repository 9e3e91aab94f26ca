"""What is in flight: browsed in the namespaces themselves, by tasks, so that no process holds all of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tandembus.client.addresses import SubQueue
from tandembus.client.administration import Administration
from tandembus.client.messages import ReceivedMessage
from tandembus.client.reservations import Reservations
from tandembus.client.service_bus import ServiceBus, connect
from tandembus.client.topology import OpenStore, open_stores
from tandembus.clock import SystemClock
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, NotSupported
from tandembus.loop_thread import LoopThread
from tandembus.security.sas import parse_connection_string
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, Lane, StoreRecords
from tandembus.spark.source.link import expired_token

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PAGE_MESSAGES: Final = 2000
PAGE_BYTES: Final = 4 << 20
DEAD_LETTERS: Final = "/$deadletterqueue"
TRANSFERS: Final = "/$transfer"
ANSWER_TIMEOUT_S: Final = 20.0
LAST_NUMBER: Final = (1 << 48) - 1

BROWSED_SCHEMA: Final = "target int, outcome int, sequence long, text string, at long"
FOUND: Final = 0
UNREACHED: Final = 1
"""A fragment (its index stands for the sequence number) or, with -1, all of the entity."""
CLOSED: Final = 2
"""Nobody can browse it: a topic, or a queue that forwards its messages."""
EVERY_FRAGMENT: Final = -1

Namespace = tuple[str, str | None]
"""Connection string, certificate to trust."""
Row = tuple[int, int, int, str, int]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be browsed."""

    number: int
    namespace: str
    entity: str
    fragments: tuple[int, ...] = ()
    """Those that the records know of."""

    @property
    def key(self) -> Key:
        return self.namespace.lower(), self.entity.lower()


@dataclass(frozen=True, slots=True)
class InFlight:
    found: DataFrame
    """Columns: target, sequence, message_id, at (when it was enqueued, in milliseconds)."""
    targets: Sequence[Target]
    unreached: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """By target and fragment, and why."""
    closed: frozenset[int] = frozenset()
    seen_until: Mapping[str, int] | None = None
    """By store, the newest record that was there before browsing began. None: all of them."""
    open_stores: Mapping[str, Mapping[int, OpenStore]] = field(default_factory=dict)
    """By namespace, its stores that were open, by their index; without namespaces that do not say it."""

    def is_reached(self, target: Target, fragment: int) -> bool:
        places = ((target.number, fragment), (target.number, EVERY_FRAGMENT))
        return not any(place in self.unreached for place in places)

    def ends(self, store: StoreRecords, lanes: Sequence[Lane]) -> StoreRecords:
        """Decides how far a store's records are complete: if it was open, to the last one, if they are of that life and
        reach as far as the store said."""
        stores = self.open_stores.get(store.namespace.lower())
        if stores is None:
            targets = {target.key: target for target in self.targets}
            own = [lane for lane in lanes if lane.store == store.store and lane.key in targets]
            places = [(targets[lane.key], lane.fragment_index) for lane in own]
            is_reached = any(one.number not in self.closed and self.is_reached(one, index) for one, index in places)
            return replace(store, end_at=ALWAYS_MS) if is_reached else store
        found = None if store.stream is None else stores.get(store.stream.index)
        if found is None:
            return store
        if store.epoch >= found.epoch and store.last >= found.audited:
            return replace(store, end_at=ALWAYS_MS)
        # A later life may have no records, if it has no audit: the mark at the end of the one before ends nothing then.
        missing_count = store.missing_count + max(0, found.audited - store.last)
        doubtful = replace(store, doubtful_until=store.last, doubtful_until_at=ALWAYS_MS)
        return replace(doubtful, missing_count=missing_count, end_at=store.last_at)


def in_flight_of(
    spark: SparkSession,
    rows: Sequence[tuple[str, str, int, str, int]],
    browsed: Sequence[tuple[str, str]],
    seen_until: Mapping[str, int] | None = None,
) -> InFlight:
    """What the caller has browsed: namespace, entity, sequence number, message id, time of arrival in milliseconds; and
    the namespace and name of every entity that was looked at to its end."""
    targets = [Target(number, *each) for number, each in enumerate(browsed)]
    numbers = {target.key: target.number for target in targets}
    listed = [
        (numbers[space.lower(), entity.lower()], sequence, message_id, at)
        for space, entity, sequence, message_id, at in rows
    ]
    found = spark.createDataFrame(listed, "target int, sequence long, message_id string, at long")
    return InFlight(found, targets, seen_until=seen_until)


def browse(
    spark: SparkSession, namespaces: Sequence[Namespace], lanes: Sequence[Lane], seen_until: Mapping[str, int]
) -> InFlight:
    """Looks at each entity that the records know, in its own namespace, to its end."""
    from pyspark.sql import functions as F  # noqa: N812

    known = named(namespaces, sorted({lane.namespace for lane in lanes}))
    targets = targets_in(lanes, set(known))
    work = [(target.number, target.namespace.lower(), target.entity, list(target.fragments)) for target in targets]

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _browsed_batches(known, batches)

    table = spark.createDataFrame(work, "number int, namespace string, entity string, fragments array<int>")
    parts = max(1, min(len(work), 2 * spark.sparkContext.defaultParallelism))
    # A checkpoint and no cache: what is lost of it must not be browsed again later, when other messages are there.
    rows = table.repartition(parts).mapInArrow(look, BROWSED_SCHEMA).localCheckpoint(eager=True)
    told = rows.where(F.col("outcome") != FOUND).collect()
    found = rows.where(F.col("outcome") == FOUND).select("target", "sequence", F.col("text").alias("message_id"), "at")
    return InFlight(
        found,
        targets,
        {(row["target"], row["sequence"]): row["text"] for row in told if row["outcome"] == UNREACHED},
        frozenset([row["target"] for row in told if row["outcome"] == CLOSED]),
        seen_until,
        stores_in(known),
    )


def targets_in(lanes: Iterable[Lane], spaces: set[str]) -> list[Target]:
    """Each entity once. What waits to be forwarded has no address."""
    fragments: dict[Key, set[int]] = {}
    names: dict[Key, tuple[str, str]] = {}
    for lane in lanes:
        if lane.entity is None or lane.dropped_number is not None or lane.namespace.lower() not in spaces:
            continue
        if TRANSFERS not in lane.entity.lower():
            names[lane.key] = (lane.namespace, lane.entity)
            fragments.setdefault(lane.key, set()).add(lane.fragment_index)
    return [Target(number, *names[key], tuple(sorted(fragments[key]))) for number, key in enumerate(sorted(fragments))]


def named(namespaces: Sequence[Namespace], recorded: Sequence[str]) -> dict[str, Namespace]:
    """Which of the recorded namespaces each connection string leads to. In a loop of its own: a notebook has one."""
    with LoopThread() as loop:
        names = [loop.call(_name_of(namespace)) for namespace in namespaces]
    found: dict[str, Namespace] = {}
    for namespace, name in zip(namespaces, names, strict=True):
        if name is None or name.lower() not in [each.lower() for each in recorded]:
            told = f"is '{name}'" if name else "does not tell its name (that takes the right Manage)"
            host = parse_connection_string(namespace[0]).host
            raise InvalidArgument(
                f"The namespace at {host} {told}, and the records are of {', '.join(recorded)}. Give the data folders "
                "and the connection strings of the same namespaces."
            )
        if name.lower() in found:
            raise InvalidArgument(
                f"Two namespaces are both called '{name}', so it cannot be told which records are whose. "
                "`tandembus serve --name` gives one its name."
            )
        found[name.lower()] = namespace
    return found


def stores_in(namespaces: Mapping[str, Namespace]) -> dict[str, dict[int, OpenStore]]:
    with LoopThread() as loop:
        told = {name: loop.call(_stores_of(namespace)) for name, namespace in namespaces.items()}
    return {name: stores for name, stores in told.items() if stores is not None}


async def _stores_of(namespace: Namespace) -> dict[int, OpenStore] | None:
    connection_string, ca_path = namespace
    try:
        async with Administration(connection_string, ca_path=ca_path, timeout_s=ANSWER_TIMEOUT_S) as administration:
            return await open_stores(administration.requests)
    except BusError:
        return None


async def _name_of(namespace: Namespace) -> str | None:
    connection_string, ca_path = namespace
    try:
        async with Administration(connection_string, ca_path=ca_path, timeout_s=ANSWER_TIMEOUT_S) as administration:
            return await administration.namespace_name()
    except BusError:
        connection = parse_connection_string(connection_string)
        expired = expired_token(connection, SystemClock().now())
        if expired is not None:
            raise expired from None
        return connection.host.partition(".")[0]


# In the tasks.


def _browsed_batches(
    namespaces: Mapping[str, Namespace], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    types = (pa.int32(), pa.int32(), pa.int64(), pa.string(), pa.int64())
    names = ("target", "outcome", "sequence", "text", "at")
    with LoopThread() as loop:
        for work in batches:
            for one in work.to_pylist():
                target = Target(one["number"], one["namespace"], one["entity"], tuple(one["fragments"]))
                for rows in browsed_rows(loop, namespaces[target.namespace], target):
                    columns = zip(*rows, strict=True)
                    yield pa.RecordBatch.from_arrays(
                        [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)], names
                    )


def browsed_rows(loop: LoopThread, namespace: Namespace, target: Target) -> Iterator[list[Row]]:
    """Page by page. What cannot be looked at is told in a row, too: the rest is browsed nevertheless."""
    connection_string, ca_path = namespace
    try:
        bus = loop.call(connect(connection_string, ca_path=ca_path, timeout_s=ANSWER_TIMEOUT_S))
    except (BusError, OSError) as error:
        yield [(target.number, UNREACHED, EVERY_FRAGMENT, str(error), 0)]
        return
    try:
        yield from _entity_rows(loop, bus, target)
    finally:
        loop.call(_closed(bus))


def _entity_rows(loop: LoopThread, bus: ServiceBus, target: Target) -> Iterator[list[Row]]:
    try:
        try:
            yield from _fragment_rows(loop, bus, target)
        except NotSupported:
            yield from _plain_rows(loop, bus, target)
    except InvalidOperation:
        yield [(target.number, CLOSED, EVERY_FRAGMENT, "", 0)]
    except (BusError, OSError) as error:
        yield [(target.number, UNREACHED, EVERY_FRAGMENT, str(error), 0)]


def _fragment_rows(loop: LoopThread, bus: ServiceBus, target: Target) -> Iterator[list[Row]]:
    path, sub_queue = _address(target.entity)
    node = loop.call(bus.reservations(path, sub_queue))
    try:
        ends = loop.call(node.ends())
    except BusError as error:
        if not error.retryable:
            raise
        ends = {}  # a fragment is out: each is asked by itself
    for fragment in sorted({*ends, *target.fragments}):
        try:
            yield from _pages(loop, target, _fetching(node, fragment, ends.get(fragment, LAST_NUMBER)))
        except (BusError, OSError) as error:
            yield [(target.number, UNREACHED, fragment, str(error), 0)]


Fetch = Callable[[int], Awaitable[tuple[list[ReceivedMessage], int | None]]]


def _fetching(node: Reservations, fragment: int, end: int) -> Fetch:
    async def fetch(first: int) -> tuple[list[ReceivedMessage], int | None]:
        if first > end:
            return [], None
        answer = await node.browse(fragment, first, end, PAGE_MESSAGES, PAGE_BYTES)
        return [ReceivedMessage(each) for each in answer.messages], answer.next

    return fetch


def _plain_rows(loop: LoopThread, bus: ServiceBus, target: Target) -> Iterator[list[Row]]:
    node = loop.call(bus.management(*_address(target.entity)))

    async def fetch(first: int) -> tuple[list[ReceivedMessage], int | None]:
        messages = await node.peek(first, PAGE_MESSAGES)
        return messages, messages[-1].sequence_number + 1 if messages else None

    return _pages(loop, target, fetch)


def _pages(loop: LoopThread, target: Target, fetch: Any) -> Iterator[list[Row]]:
    following: int | None = 1
    while following is not None:
        messages, following = loop.call(fetch(following))
        if messages:
            yield [_row(target, message) for message in messages]


def _row(target: Target, message: ReceivedMessage) -> Row:
    at_ms = int((message.enqueued_at or 0.0) * 1000)
    return target.number, FOUND, message.sequence_number, str(message.message_id or ""), at_ms


def _address(entity: str) -> tuple[str, SubQueue | None]:
    is_dead = entity.lower().endswith(DEAD_LETTERS)
    return (entity[: -len(DEAD_LETTERS)], SubQueue.DEAD_LETTER) if is_dead else (entity, None)


async def _closed(bus: ServiceBus) -> None:
    try:
        await bus.close()
    except OSError:
        pass  # it is gone already
