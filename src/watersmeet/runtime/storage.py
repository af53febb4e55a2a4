"""The driver's small file operations on any file system that Spark can reach, through Hadoop's API.

Every method raises ``OutageError`` if the file system is unreachable, and ``ConnectorError`` if it refuses.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from watersmeet.errors import ConnectorError, OutageError
from watersmeet.filesystems import in_words, is_object_store, is_unreachable, reason_of
from watersmeet.runtime.failures import disk_failure

P = ParamSpec("P")
T = TypeVar("T")

#: Stores where a file appears whole when it is closed, and where moving one copies it and deletes the other.
_STORES = ("s3", "s3a", "s3n", "gs")
_ONLY_IF_ABSENT = "fs.option.create.conditional.overwrite"
#: What Hadoop raises for a file that is there already; the second when a store itself refuses it.
_EXISTS = re.compile(r"FileAlreadyExistsException|RemoteFileChangedException|Status Code: 412\b|HTTP/1\.1 412\b")
#: Stores that were seen to refuse a second write of one file.
_refuses: set[str] = set()
_CHECKSUM_FAILURE = "org.apache.hadoop.fs.ChecksumException"
_OWNER_ONLY = 0o700
# `write_text` leaves .NAME.tmp if it is interrupted; a worker that writes hot keys leaves UUID.part
_TEMPORARY = re.compile(r"\..+\.tmp|[0-9a-f]{32}\.part")


class DamagedFileError(ConnectorError):
    """A file can be read, but its bytes are not what was written: a checksum fails, or it is not UTF-8 text."""


def _as_connector_error(
    method: Callable[Concatenate[Storage, str, P], T],
) -> Callable[Concatenate[Storage, str, P], T]:
    """Turn Java's exceptions into ``ConnectorError``; the method's first argument is the path that it names."""

    @wraps(method)
    def wrapper(storage: Storage, path: str, /, *args: P.args, **options: P.kwargs) -> T:
        try:
            return method(storage, path, *args, **options)
        except Py4JJavaError as error:
            exception = error.java_exception
            if exception.getClass().getName() == _CHECKSUM_FAILURE:
                raise DamagedFileError(f"{path} does not match the checksum that was stored beside it") from None
            reason = str(exception.toString()).partition(": ")[2] or str(exception.toString())
            said = f"{path} cannot be used: {in_words(reason.splitlines()[0])}"
            if is_unreachable(str(error)):
                known = reason_of(str(error))
                raise OutageError(said, waits_for=f"{path}: {known}" if known else "") from None
            _, then = disk_failure(str(error)) or ("", "see that the user may use it")
            raise ConnectorError(said, hint=f"{then}, and run it again: it goes on where it stopped") from None

    return wrapper


class Storage:
    """File operations on paths and URIs, as Spark resolves them."""

    def __init__(self, spark: SparkSession) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()

    @_as_connector_error
    def exists(self, path: str) -> bool:
        """Whether a file or folder exists; a pattern (``*``) must match at least one."""
        found = self._system(path).globStatus(self._path(path))
        return found is not None and len(found) > 0

    @_as_connector_error
    def modified(self, path: str) -> float | None:
        """When a file was written last, in seconds since 1970; None if there is none."""
        system, file = self._system(path), self._path(path)
        return system.getFileStatus(file).getModificationTime() / 1000 if system.exists(file) else None

    @_as_connector_error
    def local_path(self, path: str) -> str | None:
        """The absolute path of a file or folder on the local file system; None on any other."""
        system = self._system(path)
        if system.getUri().getScheme() != "file":
            return None
        return str(system.makeQualified(self._path(path)).toUri().getPath())

    @_as_connector_error
    def uri(self, path: str) -> str:
        """The whole URI: a path without a scheme is on the default file system."""
        return str(self._system(path).makeQualified(self._path(path)).toString())

    @_as_connector_error
    def worker_path(self, path: str) -> str | None:
        """The local path or S3 URI under which workers reach a file or folder; None if they cannot."""
        uri = self.uri(path)
        return uri if is_object_store(uri) else self.local_path(path)

    @_as_connector_error
    def make_folder(self, path: str) -> None:
        """Make a folder and its parents; a local one is made by no command, which could fail by itself."""
        if (local := self.local_path(path)) is not None:
            _make_local(Path(local), path)
        elif not self._system(path).mkdirs(self._path(path)):
            raise ConnectorError(f"the folder {path} cannot be made")

    @_as_connector_error
    def make_private_folder(self, path: str) -> None:
        """Make a folder that only its owner can enter, and its parents; a folder that exists stays unchanged."""
        if (local := self.local_path(path)) is not None:
            # Hadoop would make it, let others enter it, and then run chmod
            _make_local(Path(local), path, _OWNER_ONLY)
            return
        system, folder = self._system(path), self._path(path)
        if system.exists(folder):
            return
        permission = self._java("org.apache.hadoop.fs.permission.FsPermission")(f"{_OWNER_ONLY:o}")
        if not system.mkdirs(folder, permission):
            raise ConnectorError(f"the folder {path} cannot be made")

    @_as_connector_error
    def names(self, path: str) -> list[str]:
        """The sorted names in a folder without hidden ones (``.`` prefix); empty if the folder does not exist."""
        return sorted(name for name in self._all_names(path) if not name.startswith("."))

    @_as_connector_error
    def remove_temporary(self, path: str, *, recursive: bool = False) -> None:
        """Delete what interrupted writers left in a folder; call it only when nobody writes there."""
        system, folder = self._system(path), self._path(path)
        if not system.exists(folder):
            return
        files = _iterate(system.listFiles(folder, recursive))
        for file in [status.getPath() for status in files if _TEMPORARY.fullmatch(status.getPath().getName())]:
            system.delete(file, False)

    @_as_connector_error
    def read_text(self, path: str) -> str | None:
        """The text of a file, None if it does not exist; ``DamagedFileError`` if it is damaged or not UTF-8."""
        system, inner = self._system(path), self._path(path)
        if not system.exists(inner):
            return None
        stream = system.open(inner)
        try:
            content = bytes(self._java("org.apache.commons.io.IOUtils").toByteArray(stream))
        finally:
            stream.close()
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise DamagedFileError(f"{path} is not text in UTF-8") from None

    @_as_connector_error
    def write_text(self, path: str, text: str) -> None:
        """Write a file atomically: readers see the old text or the new text, never a part."""
        target = self._path(path)
        if (local := self.local_path(path)) is not None:
            file = Path(local)
            hidden = file.with_name(f".{file.name}.tmp")
            self._write(self._system(path).create(self._path(f"file:{hidden}"), True), text)
            _replace(hidden, file)
        elif (context := self._file_context(target)) is not None:
            self._write_beside(context, target, text, self._java("org.apache.hadoop.fs.Options$Rename").OVERWRITE)
        else:
            self._write(self._system(path).create(target, True), text)

    @_as_connector_error
    def create_text(self, path: str, text: str) -> bool:
        """Write a file atomically unless there is one; False if there is one with another text.

        Of several that write it at once, one succeeds.
        """
        target = self._path(path)
        try:
            if (local := self.local_path(path)) is not None:
                _link(Path(local), text)
            elif (context := self._file_context(target)) is not None:
                self._write_beside(context, target, text, self._java("org.apache.hadoop.fs.Options$Rename").NONE)
            else:
                self._require_refusals(target)
                self._write(self._if_absent(target).build(), text)
        except FileExistsError:
            pass
        except Py4JJavaError as error:
            if not _is_refusal(error):
                raise
        else:
            return True
        # a store may refuse what it has written, if its first answer was lost
        return self.read_text(path) == text

    def _if_absent(self, target: Any) -> Any:
        """Return what opens a file on a store that is written only if there is none when it is closed."""
        system = target.getFileSystem(self._configuration)
        return system.createFile(target).overwrite(False).recursive().opt(_ONLY_IF_ABSENT, True)

    def _require_refusals(self, target: Any) -> None:
        """Raise ``ConnectorError`` if a store writes what it should refuse: changes of two sessions would be lost.

        A store is asked once, by a file that is written twice.
        """
        system = target.getFileSystem(self._configuration)
        store = str(system.getUri().toString())
        if store in _refuses:
            return
        if not store.startswith("s3") or system.hasPathCapability(target, _ONLY_IF_ABSENT):
            probe = self._path(f"{target.getParent().toString()}/.{uuid.uuid4().hex}.tmp")
            try:
                self._write(self._if_absent(probe).build(), "once")
                self._write(self._if_absent(probe).build(), "twice")
            except Py4JJavaError as error:
                if not _is_refusal(error):
                    raise
                _refuses.add(store)
                return
            finally:
                system.delete(probe, False)
        raise ConnectorError(
            f"{store} cannot hold a workspace: of two sessions that write one file, both succeed",
            hint="take a store that knows If-None-Match for writes, hadoop-aws 3.4.2 or newer, and "
            "fs.s3a.create.conditional.enabled = true; checkpoints may be on another store than the workspace",
        )

    def _write(self, stream: Any, text: str) -> None:
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def _write_beside(self, context: Any, target: Any, text: str, option: Any) -> None:
        """Write a hidden file of our own, and move it to its name."""
        hidden = self._path(f"{target.getParent().toString()}/.{target.getName()}.{uuid.uuid4().hex}.tmp")
        system = hidden.getFileSystem(self._configuration)
        options = self._gateway.new_array(self._java("org.apache.hadoop.fs.Options$Rename"), 1)
        options[0] = option
        self._write(system.create(hidden, True), text)
        try:
            context.rename(hidden, target, options)
        except Py4JJavaError:
            system.delete(hidden, False)
            raise

    @_as_connector_error
    def rename(self, path: str, target: str) -> None:
        """Move a file."""
        if not self._system(path).rename(self._path(path), self._path(target)):
            raise ConnectorError(f"{path} could not be moved to {target}")

    @_as_connector_error
    def copy(self, path: str, target: str) -> None:
        """Copy a file, or a folder with everything in it, to where there is none."""
        utilities, folder = self._java("org.apache.hadoop.fs.FileUtil"), self._path(target)
        systems = self._system(path), self._system(target)
        if not utilities.copy(systems[0], self._path(path), systems[1], folder, False, self._configuration):
            raise ConnectorError(f"{path} could not be copied to {target}")

    @_as_connector_error
    def delete(self, path: str) -> None:
        """Delete a file, or a folder with everything in it; a path that does not exist is no error."""
        self._system(path).delete(self._path(path), True)

    def _all_names(self, path: str) -> list[str]:
        system, folder = self._system(path), self._path(path)
        if not system.exists(folder):
            return []
        return [str(status.getPath().getName()) for status in system.listStatus(folder)]

    def _java(self, name: str) -> Any:
        """Return a class by its full name; the gateway's package lookup would search every jar for each part of it."""
        return JavaClass(name, self._gateway._gateway_client)

    def _path(self, path: str) -> Any:
        return self._java("org.apache.hadoop.fs.Path")(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)

    def _file_context(self, path: Any) -> Any | None:
        """Return the API that moves a file atomically; None on object stores, where closing a file does that.

        Hadoop has that API for some of these too. There it deletes the target first: who is killed then leaves none.
        """
        if str(self._system(str(path.toString())).getUri().getScheme()) in _STORES:
            return None
        try:
            context = self._java("org.apache.hadoop.fs.FileContext")
            return context.getFileContext(path.toUri(), self._configuration)
        except Py4JJavaError:
            return None


def _make_local(folder: Path, name: str, mode: int = 0o777) -> None:
    """Make a local folder and its parents; ``name`` is what errors call it."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        _, then = disk_failure(str(error)) or ("", "see that the user may use it")
        raise ConnectorError(f"{name} cannot be used: {error.strerror}", hint=then) from None


def _is_refusal(error: Py4JJavaError) -> bool:
    return _EXISTS.search(str(error.java_exception.toString())) is not None


def _link(target: Path, text: str) -> None:
    """Write a local file; ``FileExistsError`` if there is one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    hidden.write_text(text, encoding="utf-8")
    try:
        target.hardlink_to(hidden)
    finally:
        hidden.unlink()


def _replace(source: Path, target: Path) -> None:
    """Replace a local file, with its checksum.

    Hadoop deletes the file first: who is killed then leaves none, or one with the checksum of the other.  Without a
    checksum a file is read as it is.
    """
    checksum = _checksum_of(target)
    checksum.unlink(missing_ok=True)
    source.replace(target)
    with suppress(FileNotFoundError):
        _checksum_of(source).replace(checksum)


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _iterate(remote: Any) -> Iterator[Any]:
    """Iterate over one of Hadoop's remote iterators."""
    while remote.hasNext():
        yield remote.next()
