"""One row for each time that a message took a place, with how it left it and what is to be thought of that.

The lines of a place are put beside each other in one sort: whatever follows an acceptance is what became of it. Only
built-in functions, so that nothing leaves Spark's own engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tandembus.spark.jobs.reconcile_in_flight import InFlight, Target
from tandembus.spark.jobs.reconcile_records import LOW_BITS, Records
from tandembus.spark.jobs.reconcile_stores import MAIN_LANE, Lane, Spaces

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# What an entry says, in the order in which it may stand in one record. First, a message takes a place.
OPENING: Final = {"accepted": 1, "scheduled": 2, "copied": 3, "arrived": 4, "activated": 5, "dead_letter": 6}
DUPLICATE: Final = 16
PUBLISHED: Final = 17
CLOSING: Final = {
    "completed": 32,
    "removed": 33,
    "forwarded": 34,
    "distributed": 35,
    "cancelled": 36,
    "dead_lettered": 37,
    "expired": 38,
    "left": 39,
    "damaged": 40,
}
CODES: Final = {**OPENING, "duplicate": DUPLICATE, "published": PUBLISHED, **CLOSING}
FIRST_CLOSING: Final = 32
LAST_SETTLING: Final = 36
DEAD_LETTERED: Final = CLOSING["dead_lettered"]
EXPIRED: Final = CLOSING["expired"]
LEFT: Final = CLOSING["left"]
DAMAGED: Final = CLOSING["damaged"]
FOUND: Final = 64
"""By browsing; behind all records."""
LAST_NUMBER: Final = (1 << 63) - 1

STATES: Final = (
    "pending",
    "settled",
    "dead_lettered",
    "expired",
    "lost",
    "phantom",
    "unjudged",
    "before_audit",
    "dropped",
    "again",
)
"""A unit has the number of its state. `again`: its message was settled before."""
STATE: Final = {name: number for number, name in enumerate(STATES)}
LANE_SCHEMA: Final = (
    "lane_number int, namespace string, entity string, space string, backlog_space string, backlog_doubt_at long, "
    "backlog_end_at long, "
    "is_main boolean, first_recorded long, dropped_number long, dropped_at long, doubtful_until long, "
    "doubt_at long, last_at long, seen_until long, browsing int"
)
UNBROWSED: Final = 0
BROWSED: Final = 1
UNREACHED: Final = 2


def units_of(spark: SparkSession, records: Records, in_flight: InFlight | None) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    entries = _entries(spark, records)
    if in_flight is not None:
        entries = entries.unionByName(_found(spark, records, in_flight), allowMissingColumns=True)
    place = Window.partitionBy("lane_number", "place")
    order = place.orderBy("number", "code")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    code = F.col("code")
    follows = {
        "previous": F.lag("code").over(order),
        "next_code": F.lead("code").over(order),
        "next_at": F.lead("at").over(order),
        "next_number": F.lead("number").over(order),
        "message_id": F.last("message_id", ignorenulls=True).over(until_here),
        "path": F.last("path", ignorenulls=True).over(until_here),
    }
    if in_flight is not None:
        follows["is_found"] = F.max(code == FOUND).over(place)
    rows = entries.withColumns(follows)
    rows = rows if in_flight is not None else rows.withColumn("is_found", F.lit(False))
    is_first = F.col("previous").isNull()
    is_again = (code >= FIRST_CLOSING) & (code < FOUND) & (F.col("previous") >= FIRST_CLOSING)
    units = rows.where((code < FIRST_CLOSING) | is_first | is_again)
    # What was scheduled and has left goes on under another number.
    is_gone_on = (code == LEFT) | ((code < FIRST_CLOSING) & F.coalesce(F.col("next_code") == LEFT, F.lit(False)))
    lanes = F.broadcast(_lane_table(spark, records, in_flight))
    units = units.where(~is_gone_on).join(lanes, "lane_number")
    # Found, and not yet recorded: the records end before it came.
    units = units.where((code != FOUND) | (F.col("at") <= F.col("last_at")))
    return _with_identity(units.withColumn("state", _state(is_again)))


def _entries(spark: SparkSession, records: Records) -> DataFrame:
    """A row for each message of a line."""
    from pyspark.sql import functions as F  # noqa: N812

    lines = records.lines.where("is_line")
    if records.has_copies:
        lines = lines.dropDuplicates(["store", "number", "part"])
    last = {store.store: store.last for store in records.stores}
    keys = [(lane.number, lane.store, lane.fragment, lane.lane, last[lane.store]) for lane in records.lanes]
    schema = "lane_number int, store string, fragment long, lane int, last long"
    lanes = F.broadcast(spark.createDataFrame(keys, schema))
    codes = F.create_map(*[F.lit(each) for pair in CODES.items() for each in pair])
    lines = (
        lines.join(lanes, ["store", "fragment", "lane"])
        .where("number <= last")
        .select("lane_number", "number", "at", codes[F.col("kind")].cast("int").alias("code"), *_ARRAYS)
        .where("code is not null")
    )
    rows = lines.select("*", F.posexplode("numbers").alias("position", "sequence"))
    of_message = {name: F.get(name, F.col("position")) for name in ("ids", "sessions", "keys", "paths")}
    # What takes no place gets one that nobody else has.
    is_passing = F.col("code").between(DUPLICATE, PUBLISHED)
    passing = (F.col("number") * 2 + (F.col("code") - DUPLICATE)) * (1 << 20) + F.col("position") + 1
    return rows.select(
        "lane_number",
        F.when(is_passing, -passing).otherwise(F.col("sequence").bitwiseAND(F.lit(LOW_BITS))).alias("place"),
        "number",
        "code",
        "at",
        "sequence",
        of_message["ids"].alias("message_id"),
        F.coalesce(_filled(of_message["sessions"]), _filled(of_message["keys"])).alias("group"),
        _filled(of_message["paths"]).alias("path"),
    )


_PART_SCHEMA: Final = "target int, index long"
_ARRAYS: Final = ("numbers", "ids", "sessions", "keys", "paths")


def _filled(text: Column) -> Column:
    """Empty texts are no value."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(text != "", text)


def _found(spark: SparkSession, records: Records, in_flight: InFlight) -> DataFrame:
    """What was browsed, as entries behind all records of the same place. It is in no lane that was dropped before;
    where one was dropped meanwhile it says nothing: it may be of the old or of the new entity of this name."""
    from pyspark.sql import functions as F  # noqa: N812

    targets = {target.key: target.number for target in in_flight.targets}
    known: list[tuple[int, int, int]] = []
    renewed: list[tuple[int, int]] = []
    for lane in [each for each in records.lanes if each.key in targets]:
        target = targets[lane.key]
        if lane.dropped_number is None:
            known.append((lane.number, target, lane.fragment_index))
        elif lane.dropped_number > _seen_until(in_flight, lane.store):
            renewed.append((target, lane.fragment_index))
    found = in_flight.found.withColumn("index", F.shiftright("sequence", 48))
    if renewed:
        found = found.join(F.broadcast(spark.createDataFrame(renewed, _PART_SCHEMA)), ["target", "index"], "left_anti")
    lanes = F.broadcast(spark.createDataFrame(known, f"lane_number int, {_PART_SCHEMA}"))
    found = found.join(lanes, ["target", "index"], "left")
    is_known = F.col("lane_number").isNotNull()
    low = F.col("sequence").bitwiseAND(F.lit(LOW_BITS))
    return found.select(
        F.coalesce("lane_number", -1 - F.col("target")).alias("lane_number"),
        F.when(is_known, low).otherwise(F.col("sequence")).alias("place"),
        F.lit(LAST_NUMBER).alias("number"),
        F.lit(FOUND).alias("code"),
        "at",
        "sequence",
        "message_id",
    )


def _lane_table(spark: SparkSession, records: Records, in_flight: InFlight | None) -> DataFrame:
    spaces = Spaces.of(records.stores)
    stores = {store.store: store for store in records.stores}
    last_at: dict[str, int] = {}
    for store in records.stores:
        last_at[store.namespace] = max(last_at.get(store.namespace, 0), store.last_at)

    targets = {} if in_flight is None else {target.key: target for target in in_flight.targets}

    def row(lane: Lane) -> tuple[object, ...]:
        store = stores[lane.store]
        backlog_space = None if lane.primary_name is None else spaces.home_of(lane)
        return (
            lane.number,
            lane.namespace,
            lane.entity,
            lane.namespace.lower(),
            backlog_space,
            None if backlog_space is None else spaces.backlog_doubt(lane),
            None if backlog_space is None else spaces.backlog_end(lane),
            lane.lane == MAIN_LANE,
            LAST_NUMBER if store.is_partial else lane.first_recorded,
            lane.dropped_number,
            lane.dropped_at,
            store.doubtful_until,
            spaces.doubt(lane.namespace.lower()),
            last_at[lane.namespace],
            _seen_until(in_flight, lane.store),
            UNBROWSED if in_flight is None else _browsing(in_flight, targets.get(lane.key), lane.fragment_index),
        )

    rows = [row(lane) for lane in records.lanes]
    for target in in_flight.targets if in_flight is not None else ():
        # For what was found where no record knows of a place.
        space = target.namespace.lower()
        where = (-1 - target.number, target.namespace, target.entity, space, None, None, None, True)
        until = (0, None, None, 0, spaces.doubt(space), last_at.get(target.namespace, 0), 0, BROWSED)
        rows.append((*where, *until))
    return spark.createDataFrame(rows, LANE_SCHEMA)


def _seen_until(in_flight: InFlight | None, store: str) -> int:
    if in_flight is None:
        return 0
    return LAST_NUMBER if in_flight.seen_until is None else in_flight.seen_until.get(store, 0)


def _browsing(in_flight: InFlight, target: Target | None, fragment_index: int) -> int:
    if target is None or target.number in in_flight.closed:
        return UNBROWSED
    return BROWSED if in_flight.is_reached(target, fragment_index) else UNREACHED


def _state(is_again: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    def then(name: str) -> Column:
        return F.lit(STATE[name])

    code, following, is_found = F.col("code"), F.col("next_code"), F.col("is_found")
    is_closed = following.between(FIRST_CLOSING, FOUND - 1)
    is_dropped = F.col("dropped_number") >= F.col("number")
    is_doubtful = F.col("number") <= F.col("doubtful_until")
    # Only what both have seen can be judged: the records before browsing began, and browsing.
    is_seen = F.col("number") <= F.col("seen_until")
    is_missing = (F.col("browsing") == BROWSED) & is_seen & ~is_found
    is_found_only = code == FOUND
    return (
        F.when(is_again, then("again"))
        .when(is_found_only & (F.col("at") <= F.col("doubt_at")), then("before_audit"))
        .when((code >= FIRST_CLOSING) & (F.col("place") < F.col("first_recorded")), then("before_audit"))
        .when(code >= FIRST_CLOSING, then("phantom"))
        .when(code == DUPLICATE, then("dropped"))
        .when(code == PUBLISHED, then("settled"))
        .when(is_closed & is_found & (F.col("next_number") <= F.col("seen_until")), then("phantom"))
        .when(following == DAMAGED, then("lost"))
        .when(following.between(FIRST_CLOSING, LAST_SETTLING), then("settled"))
        .when(following == DEAD_LETTERED, then("dead_lettered"))
        .when(following == EXPIRED, then("expired"))
        .when(following < FIRST_CLOSING, then("lost"))  # an older copy of the store gave its place to another one
        .when(is_dropped, then("settled"))
        .when(is_found, then("pending"))
        .when(is_missing & ~is_doubtful, then("lost"))
        .when(is_missing | is_doubtful, then("unjudged"))
        .when((F.col("browsing") == UNREACHED) & is_seen, then("unjudged"))
        .otherwise(then("pending"))
    )


def _with_identity(units: DataFrame) -> DataFrame:
    """Names are the same whatever their case. A message without an id shares one with all others of its entity."""
    from pyspark.sql import functions as F  # noqa: N812

    code, following = F.col("code"), F.col("next_code")
    is_open = code < FIRST_CLOSING
    is_backlog = F.col("path").isNotNull() & F.col("is_main")
    entity = F.coalesce(F.when(is_backlog, F.col("path")), F.col("entity"), F.lit("?"))
    numbered = F.concat(F.lit("#"), F.col("sequence").cast("string"))
    is_closed = following.between(FIRST_CLOSING, FOUND - 1)
    is_dropped = F.col("dropped_number") >= F.col("number")
    # However a message has left the backlog, by the syphon or by somebody's hand: it has to be at home.
    has_left = F.when(is_closed, following <= LAST_SETTLING).when(following < FIRST_CLOSING, F.lit(False))
    has_left = F.coalesce(has_left.otherwise(is_dropped), F.lit(False))
    closed_at = (
        F.when(~is_open | (code == PUBLISHED), F.col("at"))
        .when(is_closed, F.col("next_at"))
        .when(is_dropped, F.col("dropped_at"))
    )
    return units.select(
        "lane_number",
        "place",
        "sequence",
        "state",
        F.coalesce(F.when(is_backlog, F.col("backlog_space")), F.col("space")).alias("space"),
        F.lower(entity).alias("entity_key"),
        entity.alias("entity"),
        F.coalesce("message_id", numbered).alias("message_id"),
        "group",
        is_backlog.alias("is_backlog"),
        F.col("is_main"),
        F.when(is_open, F.col("at")).alias("opened_at"),
        closed_at.alias("closed_at"),
        (is_backlog & is_open & has_left).alias("is_moved"),
        # It came home, if it did, before it left the backlog: at a time of which home has no records?
        F.coalesce(
            (F.col("at") <= F.col("backlog_doubt_at")) | (closed_at > F.col("backlog_end_at")), F.lit(False)
        ).alias("is_moved_in_doubt"),
    )
