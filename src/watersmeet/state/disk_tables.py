"""Tables on the worker's disk, for segments that hybrid mode keeps out of memory."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import duckdb

_NAME = "disk"


class DiskTables:
    """A database on disk, attached to a connection at the first request for a table.

    It is a cache, like all of the working set.  Its file is unlinked as soon as it is open, so it vanishes with the
    process however that ends, and no write waits for the disk.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._is_open = False

    def table(self, name: str) -> str:
        """Return the full name of a table in this database."""
        if not self._is_open:
            folder = Path(tempfile.mkdtemp(prefix="watersmeet-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = folder / "disk.db"
            self._connection.execute(f"ATTACH '{path}' AS {_NAME} (RECOVERY_MODE NO_WAL_WRITES)")
            path.unlink()  # the folder stays: a checkpoint creates a file there
            self._is_open = True
        return f"{_NAME}.{name}"


def is_on_disk(table: str) -> bool:
    """Return whether the table with this full name is on disk."""
    return table.startswith(f"{_NAME}.")
