"""The workspace folder: what is in it belongs to its owner alone, since it holds rows and definitions."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_FOLDERS = ("streams", "tables", "queries", "side", "hot_keys")
_FILES = ("catalog.json", "catalog.tmp", "catalog.lock", "history", "spark.log", "spark.log.1")


def make_workspace(folder: Path) -> None:
    """Make the folder for its owner alone; raises ``OSError`` as ``mkdir`` does.

    A folder that exists is closed to others too if only Watersmeet has files in it, else the folders in it that
    Watersmeet made: a workspace may share its folder with other files of the user's.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        is_ours_alone = {path.name for path in folder.iterdir()} <= {*_FOLDERS, *_FILES}
        for each in [folder] if is_ours_alone else [folder / name for name in _FOLDERS]:
            _close_to_others(each)


def _close_to_others(folder: Path) -> None:
    with suppress(OSError):  # it does not exist, or the file system has no modes
        status = folder.stat()
        if status.st_uid == os.getuid() and status.st_mode & 0o077:
            folder.chmod(status.st_mode & 0o700)
