"""Browses the namespaces for what is in flight, in Spark's tasks, so that no process holds all of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tandembus.client.administration import Administration
from tandembus.client.messages import ReceivedMessage
from tandembus.client.topology import OpenStore, open_stores
from tandembus.clock import SystemClock
from tandembus.errors import BusError, InvalidArgument, InvalidOperation, NotSupported
from tandembus.loop_thread import LoopThread
from tandembus.security.sas import parse_connection_string
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, Lane, StoreRecords
from tandembus.spark.source.browser import Browser
from tandembus.spark.source.link import Link, expired_token
from tandembus.spark.source.options import LAST_NUMBER, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DEAD_LETTERS: Final = "/$DeadLetterQueue"
TRANSFERS: Final = "/$transfer"
ANSWER_TIMEOUT_S: Final = 20.0

BROWSED_SCHEMA: Final = "target int, outcome int, sequence long, text string, at long"
FOUND: Final = 0
UNREACHED: Final = 1
"""A fragment (the sequence number is its index) or, with -1, the whole entity."""
CLOSED: Final = 2
"""Nobody can browse it: a topic, or a queue that forwards its messages."""
EVERY_FRAGMENT: Final = -1

T = TypeVar("T")
Namespace = tuple[str, str | None]
"""Connection string, certificate to trust."""
Row = tuple[int, int, int, str, int]
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """An entity to browse, and those of its fragments that the records know."""

    number: int
    namespace: str
    entity: str
    fragments: tuple[int, ...] = ()

    @property
    def key(self) -> Key:
        return self.namespace.lower(), self.entity.lower()


@dataclass(frozen=True, slots=True)
class InFlight:
    found: DataFrame
    """Columns: target, sequence, message_id, at (when it was enqueued, in milliseconds)."""
    targets: Sequence[Target]
    unreached: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Reasons, by target and fragment."""
    closed: frozenset[int] = frozenset()
    """Targets that nobody can browse."""
    seen_until: Mapping[str, int] | None = None
    """By store, the newest record that was there before browsing began. None: all records."""
    open_stores: Mapping[str, Mapping[int, OpenStore]] = field(default_factory=dict)
    """By namespace, its open stores by their index; a namespace that does not report them is missing."""

    def is_reached(self, target: Target, fragment: int) -> bool:
        places = ((target.number, fragment), (target.number, EVERY_FRAGMENT))
        return not any(place in self.unreached for place in places)

    def ends(self, store: StoreRecords, lanes: Sequence[Lane]) -> StoreRecords:
        """The store with the end of its records: an open store's records are complete up to the last one, if they are
        of its present life and include the newest one that the store has."""
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
        return replace(
            store,
            missing_count=store.missing_count + max(0, found.audited - store.last),
            doubtful_until=store.last,
            doubtful_until_at=ALWAYS_MS,
            end_at=store.last_at,
        )


def in_flight_of(
    spark: SparkSession,
    rows: Sequence[tuple[str, str, int, str, int]],
    browsed: Sequence[tuple[str, str]],
    seen_until: Mapping[str, int] | None = None,
) -> InFlight:
    """What the caller has browsed: namespace, entity, sequence number, message id and time of arrival in milliseconds;
    and the namespace and name of every entity that was browsed to its end."""
    targets = [Target(number, *each) for number, each in enumerate(browsed)]
    numbers = {target.key: target.number for target in targets}
    listed = [(numbers[space.lower(), entity.lower()], *message) for space, entity, *message in rows]
    found = spark.createDataFrame(listed, "target int, sequence long, message_id string, at long")
    return InFlight(found, targets, seen_until=seen_until)


def browse(
    spark: SparkSession, namespaces: Sequence[Namespace], lanes: Sequence[Lane], seen_until: Mapping[str, int]
) -> InFlight:
    """Browses each entity that the records know, in its own namespace, to its end."""
    known = named(namespaces, sorted({lane.namespace for lane in lanes}))
    targets = targets_in(lanes, set(known))
    work = [(target.number, target.namespace.lower(), target.entity, list(target.fragments)) for target in targets]

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _browsed_batches(known, batches)

    table = spark.createDataFrame(work, "number int, namespace string, entity string, fragments array<int>")
    parts = max(1, min(len(work), 2 * spark.sparkContext.defaultParallelism))
    # A checkpoint instead of a cache: what is lost of a cache would be browsed again, when other messages are there.
    rows = table.repartition(parts).mapInArrow(look, BROWSED_SCHEMA).localCheckpoint(eager=True)
    others = rows.where(f"outcome != {FOUND}").collect()
    return InFlight(
        rows.where(f"outcome = {FOUND}").selectExpr("target", "sequence", "text AS message_id", "at"),
        targets,
        {(row["target"], row["sequence"]): row["text"] for row in others if row["outcome"] == UNREACHED},
        frozenset([row["target"] for row in others if row["outcome"] == CLOSED]),
        seen_until,
        stores_in(known),
    )


def targets_in(lanes: Iterable[Lane], spaces: set[str]) -> list[Target]:
    """Each entity once. Messages that wait to be forwarded have no address."""
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
    """The connection strings by the name of the recorded namespace to which each leads."""
    found: dict[str, Namespace] = {}
    for namespace, name in zip(namespaces, _asked(namespaces, _name_of), strict=True):
        if name is None or name.lower() not in [each.lower() for each in recorded]:
            is_called = f"is '{name}'" if name else "does not tell its name (that takes the right Manage)"
            host = parse_connection_string(namespace[0]).host
            raise InvalidArgument(
                f"The namespace at {host} {is_called}, and the records are of {', '.join(recorded)}. Give the data "
                "folders and the connection strings of the same namespaces."
            )
        if name.lower() in found:
            raise InvalidArgument(
                f"Two namespaces are both called '{name}', so it cannot be told which records are whose. "
                "`tandembus serve --name` gives one its name."
            )
        found[name.lower()] = namespace
    return found


def stores_in(namespaces: Mapping[str, Namespace]) -> dict[str, dict[int, OpenStore]]:
    """The open stores of each namespace that reports them."""
    answers = zip(namespaces, _asked(namespaces.values(), _stores_of), strict=True)
    return {name: stores for name, stores in answers if stores is not None}


def _asked(namespaces: Iterable[Namespace], ask: Callable[[Namespace], Coroutine[Any, Any, T]]) -> list[T]:
    """In a loop of its own: the caller may be a notebook, which has one already."""
    with LoopThread() as loop:
        return [loop.call(ask(namespace)) for namespace in namespaces]


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
                    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, names)


def browsed_rows(loop: LoopThread, namespace: Namespace, target: Target) -> Iterator[list[Row]]:
    """Rows page by page. A row also reports what cannot be browsed, so that the rest is browsed nevertheless."""
    connection_string, ca_path = namespace
    link = Link(SourceOptions(connection=connection_string, ca_path=ca_path, retry_for_s=0.0))
    browser = Browser(link, loop)
    try:
        try:
            yield from _fragment_rows(loop, link, browser, target)
        except NotSupported:
            yield from _found(target, browser.pages(browser.peeked(_address(target.entity), None, LAST_NUMBER), 1))
    except InvalidOperation:
        yield [(target.number, CLOSED, EVERY_FRAGMENT, "", 0)]
    except (BusError, OSError) as error:
        yield [(target.number, UNREACHED, EVERY_FRAGMENT, str(error), 0)]
    finally:
        loop.call(link.drop())


def _fragment_rows(loop: LoopThread, link: Link, browser: Browser, target: Target) -> Iterator[list[Row]]:
    entity = _address(target.entity)

    async def ends_of() -> dict[int, int]:
        return await (await link.reservations(entity)).ends()

    try:
        ends = loop.call(link.patiently(ends_of))
    except BusError as error:
        if not error.retryable:
            raise
        ends = {}  # a fragment is out: each is asked by itself
    for fragment in sorted({*ends, *target.fragments}):
        end = ends.get(fragment, LAST_NUMBER)
        try:
            if end:
                yield from _found(target, browser.pages(browser.browsed(entity, fragment, end), 1))
        except (BusError, OSError) as error:
            yield [(target.number, UNREACHED, fragment, str(error), 0)]


def _found(target: Target, pages: Iterable[list[bytes]]) -> Iterator[list[Row]]:
    for page in filter(None, pages):
        yield [_row(target, ReceivedMessage(payload)) for payload in page]


def _row(target: Target, message: ReceivedMessage) -> Row:
    at_ms = int((message.enqueued_at or 0.0) * 1000)
    return target.number, FOUND, message.sequence_number, str(message.message_id or ""), at_ms


def _address(entity: str) -> str:
    """The address of an entity as the records name it, with dead letters in lower case."""
    return entity[: -len(DEAD_LETTERS)] + DEAD_LETTERS if entity.lower().endswith(DEAD_LETTERS.lower()) else entity
