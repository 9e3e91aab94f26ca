"""Which audit files are meant: data folders, audit folders, files, on this machine or wherever Spark can read; and
which of them were not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tandembus.errors import InvalidArgument
from tandembus.spark.jobs.hadoop_files import Folder
from tandembus.spark.jobs.streaming import reason_of, spark_errors
from tandembus.spark.jobs.usage_files import SUFFIXES, is_local, without_patterns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUDIT_FOLDER: Final = "audit"
HIDDEN: Final = ("_", ".")
"""Spark passes over names that begin so."""


@dataclass(frozen=True, slots=True)
class AuditPath:
    """What one path of the caller's stands for."""

    path: str
    spark_names: Sequence[str]
    """Folders or a file, as Spark takes them: what would be a pattern there is only a name here."""
    files: Mapping[str, int]
    """What was there when it was listed, and how large it was."""


def check_audit_paths(paths: Iterable[str]) -> None:
    """Raises `InvalidArgument` for a path of this machine without audit files: told before Spark is started."""
    for path in [each for each in paths if is_local(each)]:
        found = [path] if Path(path).is_file() else [str(each) for each in Path(path).rglob("*") if each.is_file()]
        if not audit_roots(path, found):
            raise no_audit_files(path)


def no_audit_files(path: str) -> InvalidArgument:
    return InvalidArgument(
        f"There are no audit files ({' or '.join(SUFFIXES)}) in {path}. A namespace writes them when it is served with "
        f"--audit: give its data folder, its folder {AUDIT_FOLDER!r}, or files of that."
    )


def audit_paths(spark: SparkSession, paths: Iterable[str]) -> list[AuditPath]:
    return [_audit_path(spark, path) for path in dict.fromkeys(paths)]


def address_of(path: str) -> str:
    """For Spark, which may take a bare path to be elsewhere than on this machine."""
    return f"file:{Path(path).resolve()}" if is_local(path) else path


def _audit_path(spark: SparkSession, path: str) -> AuditPath:
    try:
        folder = Folder(spark, address_of(path))
        if not folder.exists():
            raise InvalidArgument(
                f"There is no folder or file {path}. Name a data folder that was served with --audit."
            )
        address, files = folder.address, folder.files()
    except spark_errors() as error:
        # An address of a kind that this Spark has no library for, or a place that does not answer.
        raise InvalidArgument(f"{path}: cannot be read: {reason_of(error)}") from None
    roots = audit_roots(address, files)
    if not roots:
        raise no_audit_files(path)
    listed = {_shown(name): files[name] for names in roots.values() for name in names}
    return AuditPath(path, [without_patterns(root) for root in roots], listed)


def audit_roots(address: str, files: Collection[str]) -> dict[str, list[str]]:
    """The files that may be an audit's, by the folder that Spark is to read. Where there are folders `audit`, all else
    is something else."""
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
    """What was there, and nothing of it was read. The oldest files of a store may give way at any time: that their
    records are gone is seen by those that follow."""
    oldest: dict[str, str] = {}
    for name in sorted(read):
        oldest.setdefault(_folder(name), name)
    unread = [name for name, size_bytes in sorted(files.items()) if size_bytes and name not in read]
    return [name for name in unread if name > oldest.get(_folder(name), "")]


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _shown(address: str) -> str:
    """As `shown_name` shows the same file where Spark names it."""
    return "/" + address[len("file:") :].lstrip("/") if address.startswith("file:") else address
