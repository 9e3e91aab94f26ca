"""Which metering files are meant: data folders, meter folders, files, on this machine or wherever Spark can read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tandembus.errors import InvalidArgument

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


def metering_files(spark: SparkSession, paths: Iterable[str]) -> list[MeteringFile]:
    """A file that is named twice is read once."""
    found: dict[str, MeteringFile] = {}
    for path in paths:
        files = local_files(Path(path)) if is_local(path) else _remote_files(spark, path)
        if not files:
            kinds = " or ".join(SUFFIXES)
            raise InvalidArgument(
                f"{path}: no metering files ({kinds}): give a namespace's data folder, its folder {METER_FOLDER!r}, or "
                "files of that"
            )
        found.update({each.shown: each for each in files})
    return list(found.values())


def is_local(path: str) -> bool:
    """A path of this machine; any other is Spark's business, also one without a scheme that is not here."""
    return not has_scheme(path) and Path(path).exists()


def has_scheme(path: str) -> bool:
    return _SCHEME.match(path) is not None


def local_files(path: Path) -> list[MeteringFile]:
    if path.is_file():
        chosen = [path]
    else:
        # A data folder holds more than the meter's files; each process has a folder of its own below theirs.
        folder = path / METER_FOLDER if (path / METER_FOLDER).is_dir() else path
        chosen = sorted([each for each in folder.rglob("*") if each.name.endswith(SUFFIXES) and each.is_file()])
    resolved = [each.resolve() for each in chosen]
    return [MeteringFile(f"file:{_without_patterns(str(each))}", str(each), each.stat().st_size) for each in resolved]


def shown_name(address: str) -> str:
    """Of a file as Spark names it, for people."""
    parts = urlsplit(address)
    return unquote(parts.path if parts.scheme == "file" else address)


def _without_patterns(name: str) -> str:
    return _PATTERN_CHARACTERS.sub(r"\\\1", name)


def _remote_files(spark: SparkSession, path: str) -> list[MeteringFile]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        # Only names and sizes are asked for, so nothing is read.
        rows = reader.option("pathGlobFilter", REMOTE_PATTERN).load(path).select("path", "length").collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return []
        raise InvalidArgument(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    except Py4JJavaError as error:
        # An address of a kind that this Spark has no library for, or a place that does not answer.
        raise InvalidArgument(f"{path}: cannot be read: {error.java_exception.toString()}") from None
    return [MeteringFile(_without_patterns(row["path"]), shown_name(row["path"]), row["length"]) for row in rows]
