"""A folder on this machine for one run of a query: what its workers leave for each other there is gone with the run."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_PREFIX = "watersmeet-run-"
#: Folders that nobody has written to for so long are taken away.
_ABANDONED_SECONDS = 24 * 3600.0


def new_folder() -> str:
    """A folder for one run, which only this user can read, and which goes with this process."""
    remove_abandoned(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def remove_abandoned(below: Path) -> None:
    """Take away the folders of runs whose process was killed."""
    oldest = time.time() - _ABANDONED_SECONDS
    for folder in below.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
