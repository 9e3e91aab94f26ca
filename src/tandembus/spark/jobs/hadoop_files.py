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
        self._settings: Final[Any] = spark._jsc.hadoopConfiguration()
        self._files: Final = self._path.getFileSystem(self._settings)

    @property
    def address(self) -> str:
        """The same for all spellings of a path."""
        return str(self._files.makeQualified(self._path).toString())

    def files(self) -> dict[str, int]:
        """All that are in it and below, by address, and how large they are."""
        listed = self._files.listFiles(self._path, True)
        found: dict[str, int] = {}
        while listed.hasNext():
            status = listed.next()
            found[str(status.getPath().toString())] = int(status.getLen())
        return found

    def exists(self, name: str | None = None) -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str | None = None) -> list[str]:
        """Of what is in it, or in the folder of that name."""
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
        """The file is there whole or as it was before, whatever happens meanwhile: as Spark writes a checkpoint."""
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
