"""Files on whatever file system Spark can reach: the driver's small reads, writes and renames, through Hadoop's API."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class Storage:
    """Paths and URIs, as Spark understands them."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there; a pattern (``*``) must match one."""
        found = self._system(path).globStatus(self._path(path))
        return found is not None and len(found) > 0

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        self._system(path).mkdirs(self._path(path))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        system, path = self._system(folder), self._path(folder)
        if not system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(path))

    def read_text(self, path: str) -> str | None:
        """The text of a file, None where there is none."""
        system, inner = self._system(path), self._path(path)
        if not system.exists(inner):
            return None
        stream = system.open(inner)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a file whole: it appears under its name with all its text or not at all."""
        system, inner = self._system(path), self._path(path)
        hidden = self._path(f"{inner.getParent().toString()}/.{inner.getName()}.tmp")
        stream = system.create(hidden, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        system.delete(inner, False)
        system.rename(hidden, inner)

    def rename(self, source: str, target: str) -> None:
        """Move a file."""
        if not self._system(source).rename(self._path(source), self._path(target)):
            raise OSError(f"could not move {source} to {target}")

    def delete(self, path: str) -> None:
        """Take away a file or a folder with all in it, if it is there."""
        self._system(path).delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)
