"""Files on whatever file system Spark can reach: the driver's small reads, writes and renames, through Hadoop's API.

All methods raise ``ConnectorError`` where the file system cannot be reached or refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from watersmeet.errors import ConnectorError

P = ParamSpec("P")
T = TypeVar("T")


def _told(method: Callable[Concatenate[Storage, str, P], T]) -> Callable[Concatenate[Storage, str, P], T]:
    """Java's failures as a ``ConnectorError`` that names the path, the method's first argument."""

    @wraps(method)
    def telling(storage: Storage, path: str, /, *args: P.args, **options: P.kwargs) -> T:
        try:
            return method(storage, path, *args, **options)
        except Py4JJavaError as error:
            reason = str(error.java_exception.toString()).partition(": ")[2] or str(error.java_exception.toString())
            raise ConnectorError(f"{path} cannot be used: {reason.splitlines()[0]}") from None

    return telling


class Storage:
    """Paths and URIs, as Spark understands them."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()

    @_told
    def exists(self, path: str) -> bool:
        """Whether a file or folder is there; a pattern (``*``) must match one."""
        found = self._system(path).globStatus(self._path(path))
        return found is not None and len(found) > 0

    @_told
    def local_path(self, path: str) -> str | None:
        """The absolute path of a file or folder on the machines' own file system; None on any other."""
        system = self._system(path)
        if system.getUri().getScheme() != "file":
            return None
        return str(system.makeQualified(self._path(path)).toUri().getPath())

    @_told
    def make_folder(self, path: str) -> None:
        """Make a folder and those above it."""
        if not self._system(path).mkdirs(self._path(path)):
            raise ConnectorError(f"the folder {path} cannot be made")

    @_told
    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        system, folder = self._system(path), self._path(path)
        if not system.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in system.listStatus(folder))

    @_told
    def read_text(self, path: str) -> str | None:
        """The text of a file, None where there is none."""
        system, inner = self._system(path), self._path(path)
        if not system.exists(inner):
            return None
        stream = system.open(inner)
        try:
            return bytes(self._java("org.apache.commons.io.IOUtils").toByteArray(stream)).decode()
        finally:
            stream.close()

    @_told
    def write_text(self, path: str, text: str) -> None:
        """Write a file whole: whenever one looks, its old text stands there or all of the new."""
        target = self._path(path)
        hidden = self._path(f"{target.getParent().toString()}/.{target.getName()}.tmp")
        context = self._file_context(target)
        stream = self._system(path).create(hidden if context else target, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        if context:
            context.rename(hidden, target, self._overwriting())

    @_told
    def rename(self, path: str, target: str) -> None:
        """Move a file."""
        if not self._system(path).rename(self._path(path), self._path(target)):
            raise ConnectorError(f"{path} could not be moved to {target}")

    @_told
    def delete(self, path: str) -> None:
        """Take away a file or a folder with all in it, if it is there."""
        self._system(path).delete(self._path(path), True)

    def _java(self, name: str) -> Any:
        """A class by its full name: through the gateway's packages each part of it is sought in all of Spark's jars."""
        return JavaClass(name, self._gateway._gateway_client)

    def _path(self, path: str) -> Any:
        return self._java("org.apache.hadoop.fs.Path")(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)

    def _file_context(self, path: Any) -> Any | None:
        """What renames over a file in one step; None on object stores, where a file appears once it is closed."""
        try:
            context = self._java("org.apache.hadoop.fs.FileContext")
            return context.getFileContext(path.toUri(), self._configuration)
        except Py4JJavaError:
            return None

    def _overwriting(self) -> Any:
        option = self._java("org.apache.hadoop.fs.Options$Rename")
        options = self._gateway.new_array(option, 1)
        options[0] = option.OVERWRITE
        return options
