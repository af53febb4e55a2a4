"""The cold database: segments that are not in use, in a database on the worker's disk."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb

from watersmeet.state.segments import Segment

_NAME = "cold"


class ColdDatabase:
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
            path = folder / "cold.db"
            self._connection.execute(f"ATTACH '{path}' AS {_NAME} (RECOVERY_MODE NO_WAL_WRITES)")
            path.unlink()  # the folder stays: a checkpoint creates a file there
            self._is_open = True
        return f"{_NAME}.{name}"


def is_cold(table: str) -> bool:
    """Return whether the table with this full name lies on disk."""
    return table.startswith(f"{_NAME}.")


def newest_segments(live: Sequence[Segment], most_rows: int | None) -> set[str]:
    """Return the ids of the newest segments with at most ``most_rows`` rows together (None: of all segments).

    ``live`` is in the order of writing.  Rows that change are written again, so the newest segments hold the rows in
    use.
    """
    if most_rows is None:
        return {segment.id for segment in live}
    found: set[str] = set()
    for segment in reversed(live):
        most_rows -= segment.rows
        if most_rows < 0:
            break
        found.add(segment.id)
    return found
