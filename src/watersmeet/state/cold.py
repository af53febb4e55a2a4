"""Where segments lie that are not in use: a database on the worker's disk, beside the tables in memory."""

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
    """A database of tables on disk, attached to a connection when it is first asked for.

    It is a cache like all of the working set: its file has no name as soon as it is open, so that it goes with the
    process however that ends, and no write to it waits for the disk.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._is_open = False

    def table(self, name: str) -> str:
        """The full name of a table in it."""
        if not self._is_open:
            folder = Path(tempfile.mkdtemp(prefix="watersmeet-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = folder / "cold.db"
            self._connection.execute(f"ATTACH '{path}' AS {_NAME} (RECOVERY_MODE NO_WAL_WRITES)")
            path.unlink()  # its folder stays: a checkpoint makes a file there
            self._is_open = True
        return f"{_NAME}.{name}"


def is_cold(table: str) -> bool:
    """Whether a table of that full name lies on disk."""
    return table.startswith(f"{_NAME}.")


def hot(live: Sequence[Segment], most_rows: int | None) -> set[str]:
    """The ids of the newest segments that have so many rows together (None: of all).

    ``live`` are segments in the order in which they were written.  Rows that change are written anew, so the newest
    segments have the rows in use.
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
