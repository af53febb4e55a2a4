"""The catalogue on a store: each change writes a file of its own, with the next number.

    catalog/000000000041.json
    catalog/000000000042.json     the catalogue now

A store has no locks, but of several that write one file only one succeeds (``Storage.create_text``).  Who comes
second reads again, and makes the change anew.  So no change is lost, and who is killed leaves the old catalogue or the
new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from watersmeet.errors import CatalogError
from watersmeet.runtime.storage import DamagedFileError, Storage
from watersmeet.runtime.store_folder import StoreFolder

_NAME = re.compile(r"\d{12}\.json")
_RESTORE = "restore the file from a copy, or delete it: the one before it then counts"
_KEPT = 100
_TRIES = 1000


class StoredCatalog:
    """The catalogue's files in a folder of a store."""

    def __init__(self, workspace: StoreFolder) -> None:
        self._storage: Storage = workspace.storage
        self._folder = f"{workspace}/catalog"

    def read(self) -> tuple[str, bytes] | None:
        """The newest file's name and content; None if there is none."""
        for _ in range(_TRIES):
            numbers = self._numbers()
            if not numbers:
                return None
            path = self._path(numbers[-1])
            try:
                text = self._storage.read_text(path)
            except DamagedFileError as error:
                raise CatalogError(f"{path} is not a catalogue: {error}", hint=_RESTORE) from None
            if text is not None:
                return path, text.encode()
        raise CatalogError(f"{self._folder} cannot be read: its files disappear as soon as they are there")

    def change(self, update: Callable[[], str | None]) -> None:
        """Write what ``update`` gives as the next file, again if another process was faster."""
        for _ in range(_TRIES):
            newest = max(self._numbers(), default=-1)
            # the file that it reads may be newer: then the next number is taken, and it is called again
            if (text := update()) is None or self._write(newest + 1, text):
                return
        raise CatalogError(
            f"{self._folder} could not be changed: other sessions have been faster {_TRIES} times in a row",
            hint="run the statement again",
        )

    def _write(self, number: int, text: str) -> bool:
        """Write a file; False if another process has written that one."""
        if not self._storage.create_text(self._path(number), text):
            return False
        numbers = self._numbers()
        if numbers[-1] > number and number + 1 not in numbers:
            # so slow that a file of this number was written, and deleted again, since we read: it counts for nothing
            self._storage.delete(self._path(number))
            return False
        for old in numbers[:-_KEPT]:
            self._storage.delete(self._path(old))
        return True

    def _numbers(self) -> list[int]:
        return [int(name[:12]) for name in self._storage.names(self._folder) if _NAME.fullmatch(name)]

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"
