"""The files of a checkpoint, by Arrow's file systems: read and written without Spark.

Every method raises ``ConnectorError`` if the file system refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs

from watersmeet.errors import ConnectorError, OutageError
from watersmeet.filesystems import filesystem_of, is_object_store, is_unreachable

_KIND = pyarrow.fs.FileType


class Files:
    """A folder and what is in it, by paths from there; hidden files are left out."""

    def __init__(self, folder: str) -> None:
        self.folder = folder.rstrip("/")
        with self._failures(self.folder):
            self.filesystem, self.root = filesystem_of(self.folder)

    def path(self, name: str) -> str:
        """The path of a file or folder on the file system."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or a folder."""
        with self._failures(name):
            return bool(self.filesystem.get_file_info(self.path(name)).type != _KIND.NotFound)

    def names(self, name: str = "") -> list[str]:
        """The sorted names in a folder without hidden ones; empty if there is no such folder."""
        return [found.base_name for found in self.infos(name) if not found.base_name.startswith(".")]

    def infos(self, name: str = "", *, recursive: bool = False) -> list[pyarrow.fs.FileInfo]:
        """What is in a folder, sorted by path; empty if there is no such folder."""
        selector = pyarrow.fs.FileSelector(self.path(name), allow_not_found=True, recursive=recursive)
        with self._failures(name):
            return sorted(self.filesystem.get_file_info(selector), key=lambda found: str(found.path))

    def numbers(self, name: str) -> list[int]:
        """The numbers that are names in a folder, in order."""
        return sorted(int(found) for found in self.names(name) if found.isdecimal())

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none."""
        if not self.exists(name):
            return None
        with self._failures(name), self.filesystem.open_input_stream(self.path(name), compression=None) as file:
            return bytes(file.read())

    def read_text(self, name: str) -> str | None:
        """The text of a file; None if there is none, ``ConnectorError`` if it is not UTF-8."""
        content = self.read(name)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise ConnectorError(f"{self.folder}/{name} is not text in UTF-8") from None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, and make its folder."""
        path = self.path(name)
        with self._failures(name):
            self._make_folder(path.rpartition("/")[0])
            with self.filesystem.open_output_stream(path, compression=None) as out:
                out.write(content)

    def delete(self, name: str) -> None:
        """Delete a file."""
        with self._failures(name):
            self.filesystem.delete_file(self.path(name))

    def copy(self, name: str, target: Files, to: str) -> None:
        """Copy a file into another folder, piece by piece; ``FileNotFoundError`` if it has vanished."""
        path = target.path(to)
        with target._failures(to):
            target._make_folder(path.rpartition("/")[0])
        with (
            self._failures(name, missing=True),
            self.filesystem.open_input_stream(self.path(name), compression=None) as file,
            target._failures(to),
            target.filesystem.open_output_stream(path, compression=None) as out,
        ):
            while piece := file.read(_PIECE):
                out.write(piece)

    def _make_folder(self, path: str) -> None:
        if not is_object_store(self.folder):
            self.filesystem.create_dir(path, recursive=True)

    @contextmanager
    def _failures(self, name: str, *, missing: bool = False) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if missing and isinstance(error, FileNotFoundError):
                raise
            path = f"{self.folder}/{name}" if name and name != self.folder else self.folder
            said = f"{path} cannot be used: {(str(error).splitlines() or [type(error).__name__])[0]}"
            if is_unreachable(str(error)):
                raise OutageError(said) from None
            raise ConnectorError(said, hint="see that the user may use it") from None


_PIECE = 4 << 20
