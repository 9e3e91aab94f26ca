"""Paths that jobs read and write: on the driver's machine, or wherever Spark keeps files (HDFS, an object store)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from tandembus.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIXES: Final = (".jsonl", ".jsonl.gz")
REMOTE_PATTERN: Final = "*.{jsonl,jsonl.gz}"
UTF8: Final = "UTF-8"
_SCHEME: Final = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]+:")
_PATTERN_CHARACTERS: Final = re.compile(r"([\\{}\[\]*?])")


def is_local(path: str) -> bool:
    """Whether the path is of this machine; an address with a scheme is resolved by Spark."""
    return _SCHEME.match(path) is None


def check_paths(paths: Iterable[str]) -> None:
    """Raises `InvalidArgument` for a local path that does not exist, before Spark is started."""
    for path in paths:
        if is_local(path) and not Path(path).exists():
            raise InvalidArgument(
                f"{path}: there is no such folder or file. An address, such as hdfs://..., has a scheme"
            )


def check_shared(paths: Iterable[str], master: str | None) -> None:
    """Raises `InvalidArgument` for a local path that each machine of a cluster would look up in its own file system,
    before Spark is started."""
    local = [path for path in paths if is_local(path)]
    if local and master is not None and not master.startswith("local"):
        raise InvalidArgument(
            f"{local[0]}: on a cluster all machines read and write the files. Give an address that all of them reach, "
            f"or file://{Path(local[0]).resolve()} if they are at that place on each"
        )


def shown_name(address: str) -> str:
    """A file's name for people, from the address by which Spark names it."""
    parts = urlsplit(address)
    return unquote(parts.path if parts.scheme == "file" else address)


def without_patterns(name: str) -> str:
    """The name with its special characters escaped: Spark takes some names to be patterns."""
    return _PATTERN_CHARACTERS.sub(r"\\\1", name)


def address_of(path: str) -> str:
    """The address of a path: Spark may look for a bare local path on another file system."""
    return f"file:{Path(path).resolve()}" if is_local(path) else path


def write_whole(path: Path, text: str) -> None:
    """Replace a local file as a whole: readers find the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class Folder:
    """A folder or file as Spark's own file systems see it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._java: Final[Any] = spark._jvm
        self._path: Final = self._java.org.apache.hadoop.fs.Path(path)
        self._settings: Final[Any] = spark._jsc.hadoopConfiguration()
        self._files: Final = self._path.getFileSystem(self._settings)

    @property
    def address(self) -> str:
        """The same for all spellings of a path."""
        return str(self._files.makeQualified(self._path).toString())

    def files(self) -> dict[str, int]:
        """All files in it and below, by address, with their sizes."""
        listed = self._files.listFiles(self._path, True)
        found: dict[str, int] = {}
        while listed.hasNext():
            status = listed.next()
            found[str(status.getPath().toString())] = int(status.getLen())
        return found

    def exists(self, name: str | None = None) -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str) -> list[str]:
        """The names of all entries in the subfolder of that name."""
        if not self.exists(name):
            return []
        return [str(each.getPath().getName()) for each in self._files.listStatus(self._at(name))]

    def read(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        stream = self._files.open(self._at(name))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, UTF8))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole, in the way in which Spark writes its checkpoints."""
        checkpointing = self._java.org.apache.spark.sql.execution.streaming.checkpointing
        manager = checkpointing.CheckpointFileManager.create(self._path, self._settings)
        if not self._files.mkdirs(self._path):
            raise OSError(f"{self.address} cannot be made")
        stream = manager.createAtomic(self._at(name), True)
        try:
            stream.write(bytearray(text.encode()))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def _at(self, name: str | None) -> Any:
        return self._path if name is None else self._java.org.apache.hadoop.fs.Path(self._path, name)
