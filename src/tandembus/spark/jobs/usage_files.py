"""Which metering files are meant: data folders, meter folders, files, on this machine or wherever Spark can read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.streaming import reason_of, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIXES: Final = (".jsonl", ".jsonl.gz")
REMOTE_PATTERN: Final = "*.{jsonl,jsonl.gz}"
METER_FOLDER: Final = "meter"
_SCHEME: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+:")
_PATTERN_CHARACTERS: Final = re.compile(r"([\\{}\[\]*?])")


@dataclass(frozen=True, slots=True)
class MeteringFile:
    spark_name: str
    """As Spark takes it: what would be a pattern there is only a name here."""
    shown: str
    size_bytes: int


def check_paths(paths: Iterable[str]) -> None:
    """Raises `InvalidArgument` for a path of this machine at which nothing is: told before Spark is started."""
    for path in paths:
        if is_local(path) and not Path(path).exists():
            raise InvalidArgument(
                f"{path}: there is no such folder or file. An address, such as hdfs://..., has a scheme"
            )


def check_shared(paths: Iterable[str], master: str | None) -> None:
    """Raises `InvalidArgument` for a path of this machine that a cluster would look for, or write to, on each of its
    own: told before Spark is started."""
    local = [path for path in paths if is_local(path)]
    if local and master is not None and not master.startswith("local"):
        raise InvalidArgument(
            f"{local[0]}: on a cluster all machines read and write the files. Give an address that all of them reach, "
            f"or file://{Path(local[0]).resolve()} if they are at that place on each"
        )


def check_metering_paths(paths: Iterable[str]) -> None:
    """Raises `InvalidArgument` for a path of this machine without metering files: told before Spark is started."""
    paths = list(paths)
    check_paths(paths)
    for path in paths:
        if is_local(path) and not local_files(Path(path)):
            raise no_metering_files(path)


def no_metering_files(path: str) -> InvalidArgument:
    kinds = " or ".join(SUFFIXES)
    return InvalidArgument(
        f"{path}: no metering files ({kinds}): give a namespace's data folder, its folder {METER_FOLDER!r}, or files "
        "of that"
    )


def metering_files(spark: SparkSession, paths: Iterable[str]) -> list[MeteringFile]:
    """A file that is named twice is read once."""
    paths = list(paths)
    check_paths(paths)
    found: dict[str, MeteringFile] = {}
    for path in paths:
        files = local_files(Path(path)) if is_local(path) else _remote_files(spark, path)
        if not files:
            raise no_metering_files(path)
        found.update({each.shown: each for each in files})
    return list(found.values())


def is_local(path: str) -> bool:
    """A path of this machine; an address is Spark's business."""
    return not has_scheme(path)


def has_scheme(path: str) -> bool:
    return _SCHEME.match(path) is not None


def local_files(path: Path) -> list[MeteringFile]:
    if path.is_file():
        chosen = [path]
    else:
        folder = path / METER_FOLDER if (path / METER_FOLDER).is_dir() else path
        chosen = sorted([each for each in folder.rglob("*") if each.name.endswith(SUFFIXES) and each.is_file()])
    resolved = [Path(each) for each in of_the_meter([str(each.resolve()) for each in chosen])]
    return [MeteringFile(f"file:{without_patterns(str(each))}", str(each), each.stat().st_size) for each in resolved]


def of_the_meter(names: Iterable[str]) -> list[str]:
    """Where files have a folder `meter` beside them, they are something else: a data folder holds audit files, too."""
    parted = [name.split("/") for name in names]
    data_folders = {
        tuple(parts[:place]) for parts in parted for place, part in enumerate(parts[:-1]) if part == METER_FOLDER
    }
    return [
        "/".join(parts)
        for parts in parted
        if all(part == METER_FOLDER or tuple(parts[:place]) not in data_folders for place, part in enumerate(parts))
    ]


def shown_name(address: str) -> str:
    """Of a file as Spark names it, for people."""
    parts = urlsplit(address)
    return unquote(parts.path if parts.scheme == "file" else address)


def without_patterns(name: str) -> str:
    """For Spark, which takes some names to be patterns."""
    return _PATTERN_CHARACTERS.sub(r"\\\1", name)


def _remote_files(spark: SparkSession, path: str) -> list[MeteringFile]:
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        # Only names and sizes are asked for, so nothing is read.
        rows = reader.option("pathGlobFilter", REMOTE_PATTERN).load(path).select("path", "length").collect()
    except spark_errors() as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        # An address of a kind that this Spark has no library for, no address at all, or a place that does not answer.
        raise InvalidArgument(f"{path}: cannot be read: {reason_of(error)}") from None
    sizes = {row["path"]: row["length"] for row in rows}
    return [MeteringFile(without_patterns(name), shown_name(name), sizes[name]) for name in of_the_meter(sizes)]
