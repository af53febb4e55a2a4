"""The workspace folder: what is in it belongs to its owner alone, since it holds rows and definitions."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from watersmeet.errors import CatalogError

_FOLDERS = ("streams", "tables", "queries", "side", "hot_keys")
_CATALOG = "catalog.json"
_FILES = (_CATALOG, "catalog.tmp", "catalog.lock", "history", "spark.log", "spark.log.1")


def make_workspace(folder: Path) -> None:
    """Make the folder for its owner alone; raises ``CatalogError`` if it cannot be made.

    A folder that exists is closed to others too if it holds only files of Watersmeet's.  If the user keeps other files
    beside a catalogue, only the folders that Watersmeet writes to are closed.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise no_folder(folder) from None
    except OSError as error:
        raise not_writable(folder, error) from None
    with suppress(OSError):  # the user may not list the folder; the next access reports it
        names = {path.name for path in folder.iterdir()}
        if names <= {*_FOLDERS, *_FILES}:
            _close_to_others(folder)
        elif _CATALOG in names:
            for name in names.intersection(_FOLDERS):
                _close_to_others(folder / name)


def no_folder(folder: Path) -> CatalogError:
    """The error for a workspace whose place a file takes."""
    return CatalogError(
        f"the workspace {folder} is a file, or stands below one",
        hint="name a folder, or a path that does not exist yet",
    )


def not_writable(path: Path, error: OSError) -> CatalogError:
    """The error for a file of the workspace that cannot be written."""
    return CatalogError(
        f"{error.filename or path} cannot be written: {error.strerror}",
        hint="a workspace is a folder that you may write to, on a disk with free space; use another one?",
    )


def _close_to_others(folder: Path) -> None:
    with suppress(OSError):  # the file system may have no modes
        status = folder.stat()
        if status.st_uid == os.getuid() and status.st_mode & 0o077:
            folder.chmod(status.st_mode & 0o700)
