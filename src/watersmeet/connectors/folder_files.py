"""The files of a folder as an extent: how many bytes of them Spark has not listed for a query yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyarrow.fs import FileSelector, FileType

from watersmeet.errors import ConnectorError
from watersmeet.filesystems import filesystem_of
from watersmeet.runtime.run_progress import Logged, Measure, Place, Unit
from watersmeet.runtime.storage import Storage

_UNFINISHED = "._COPYING_"


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The sizes of a folder's files by name."""

    sizes: Mapping[str, int]

    def ahead(self, place: Place, logged: Logged) -> int:
        """The bytes of the files that Spark had not listed at a place of its log."""
        read = () if place is None else logged(int(place["logOffset"]))
        return sum(size for name, size in self.sizes.items() if name not in read)


def files_measure(
    storage: Callable[[], Storage], folder: str, is_read: Callable[[str], bool] = lambda _: True
) -> Measure:
    """Return how to measure the files that ``is_read`` says are read of a folder.

    ``storage`` is called only when that is done: a query starts without it.
    """
    found = _Folder(storage, folder, is_read)
    return Measure(Unit.BYTES, found.is_source, found.listed)


class _Folder:
    """A folder that a source of Spark lists."""

    def __init__(self, storage: Callable[[], Storage], folder: str, is_read: Callable[[str], bool]) -> None:
        self._make_storage, self._folder, self._is_read = storage, folder, is_read

    @cached_property
    def _storage(self) -> Storage:
        return self._make_storage()

    @cached_property
    def _description(self) -> str:
        return f"FileStreamSource[{self._storage.uri(self._folder)}]"

    def is_source(self, source: Mapping[str, Any]) -> bool:
        """Whether a source in Spark's progress is that of the folder."""
        return source.get("description") == self._description

    def listed(self) -> FolderFiles:
        """List the folder as Spark does; ``ConnectorError`` where it might list other files."""
        path = self._storage.worker_path(self._folder)
        if path is None:
            raise ConnectorError(f"{self._folder} is on a file system that only Spark reaches")
        system, inner = filesystem_of(path)
        found = system.get_file_info(FileSelector(inner, allow_not_found=True))
        if any(each.type is FileType.Directory and "=" in each.base_name for each in found):
            raise ConnectorError(f"{self._folder} has partitions, which Spark lists")
        shown = (each for each in found if each.type is FileType.File and _is_shown(each.base_name))
        return FolderFiles({each.base_name: each.size for each in shown if self._is_read(each.base_name)})


def _is_shown(name: str) -> bool:
    """Whether Spark reads a file of that name."""
    return not name.startswith((".", "_")) and not name.endswith(_UNFINISHED)
