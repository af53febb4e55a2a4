"""The checkpoint's file system: in memory, with a pause before every operation, and operations that fail.

An actor that is killed while it writes a file leaves the first half of what it was writing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs
import pytest

from tests.simulation.actors import Killed, pause
from watersmeet.engine import unpack
from watersmeet.runtime import bucket_size_files, hot_key_files
from watersmeet.state import epoch_store

#: The modules whose tasks read and write files of a checkpoint.
_USERS = (bucket_size_files, epoch_store, hot_key_files, unpack)


class SimulatedDisk(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """Files by path.  ``fails`` says of an operation, by its name, whether it fails this time."""

    def __init__(self, fails: Callable[[str], bool]) -> None:
        self.files: dict[str, bytes] = {}
        self._fails = fails

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, in order."""
        return sorted(path[len(folder) + 1 :] for path in self.files if _parent(path) == folder)

    def _begin(self, operation: str, path: str) -> None:
        pause()
        if self._fails(operation):
            raise OSError(f"{operation} of {path} fails")

    # -- reading -----------------------------------------------------------------------------------------------------

    def get_file_info_selector(self, selector: pyarrow.fs.FileSelector) -> list[pyarrow.fs.FileInfo]:
        self._begin("list", selector.base_dir)
        inside = selector.base_dir + "/"
        children = {inside + path[len(inside) :].partition("/")[0] for path in self.files if path.startswith(inside)}
        return [self._info(path) for path in sorted(children)]

    def get_file_info(self, paths: list[str]) -> list[pyarrow.fs.FileInfo]:
        return [self._info(path) for path in paths]

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        self._begin("read", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        return pa.PythonFile(io.BytesIO(self.files[path]), mode="r")

    def _info(self, path: str) -> pyarrow.fs.FileInfo:
        if path in self.files:
            return pyarrow.fs.FileInfo(path, pyarrow.fs.FileType.File, size=len(self.files[path]))
        is_folder = any(each.startswith(path + "/") for each in self.files)
        kind = pyarrow.fs.FileType.Directory if is_folder else pyarrow.fs.FileType.NotFound
        return pyarrow.fs.FileInfo(path, kind)

    # -- writing -----------------------------------------------------------------------------------------------------

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:
        self._begin("create", path)
        self.files[path] = b""
        return pa.PythonFile(_Written(self, path), mode="w")

    def move(self, source: str, target: str) -> None:
        self._begin("rename", source)
        if source not in self.files:
            raise FileNotFoundError(source)
        self.files[target] = self.files.pop(source)

    def delete_file(self, path: str) -> None:
        self._begin("delete", path)
        if self.files.pop(path, None) is None:
            raise FileNotFoundError(path)

    def delete_dir(self, path: str) -> None:
        self._begin("delete", path)
        for each in [each for each in self.files if each.startswith(path + "/")]:
            del self.files[each]

    def create_dir(self, path: str, recursive: bool) -> None:
        pass

    # -- what no task does -------------------------------------------------------------------------------------------

    def get_type_name(self) -> str:
        return "simulated"

    def normalize_path(self, path: str) -> str:
        return path

    def copy_file(self, source: str, target: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: object) -> pa.PythonFile:
        raise NotImplementedError


class _Written(io.RawIOBase):
    """A file that is being written."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        super().__init__()
        self._disk, self._path = disk, path

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        try:
            pause()
        except Killed:
            self._disk.files[self._path] = self._disk.files.get(self._path, b"") + bytes(data)[: len(data) // 2]
            raise
        self._disk.files[self._path] = self._disk.files.get(self._path, b"") + bytes(data)
        return len(data)


@contextmanager
def mounted(disk: SimulatedDisk) -> Iterator[None]:
    """Let tasks read and write the files of checkpoints here."""
    filesystem = pyarrow.fs.PyFileSystem(disk)
    with pytest.MonkeyPatch.context() as patch:
        for module in _USERS:
            patch.setattr(module, "filesystem_of", lambda path: (filesystem, path))
        yield


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
