"""Tables on the worker's disk: segments that hybrid mode keeps out of memory, and what memory has no room for."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

import duckdb

_NAME = "disk"
#: DuckDB holds so many rows of a table while it fills it; by default, 122,880.
_ROW_GROUP = 8_192


class DiskTables:
    """A database on disk, attached to a connection at the first request for a table.

    It is a cache, like all of the working set.  Its file is unlinked as soon as it is open, so it vanishes with the
    process however that ends, and no write waits for the disk.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._is_open = False

    def table(self, name: str) -> str:
        """Return the full name of a table in this database; a statement that reads it may leave out the database."""
        if not self._is_open:
            folder = Path(tempfile.mkdtemp(prefix="watersmeet-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = folder / "disk.db"
            options = f"RECOVERY_MODE NO_WAL_WRITES, ROW_GROUP_SIZE {_ROW_GROUP}"
            self._connection.execute(f"ATTACH '{path}' AS {_NAME} ({options})")
            path.unlink()  # the folder stays: a checkpoint creates a file there
            ((own,),) = self._connection.execute("SELECT current_database()").fetchall()
            self._connection.execute(f"SET search_path = '{own},{_NAME}'")
            self._is_open = True
        return f"{_NAME}.{name}"


def is_on_disk(table: str) -> bool:
    """Return whether the table with this full name is on disk."""
    return table.startswith(f"{_NAME}.")
