"""The files of a folder as an extent: how many bytes of them Spark has not listed for a query yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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


def files_measure(storage: Storage, folder: str, is_read: Callable[[str], bool] = lambda name: True) -> Measure:
    """Return how to measure the files that ``is_read`` says are read of a folder."""
    description = f"FileStreamSource[{storage.uri(folder)}]"
    return Measure(Unit.BYTES, partial(_is_described, description), partial(_listed, storage, folder, is_read))


def _is_described(description: str, source: Mapping[str, Any]) -> bool:
    return source.get("description") == description


def _listed(storage: Storage, folder: str, is_read: Callable[[str], bool]) -> FolderFiles:
    """List a folder as Spark does; ``ConnectorError`` where it might list other files."""
    path = storage.worker_path(folder)
    if path is None:
        raise ConnectorError(f"{folder} is on a file system that only Spark reaches")
    system, inner = filesystem_of(path)
    found = system.get_file_info(FileSelector(inner, allow_not_found=True))
    if any(each.type is FileType.Directory and "=" in each.base_name for each in found):
        raise ConnectorError(f"{folder} has partitions, which Spark lists")
    shown = (each for each in found if each.type is FileType.File and _is_shown(each.base_name))
    return FolderFiles({each.base_name: each.size for each in shown if is_read(each.base_name)})


def _is_shown(name: str) -> bool:
    """Whether Spark reads a file of that name."""
    return not name.startswith((".", "_")) and not name.endswith(_UNFINISHED)
