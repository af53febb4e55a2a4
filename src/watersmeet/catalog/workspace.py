"""The workspace folder: what is in it belongs to its owner alone, since it holds rows and definitions."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from watersmeet.errors import CatalogError

_FOLDERS = ("streams", "tables", "queries", "side", "hot_keys")
_FILES = ("catalog.json", "catalog.tmp", "catalog.lock", "history", "spark.log", "spark.log.1")


def make_workspace(folder: Path) -> None:
    """Make the folder for its owner alone; raises ``CatalogError`` if it cannot be made.

    A folder that exists is closed to others too if it holds only files of Watersmeet's.  Else the user keeps other
    files there, and only the folders in it that Watersmeet made are closed.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise no_folder(folder) from None
    except OSError as error:
        raise not_writable(folder, error) from None
    with suppress(OSError):  # the user may not list the folder; the next access reports it
        is_ours_alone = {path.name for path in folder.iterdir()} <= {*_FOLDERS, *_FILES}
        for each in [folder] if is_ours_alone else [folder / name for name in _FOLDERS]:
            _close_to_others(each)


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
    with suppress(OSError):  # it does not exist, or the file system has no modes
        status = folder.stat()
        if status.st_uid == os.getuid() and status.st_mode & 0o077:
            folder.chmod(status.st_mode & 0o700)
