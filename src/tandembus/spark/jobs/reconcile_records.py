"""Audit files as a table of lines, and what has to be known of them before any message is classified: whether all files
were read, which stores they are of, and where messages have their places.

The format of the files: docs/reconciliation.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.files import (
    REMOTE_PATTERN,
    SUFFIXES,
    Folder,
    address_of,
    is_local,
    shown_name,
    without_patterns,
)
from tandembus.spark.jobs.query import reason_of, selected, spark_errors
from tandembus.spark.jobs.reconcile_stores import Lane, Life, StoreRecords, Stream, lanes_of, stores_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUDIT_FOLDER: Final = "audit"
HIDDEN: Final = ("_", ".")
"""Spark ignores files and folders whose names begin so."""
FORMAT_VERSION: Final = 2
DAMAGED_FILES_NAMED: Final = 100
SCHEMA: Final = (
    "audit int, namespace string, store string, number long, part int, parts int, at long, epoch long, kind string, "
    "fragment long, lane int, entity string, numbers array<long>, ids array<string>, sessions array<string>, "
    "keys array<string>, paths array<string>, counts array<long>, index int, stores int, trimmed long, broken string"
)
# A line counts if it has all that its kind needs, and each column has as many values as there are messages.
IS_MARK: Final = "coalesce(kind IN ('stream', 'rolled', 'ended'), false)"
_IS_COLUMN: Final = " AND ".join(
    [f"({name} IS NULL OR size({name}) = size(numbers))" for name in ("ids", "sessions", "keys", "paths", "counts")]
)
IS_LINE: Final = f"""CASE
    WHEN broken IS NOT NULL OR namespace IS NULL OR store IS NULL OR number IS NULL OR kind IS NULL THEN false
    WHEN kind = 'stream' THEN index IS NOT NULL AND stores IS NOT NULL AND trimmed IS NOT NULL
    WHEN {IS_MARK} THEN true
    WHEN audit IS NULL OR part IS NULL OR parts IS NULL OR at IS NULL OR epoch IS NULL THEN false
    WHEN kind = 'nothing' THEN true
    ELSE fragment IS NOT NULL AND lane IS NOT NULL AND numbers IS NOT NULL AND {_IS_COLUMN} END"""
FILES: Final = f"""
    SELECT file, max(audit), count_if(is_line AND NOT {IS_MARK}), count_if(NOT is_line) FROM {{raw}} GROUP BY file"""
STREAMS: Final = f"""
    SELECT store, max(namespace), max(index), max(stores), max(trimmed),
        coalesce(max(number) FILTER (WHERE kind = 'ended'), 0)
    FROM {{raw}} WHERE is_line AND {IS_MARK} GROUP BY store HAVING max(index) IS NOT NULL"""
LIVES: Final = f"""
    SELECT store, epoch, min(number), max(number) FILTER (WHERE is_whole), count_if(is_whole), min(at), max(at),
        max(copies)
    FROM (
        SELECT store, epoch, number, count(*) >= max(parts) AS is_whole, max(copies) AS copies, max(at) AS at
        FROM (
            SELECT store, epoch, number, part, count(*) AS copies, max(parts) AS parts, max(at) AS at
            FROM {{raw}} WHERE is_line AND NOT {IS_MARK} GROUP BY store, epoch, number, part)
        GROUP BY store, epoch, number)
    GROUP BY store, epoch"""
"""Of each opening of each store, which records are there. A record has several lines, each of which may be there more
than once."""
LANES: Final = f"""
    SELECT store, namespace, fragment, lane, entity,
        max(if(entity IS NOT NULL, shiftright(get(numbers, 0), 48), NULL)) AS fragment_index,
        max(get(numbers, 0) & ((1L << 48) - 1)) FILTER (WHERE kind = 'began') AS first_recorded,
        max(number) FILTER (WHERE kind = 'dropped') AS dropped_number,
        max(at) FILTER (WHERE kind = 'dropped') AS dropped_at
    FROM {{raw}} WHERE is_line AND NOT {IS_MARK} GROUP BY store, namespace, fragment, lane, entity"""
DAMAGED: Final = f"""
    SELECT file, count_if(NOT is_line) -
        if(max(place) FILTER (WHERE NOT is_line) > max(place) FILTER (WHERE is_line), 1, 0) AS count
    FROM (
        SELECT _metadata.file_path AS file, {IS_LINE} AS is_line,
            struct(_metadata.file_block_start, monotonically_increasing_id()) AS place
        FROM {{lines}})
    GROUP BY file HAVING count > 0 ORDER BY file LIMIT {DAMAGED_FILES_NAMED}"""
"""Which files have damaged lines. The last line of a file may be one that is still being written."""


@dataclass(frozen=True, slots=True)
class AuditPath:
    """The files that one of the caller's paths stands for."""

    path: str
    spark_names: Sequence[str]
    """Folders or a file, as Spark takes them."""
    files: Mapping[str, int]
    """The files that were there when it was listed, with their sizes."""


@dataclass(frozen=True, slots=True)
class Records:
    """What the files held when they were read."""

    lines: DataFrame
    """Stays in Spark's memory until `forget`, so that all tables come from the same lines while files still grow."""
    stores: Sequence[StoreRecords]
    lanes: Sequence[Lane]
    damaged: Sequence[tuple[str, int]]
    """Files with damaged lines, and how many; without a last line that was still being written."""
    skipped_count: int
    """The number of all damaged lines."""
    has_copies: bool
    """Some lines are there more than once."""
    unread: Sequence[str]
    """Files that were there and could not be read."""
    size_bytes: int

    def forget(self) -> None:
        """Spark takes tables of the same files to be equal: without this, the next reading would find these lines."""
        self.lines.unpersist(blocking=True)


def read_records(spark: SparkSession, paths: Sequence[str]) -> Records:
    return read_listed(spark, audit_paths(spark, paths))


def read_listed(spark: SparkSession, paths: Sequence[AuditPath]) -> Records:
    lines = _lines(spark, paths, SCHEMA).selectExpr("*", f"{IS_LINE} AS is_line", "_metadata.file_path AS file")
    raw = lines.drop("broken", "counts").cache()
    try:
        files = selected(spark, FILES, raw=raw).collect()
        read = {shown_name(row[0]) for row in files}
        _check(paths, max([row[1] or 0 for row in files], default=0), {shown_name(row[0]) for row in files if row[2]})
        streams = [Stream(*row) for row in selected(spark, STREAMS, raw=raw).collect()]
        lives = [Life(*row) for row in selected(spark, LIVES, raw=raw).collect()]
        lanes = lanes_of(selected(spark, LANES, raw=raw).collect())
        skipped_count = sum([row[3] for row in files])
        damaged = _damaged(spark, paths) if skipped_count else []
    except BaseException:
        raw.unpersist()
        raise
    listed = {name: size for each in paths for name, size in each.files.items()}
    has_copies = any(life.copies > 1 for life in lives)
    unread, stores = unread_files(listed, read), stores_of(lives, lanes, streams)
    return Records(raw, stores, lanes, damaged, skipped_count, has_copies, unread, sum(listed.values()))


def _check(paths: Sequence[AuditPath], version: int, recorded: set[str]) -> None:
    """A namespace that the caller names and that has no records would look as if it had lost nothing."""
    if version > FORMAT_VERSION:
        raise InvalidArgument(f"Audit records of format {version}: this version reads up to {FORMAT_VERSION}.")
    for path in paths:
        if recorded.isdisjoint(path.files):
            raise InvalidArgument(
                f"There are no audit records in {path.path}. A namespace writes them when it is served with --audit; "
                "on a cluster, every machine must be able to read them there."
            )


def _lines(spark: SparkSession, paths: Sequence[AuditPath], schema: str) -> DataFrame:
    # A file that gives way while it is read, or a compressed one that was cut off, must not end the job: `unread_files`
    # or the numbers of the records show what is missing.
    options = {
        "columnNameOfCorruptRecord": "broken",
        "recursiveFileLookup": "true",
        "ignoreMissingFiles": "true",
        "ignoreCorruptFiles": "true",
        "pathGlobFilter": REMOTE_PATTERN,
    }
    return spark.read.options(**options).schema(schema).json([name for path in paths for name in path.spark_names])


def _damaged(spark: SparkSession, paths: Sequence[AuditPath]) -> list[tuple[str, int]]:
    # With the same schema Spark would take the lines that it has in memory, which do not know their files.
    lines = _lines(spark, paths, f"{SCHEMA}, looked_again boolean").select("*", "_metadata")
    return [(shown_name(row["file"]), row["count"]) for row in selected(spark, DAMAGED, lines=lines).collect()]


def check_audit_paths(paths: Iterable[str]) -> None:
    """Raises `InvalidArgument` for a local path without audit files, before Spark is started."""
    for path in [each for each in paths if is_local(each)]:
        found = [path] if Path(path).is_file() else [str(each) for each in Path(path).rglob("*") if each.is_file()]
        if not audit_roots(path, found):
            raise _no_audit_files(path)


def _no_audit_files(path: str) -> InvalidArgument:
    return InvalidArgument(
        f"There are no audit files ({' or '.join(SUFFIXES)}) in {path}. A namespace writes them when it is served with "
        f"--audit: give its data folder, its folder {AUDIT_FOLDER!r}, or files of that."
    )


def audit_paths(spark: SparkSession, paths: Iterable[str]) -> list[AuditPath]:
    return [_audit_path(spark, path) for path in dict.fromkeys(paths)]


def _audit_path(spark: SparkSession, path: str) -> AuditPath:
    try:
        folder = Folder(spark, address_of(path))
        if not folder.exists():
            raise InvalidArgument(
                f"There is no folder or file {path}. Name a data folder that was served with --audit."
            )
        address, files = folder.address, folder.files()
    except spark_errors() as error:
        # Spark has no library for an address of this kind, or the place does not answer.
        raise InvalidArgument(f"{path}: cannot be read: {reason_of(error)}") from None
    roots = audit_roots(address, files)
    if not roots:
        raise _no_audit_files(path)
    listed = {_shown(name): files[name] for names in roots.values() for name in names}
    return AuditPath(path, [without_patterns(root) for root in roots], listed)


def audit_roots(address: str, files: Collection[str]) -> dict[str, list[str]]:
    """The files that may be audit files, by the folder that Spark is to read. Where there are folders `audit`, files
    outside of them are ignored."""
    below: dict[str, list[str]] = {}
    others: list[str] = []
    for name in sorted(files):
        parts = name[len(address) :].split("/")
        if not name.endswith(SUFFIXES) or any(part.startswith(HIDDEN) for part in parts):
            continue
        if AUDIT_FOLDER in parts[:-1]:
            root = address + "/".join(parts[: parts.index(AUDIT_FOLDER) + 1])
            below.setdefault(root, []).append(name)
        else:
            others.append(name)
    return below or ({address: others} if others else {})


def unread_files(files: Mapping[str, int], read: Collection[str]) -> list[str]:
    """The files that were listed and not read. The oldest files of a store may give way at any time, and the marks of
    those that follow say so: they are left out."""
    oldest: dict[str, str] = {}
    for name in sorted(read):
        oldest.setdefault(name.rpartition("/")[0], name)
    unread = [name for name, size_bytes in sorted(files.items()) if size_bytes and name not in read]
    return [name for name in unread if name > oldest.get(name.rpartition("/")[0], "")]


def _shown(address: str) -> str:
    """An address of Hadoop's, which is not quoted, as `shown_name` shows the same file where Spark names it."""
    return "/" + address[len("file:") :].lstrip("/") if address.startswith("file:") else address
