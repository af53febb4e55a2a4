"""The catalogue's file in a local folder: changes are made under a lock and written atomically."""

from __future__ import annotations

from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

from watersmeet.catalog.workspace import make_workspace, no_folder, not_writable
from watersmeet.errors import CatalogError


class LocalFile:
    """The file ``catalog.json`` of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "catalog.json"

    def read(self) -> tuple[str, bytes] | None:
        """The file's name and content; None if there is none."""
        try:
            return str(self._path), self._path.read_bytes()
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise no_folder(self._folder) from None
        except OSError as error:
            raise CatalogError(
                f"{self._path} cannot be read: {error.strerror}",
                hint="make it a file that you may read, or use another workspace",
            ) from None

    def change(self, update: Callable[[], str | None]) -> None:
        """Write what ``update`` gives, if it gives anything; nobody else changes the file meanwhile."""
        try:
            make_workspace(self._folder)
            with (self._folder / "catalog.lock").open("w") as lock:
                flock(lock, LOCK_EX)
                if (text := update()) is None:
                    return
                written = self._path.with_suffix(".tmp")
                written.touch(mode=0o600)
                written.write_text(text, encoding="utf-8")
                written.replace(self._path)
        except OSError as error:
            raise not_writable(self._path, error) from None
