"""The classification of a reconciliation, in Spark SQL: which messages were accepted, and what became of each.

Lines of audit files become entries, one for each message. Entries of the same place, put in order, become units: a
message that took the place, and how it left it. Units of the same message, whatever places it took, become one row
with its classes. What each class means: docs/reconciliation.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.files import address_of, without_patterns
from tandembus.spark.jobs.query import selected, spark_errors
from tandembus.spark.jobs.reconcile_browser import InFlight, Target
from tandembus.spark.jobs.reconcile_records import Records
from tandembus.spark.jobs.reconcile_stores import ALWAYS_MS, MAIN_LANE, Lane, Spaces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODES: Final = {
    "accepted": 1,
    "scheduled": 2,
    "copied": 3,
    "arrived": 4,
    "activated": 5,
    "dead_letter": 6,
    "duplicate": 16,
    "published": 17,
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
"""Kinds of lines in the order in which they may stand in one record. Up to 6 a message takes a place; 16 and 17 take
none; from 32 on it leaves its place. Code 64 is a message that was found by browsing, after all records."""
LAST_NUMBER: Final = (1 << 63) - 1
SENT: Final = ("sent", "unknown", "refused", "sent_in_doubt")
SUMS: Final = (
    "accepted",
    "settled",
    "pending",
    "dead_lettered",
    "expired",
    "lost",
    "unjudged",
    "phantom",
    "duplicate",
    "late",
    "reordered",
    "unknown_outcome",
    "reused",
    "dropped_as_duplicate",
    "before_audit",
)
EXCEPTIONS: Final = ("lost", "phantom", "unjudged", "duplicate", "unknown_outcome", "reused", "late", "reordered")
"""The worst first."""
PLACES_SHOWN: Final = 10
EXCEPTIONS_FOLDER: Final = "exceptions"
UNBROWSED: Final = 0
BROWSED: Final = 1
UNREACHED: Final = 2
LANES: Final = (
    "lane_number int, namespace string, entity string, space string, backlog_space string, backlog_doubt_at long, "
    "backlog_end_at long, is_main boolean, first_recorded long, dropped_number long, dropped_at long, "
    "doubtful_until long, doubt_at long, last_at long, seen_until long, browsing int"
)

# A message that takes no place gets one that no other has.
ENTRIES: Final = """
    SELECT lane_number,
        if(code IN (16, 17), -((number * 2 + code - 16) * (1L << 20) + position + 1), sequence & ((1L << 48) - 1))
            AS place,
        number, code, at, sequence,
        get(ids, position) AS message_id,
        coalesce(nullif(get(sessions, position), ''), nullif(get(keys, position), '')) AS order_key,
        nullif(get(paths, position), '') AS path
    FROM (
        SELECT lane_number, number, code, at, ids, sessions, keys, paths, posexplode(numbers) AS (position, sequence)
        FROM {lines} JOIN {lanes} USING (store, fragment, lane) JOIN {codes} USING (kind)
        WHERE number <= last)"""
# Browsed messages are entries after all records of the same place. A lane that was dropped before browsing has none of
# them. For one that was dropped meanwhile they prove nothing: they may be of the old or the new entity of this name.
BROWSED_ENTRIES: Final = """
    SELECT coalesce(lane_number, -1 - target) AS lane_number,
        if(lane_number IS NOT NULL, sequence & ((1L << 48) - 1), sequence) AS place,
        {last_number} AS number, 64 AS code, at, sequence, message_id
    FROM (SELECT *, shiftright(sequence, 48) AS index FROM {found}) LEFT ANTI JOIN {renewed} USING (target, index)
        LEFT JOIN {lanes} USING (target, index)"""
PLACE: Final = "PARTITION BY lane_number, place"
ORDER: Final = f"{PLACE} ORDER BY number, code"
UNTIL_HERE: Final = f"{ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
# All entries of a place in one sort: whatever follows an acceptance is what became of it. A scheduled message that has
# left continues under another number. A browsed message that was enqueued after the newest record has no record yet.
FOLLOWED: Final = f"""
    SELECT * FROM (
        SELECT *, lag(code) OVER ({ORDER}) AS previous, lead(code) OVER ({ORDER}) AS next_code,
            lead(at) OVER ({ORDER}) AS next_at, lead(number) OVER ({ORDER}) AS next_number,
            last(message_id, true) OVER ({UNTIL_HERE}) AS known_id, last(path, true) OVER ({UNTIL_HERE}) AS known_path,
            {{is_found}} AS is_found
        FROM {{entries}}) JOIN {{lanes}} USING (lane_number)
    WHERE (code < 32 OR previous IS NULL OR (code BETWEEN 32 AND 63 AND previous >= 32))
        AND code != 39 AND NOT (code < 32 AND coalesce(next_code = 39, false))
        AND (code != 64 OR at <= last_at)"""
IS_FOUND: Final = f"max(code = 64) OVER ({PLACE})"
# Only what records and browsing both saw is judged. `again` is a message that was settled before. However a message has
# left a backlog, by the syphon or by somebody's hand, it has to be at home.
UNITS: Final = f"""
    SELECT lane_number, place, sequence, state, order_key, is_backlog, is_main, opened_at, closed_at,
        coalesce(if(is_backlog, backlog_space, NULL), space) AS space,
        lower(called) AS entity_key, called AS entity,
        coalesce(known_id, concat('#', sequence)) AS message_id,
        is_backlog AND is_open AND coalesce(if(is_followed, next_code BETWEEN 32 AND 36, is_dropped), false)
            AS is_moved,
        coalesce(at <= backlog_doubt_at OR closed_at > backlog_end_at, false) AS is_moved_in_doubt
    FROM (
        SELECT *,
            code < 32 AS is_open,
            coalesce(next_code < 64, false) AS is_followed,
            next_code BETWEEN 32 AND 63 AS is_closed,
            dropped_number >= number AS is_dropped,
            number <= doubtful_until AS is_doubtful,
            browsing = {BROWSED} AND number <= seen_until AND NOT is_found AS is_missing,
            known_path IS NOT NULL AND is_main AS is_backlog,
            coalesce(if(is_backlog, known_path, NULL), entity, '?') AS called,
            if(is_open, at, NULL) AS opened_at,
            CASE WHEN NOT is_open OR code = 17 THEN at WHEN is_closed THEN next_at WHEN is_dropped THEN dropped_at END
                AS closed_at,
            CASE
                WHEN code BETWEEN 32 AND 63 AND previous >= 32 THEN 'again'
                WHEN code = 64 AND at <= doubt_at THEN 'before_audit'
                WHEN code >= 32 AND place < first_recorded THEN 'before_audit'
                WHEN code >= 32 THEN 'phantom'
                WHEN code = 16 THEN 'dropped'
                WHEN code = 17 THEN 'settled'
                WHEN is_closed AND is_found AND next_number <= seen_until THEN 'phantom'
                WHEN next_code = 40 THEN 'lost'
                WHEN next_code BETWEEN 32 AND 36 THEN 'settled'
                WHEN next_code = 37 THEN 'dead_lettered'
                WHEN next_code = 38 THEN 'expired'
                WHEN next_code < 32 THEN 'lost'  -- an older copy of the store gave its place to another message
                WHEN is_dropped THEN 'settled'
                WHEN is_found THEN 'pending'
                WHEN is_missing AND NOT is_doubtful THEN 'lost'
                WHEN is_missing OR is_doubtful THEN 'unjudged'
                WHEN browsing = {UNREACHED} AND number <= seen_until THEN 'unjudged'
                ELSE 'pending'
            END AS state
        FROM {{followed}})"""
# Within one fragment messages stand in the order in which they were accepted, so only keys that went through a backlog
# matter. What was accepted in the same millisecond has no order over two namespaces. A message is reordered if it
# stands behind one that was accepted later, or in front of one that was accepted earlier.
IN_LINE: Final = (
    "PARTITION BY space, entity_key, order_key, home.lane_number ORDER BY first_at, home.place ROWS BETWEEN"
)
REORDERED: Final = f"""
    WITH kept AS (
        SELECT * FROM {{units}}
        WHERE order_key IS NOT NULL AND is_main AND opened_at IS NOT NULL AND message_id != '' AND place > 0),
    placed AS (
        SELECT space, entity_key, message_id, order_key, min(opened_at) AS first_at,
            min(struct(lane_number, place)) FILTER (WHERE NOT is_backlog) AS home
        FROM kept LEFT SEMI JOIN (SELECT DISTINCT space, entity_key, order_key FROM kept WHERE is_backlog)
            USING (space, entity_key, order_key)
        GROUP BY space, entity_key, message_id, order_key)
    SELECT space, entity_key, message_id, 1 AS reordered FROM (
        SELECT *, max(home.place) OVER ({IN_LINE} UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest_before,
            min(home.place) OVER ({IN_LINE} 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS lowest_after
        FROM placed WHERE home IS NOT NULL)
    WHERE highest_before > home.place OR lowest_after < home.place"""
SENDS_SCHEMA: Final = "entity string, message_id string, outcome string, at string"
IS_SEND: Final = (
    "entity IS NOT NULL AND coalesce(message_id, '') != '' "
    "AND coalesce(outcome IN ('accepted', 'unknown', 'refused'), false)"
)
# A send without a time may be of a time whose records are gone.
SENDS: Final = f"""
    SELECT coalesce(space, '') AS space, entity_key, message_id, entity,
        int(outcome = 'accepted') AS sent, int(outcome = 'unknown') AS unknown, int(outcome = 'refused') AS refused,
        int(outcome = 'accepted' AND
            coalesce(NOT (at_ms BETWEEN doubt_at + 1 AND {{end_at}}), is_partial, {{is_in_doubt}})) AS sent_in_doubt
    FROM (
        SELECT *, lower(entity) AS entity_key, unix_millis(try_to_timestamp(at)) AS at_ms
        FROM {{sends}} WHERE {IS_SEND})
        LEFT JOIN {{homes}} USING (entity_key)
    WHERE coalesce(at_ms, 0) <= {{cut_off}}"""
_UNITS_OF: Final = ",\n".join(
    f"count_if(state = '{state}') AS units_{state}"
    for state in ("pending", "dead_lettered", "expired", "lost", "phantom", "unjudged", "before_audit", "again")
)
COUNTED: Final = f"""
    SELECT space, entity_key, message_id,
        min(opened_at) AS first_at,
        min(coalesce(opened_at, closed_at)) AS seen_at,
        max(coalesce(closed_at, opened_at)) AS last_at,
        max(closed_at) FILTER (WHERE NOT is_backlog AND state = 'settled') AS settled_at,
        count_if(NOT is_backlog AND opened_at IS NOT NULL AND state != 'dropped') AS home_accepted,
        count_if(is_backlog AND opened_at IS NOT NULL AND state != 'dropped') AS backlog_accepted,
        count_if(NOT is_backlog AND state = 'dropped') AS dropped_as_duplicate,
        count_if(is_moved) AS moved,
        count_if(is_moved AND is_moved_in_doubt) AS moved_in_doubt,
        count_if(state = 'settled' AND NOT is_moved) AS settled_units,
        count_if(NOT is_backlog AND state = 'settled' AND closed_at - opened_at > {{late_after}}) AS late_units,
        {", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in ("reordered", *SENT))},
        {_UNITS_OF}
    FROM {{rows}} GROUP BY space, entity_key, message_id"""
# Without ids, a message at home may as well have been sent there: enough of them prove nothing (`is_uncertain`). While
# some of a message is in the backlog, a surplus at home may be on its way.
CLASSES: Final = """
    SELECT space, entity_key, message_id, first_at, seen_at, settled_at, last_at,
        copies - surplus + never_recorded AS accepted,
        settled_units - surplus AS settled,
        units_pending AS pending,
        units_dead_lettered AS dead_lettered,
        units_expired AS expired,
        units_lost + never_home - never_home_in_doubt + never_recorded - never_in_doubt AS lost,
        units_unjudged + never_home_in_doubt + never_in_doubt AS unjudged,
        units_phantom + if(sent + unknown = 0, least(refused, copies), 0) AS phantom,
        surplus + waiting + units_again AS duplicate,
        if(has_id, int(coalesce(settled_at - first_at > {late_after}, false)), late_units) AS late,
        reordered,
        unknown AS unknown_outcome,
        if(has_id, greatest(expected - 1, 0), 0) AS reused,
        dropped_as_duplicate,
        units_before_audit AS before_audit
    FROM (
        SELECT *,
            message_id != '' AS has_id,
            home_accepted + dropped_as_duplicate AS arrived,
            NOT has_id AND arrived >= moved AS is_uncertain,
            if(is_uncertain, 0, least(moved, arrived)) AS came_home,
            backlog_accepted + home_accepted - came_home AS copies,
            CASE
                WHEN NOT has_id THEN copies
                WHEN sent + unknown > 0 THEN greatest(sent, 1)
                WHEN backlog_accepted > 0 THEN backlog_accepted
                ELSE copies
            END AS expected,
            greatest(settled_units - expected, 0) AS surplus,
            if(has_id AND moved = backlog_accepted, greatest(home_accepted - expected - surplus, 0), 0) AS waiting,
            greatest(sent - copies - dropped_as_duplicate, 0) AS never_recorded,
            least(never_recorded, sent_in_doubt) AS never_in_doubt,
            moved - came_home AS never_home,
            if(is_uncertain, never_home, least(never_home, moved_in_doubt)) AS never_home_in_doubt
        FROM {counted})
    WHERE coalesce(seen_at, 0) <= {cut_off}"""
ENTITIES: Final = f"""
    SELECT space, entity_key, {", ".join(f"sum({name}) AS {name}" for name in SUMS)},
        {" + ".join(f"count_if({kind} > 0)" for kind in EXCEPTIONS)} AS exception_count, max(last_at) AS last_at
    FROM {{messages}} GROUP BY space, entity_key ORDER BY entity_key, space"""
IS_EXCEPTION: Final = " OR ".join(f"{kind} > 0" for kind in EXCEPTIONS)
LISTED: Final = f"""
    SELECT * FROM (
        SELECT space, entity_key, message_id, first_at, settled_at,
            stack({len(EXCEPTIONS)}, {", ".join(f"{n}, '{kind}', {kind}" for n, kind in enumerate(EXCEPTIONS))})
                AS (rank, kind, count)
        FROM {{flagged}})
    WHERE count > 0"""
# Messages without an id share one with all others: only those in question are shown.
PLACES: Final = f"""
    SELECT space, entity_key, message_id, slice(sort_array(collect_set(struct(
        namespace, coalesce(place_entity, entity) AS entity, sequence AS sequence_number, state))), 1, {PLACES_SHOWN})
        AS places
    FROM {{units}} LEFT SEMI JOIN {{concerned}} USING (space, entity_key, message_id)
        LEFT JOIN {{lanes}} USING (lane_number)
    WHERE message_id != '' OR state IN ('lost', 'phantom', 'unjudged', 'again')
    GROUP BY space, entity_key, message_id"""
ALL_PLACED: Final = """
    SELECT kind, namespace, entity, message_id, count, first_at, settled_at, coalesce(places, array()) AS places
    FROM {listed} LEFT JOIN {names} USING (space, entity_key)
        LEFT JOIN {places} USING (space, entity_key, message_id)"""
IDENTITY: Final = "space string, entity_key string, message_id string"


def units_of(spark: SparkSession, records: Records, in_flight: InFlight | None) -> DataFrame:
    """One row for each time that a message took a place."""
    lines = records.lines.where("is_line")
    if records.has_copies:
        lines = lines.dropDuplicates(["store", "number", "part"])
    last = {store.store: store.last for store in records.stores}
    keys = [(lane.number, lane.store, lane.fragment, lane.lane, last[lane.store]) for lane in records.lanes]
    entries = selected(
        spark,
        ENTRIES,
        lines=lines,
        lanes=small(spark, keys, "lane_number int, store string, fragment long, lane int, last long"),
        codes=small(spark, list(CODES.items()), "kind string, code int"),
    )
    if in_flight is not None:
        entries = entries.unionByName(_browsed_entries(spark, records, in_flight), allowMissingColumns=True)
    lanes = small(spark, _lane_rows(records, in_flight), LANES)
    text = FOLLOWED.replace("{is_found}", "false" if in_flight is None else IS_FOUND)
    return selected(spark, UNITS, followed=selected(spark, text, entries=entries, lanes=lanes))


def small(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """A table that every task gets as a whole."""
    return spark.createDataFrame(list(rows), schema).hint("broadcast")


def _browsed_entries(spark: SparkSession, records: Records, in_flight: InFlight) -> DataFrame:
    targets = {target.key: target.number for target in in_flight.targets}
    known: list[tuple[int, int, int]] = []
    renewed: list[tuple[int, int]] = []
    for lane in [each for each in records.lanes if each.key in targets]:
        target = targets[lane.key]
        if lane.dropped_number is None:
            known.append((lane.number, target, lane.fragment_index))
        elif lane.dropped_number > _seen_until(in_flight, lane.store):
            renewed.append((target, lane.fragment_index))
    return selected(
        spark,
        BROWSED_ENTRIES,
        last_number=LAST_NUMBER,
        found=in_flight.found,
        renewed=small(spark, renewed, "target int, index long"),
        lanes=small(spark, known, "lane_number int, target int, index long"),
    )


def _lane_rows(records: Records, in_flight: InFlight | None) -> list[tuple[object, ...]]:
    spaces = Spaces.of(records.stores)
    stores = {store.store: store for store in records.stores}
    last_at: dict[str, int] = {}
    for store in records.stores:
        last_at[store.namespace] = max(last_at.get(store.namespace, 0), store.last_at)
    targets = {} if in_flight is None else {target.key: target for target in in_flight.targets}

    def row(lane: Lane) -> tuple[object, ...]:
        store = stores[lane.store]
        is_backlog = lane.primary_name is not None
        return (
            lane.number,
            lane.namespace,
            lane.entity,
            lane.namespace.lower(),
            spaces.home_of(lane) if is_backlog else None,
            spaces.backlog_doubt(lane) if is_backlog else None,
            spaces.backlog_end(lane) if is_backlog else None,
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
    for target in targets.values():
        # For messages that were found where no record knows of a place.
        space = target.namespace.lower()
        where = (-1 - target.number, target.namespace, target.entity, space, None, None, None, True)
        until = (0, None, None, 0, spaces.doubt(space), last_at.get(target.namespace, 0), 0, BROWSED)
        rows.append((*where, *until))
    return rows


def _seen_until(in_flight: InFlight | None, store: str) -> int:
    if in_flight is None:
        return 0
    return LAST_NUMBER if in_flight.seen_until is None else in_flight.seen_until.get(store, 0)


def _browsing(in_flight: InFlight, target: Target | None, fragment_index: int) -> int:
    if target is None or target.number in in_flight.closed:
        return UNBROWSED
    return BROWSED if in_flight.is_reached(target, fragment_index) else UNREACHED


def sends_of(
    spark: SparkSession, path: str, cut_off_ms: int, homes: Mapping[str, str], spaces: Spaces
) -> tuple[DataFrame, int]:
    """A sender's own record of its sends, and the number of lines that cannot be compared. `homes`: the namespace of
    each entity."""
    try:
        lines = spark.read.schema(SENDS_SCHEMA).json(without_patterns(address_of(path)))
    except spark_errors():
        raise InvalidArgument(f"{path}: no record of sends. Give a file of JSON lines that Spark can read.") from None
    # A send may have gone to any of the namespaces: the records of all of them must reach as far.
    end_at = min(spaces.end_at.values(), default=ALWAYS_MS)
    is_open = end_at < ALWAYS_MS
    known = [(key, space, spaces.doubt(space), is_open or space in spaces.partial) for key, space in homes.items()]
    rows = selected(
        spark,
        SENDS,
        sends=lines,
        homes=small(spark, known, "entity_key string, space string, doubt_at long, is_partial boolean"),
        end_at=end_at,
        cut_off=cut_off_ms,
        is_in_doubt=is_open or spaces.lacks_stores,
    )
    return rows, lines.where(f"NOT ({IS_SEND})").count()


def messages_of(
    spark: SparkSession,
    units: DataFrame,
    sends: DataFrame | None,
    *,
    late_after_ms: int,
    cut_off_ms: int,
    has_backlog: bool,
) -> DataFrame:
    """One row for each message, with how often it is of each class. What else is known of messages is added as rows of
    its own, so that all of it comes together in one grouping."""
    rows = units.selectExpr("*", *[f"0 AS {name}" for name in ("reordered", *SENT)])
    if has_backlog:
        rows = rows.unionByName(selected(spark, REORDERED, units=units), allowMissingColumns=True)
    if sends is not None:
        rows = rows.unionByName(sends.drop("entity"), allowMissingColumns=True)
    counted = selected(spark, COUNTED, rows=rows, late_after=late_after_ms)
    return selected(spark, CLASSES, counted=counted, late_after=late_after_ms, cut_off=cut_off_ms)


def places_of(spark: SparkSession, units: DataFrame, concerned: DataFrame, lanes: Sequence[Lane]) -> DataFrame:
    table = [(lane.number, lane.namespace, lane.entity) for lane in lanes]
    shown = small(spark, table, "lane_number int, namespace string, place_entity string")
    return selected(spark, PLACES, units=units, concerned=concerned, lanes=shown)
