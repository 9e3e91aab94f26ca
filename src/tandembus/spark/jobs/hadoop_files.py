"""Small files beside a job's data, wherever Spark keeps that: a local folder, HDFS, an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTF8: Final = "UTF-8"


class Folder:
    """A path as Spark understands it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._java: Final[Any] = spark._jvm
        self._path: Final = self._java.org.apache.hadoop.fs.Path(path)
        self._files: Final = self._path.getFileSystem(spark._jsc.hadoopConfiguration())

    @property
    def address(self) -> str:
        """The same for all spellings of a path."""
        return str(self._files.makeQualified(self._path).toString())

    def exists(self, name: str | None = None) -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self) -> list[str]:
        return [str(each.getPath().getName()) for each in self._files.listStatus(self._path)] if self.exists() else []

    def read(self, name: str) -> str | None:
        if not self.exists(name):
            return None
        stream = self._files.open(self._at(name))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, UTF8))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """The file is there whole or not at all, whatever happens meanwhile."""
        unfinished = f".{name}.unfinished"
        stream = self._files.create(self._at(unfinished), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.delete(self._at(name), False)
        if not self._files.rename(self._at(unfinished), self._at(name)):
            raise OSError(f"{self.address}/{name} cannot be written")

    def _at(self, name: str | None) -> Any:
        return self._path if name is None else self._java.org.apache.hadoop.fs.Path(self._path, name)
