"""Files that only their owner can read: statements and logs may hold data."""

from __future__ import annotations

import os
from pathlib import Path

_OWNER_ALONE = 0o600


def open_private(path: str, flags: int) -> int:
    """Open a file for ``open(..., opener=open_private)``: a new file is readable and writable by its owner alone."""
    return os.open(path, flags, _OWNER_ALONE)


def create_private(path: Path) -> None:
    """Create an empty file for its owner alone, unless the file exists."""
    os.close(open_private(str(path), os.O_CREAT | os.O_APPEND | os.O_WRONLY))
