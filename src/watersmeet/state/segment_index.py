"""An index of a segment in the working set: its rows by some columns (a key), and of each key by time.

It finds, for a few keys and times, the rows among which is the newest of the key at or before the time, without sorting
the segment again: rows are sorted once and cut into small chunks; of each key in a chunk the oldest time is a *fence*.
The last fence at or before a time names the one chunk to look into.  Like all of the working set it is made from what
is stored, when it is first asked for, and is never stored itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from watersmeet.columns import TIME
from watersmeet.kernels.api import quote

#: Moments of a key in one chunk: of more, more rows are read for nothing; of fewer, there are more fences to search.
CHUNK = 32


class SegmentIndex:
    """The index of one DuckDB table by some columns and ``$t``; rows of one key and time are never parted."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: str, by: Sequence[str], number: int = 0) -> None:
        self._connection = connection
        self._table = table
        self._rows, self._fences = f"{table}_rows_{number}", f"{table}_fences_{number}"
        self._by = tuple(by)
        keys = ", ".join(quote(name) for name in self._by)
        time = quote(TIME)
        moments = f"dense_rank() OVER (ORDER BY {', '.join(filter(None, (keys, time)))})"
        connection.execute(
            f"CREATE OR REPLACE TABLE {self._rows} AS SELECT {moments} // {CHUNK} AS chunk, rowid AS row "
            f"FROM {table} ORDER BY chunk"
        )
        columns = ", ".join(filter(None, (keys, "chunk")))
        connection.execute(
            f"CREATE OR REPLACE TABLE {self._fences} AS SELECT {columns}, min({time}) AS {time} "
            f"FROM {self._rows} AS i JOIN {table} AS s ON s.rowid = i.row GROUP BY {columns}"
        )

    def near(self, probes: str) -> str:
        """SQL of the segment's rows to look into for the relation ``probes``, which has the key columns and ``$t``."""
        same = [f"p.{quote(name)} = f.{quote(name)}" for name in self._by]
        on = " AND ".join([*same, f"p.{quote(TIME)} >= f.{quote(TIME)}"])
        # an ASOF JOIN sorts all fences that it is given
        asked = f"SELECT * FROM {self._fences} AS f"
        if same:
            asked += f" WHERE EXISTS (SELECT 1 FROM {probes} AS p WHERE {' AND '.join(same)})"
        return self._in_chunks(f"SELECT f.chunk FROM {probes} AS p ASOF JOIN ({asked}) AS f ON {on}")

    def of_keys(self, probes: str) -> str:
        """SQL of rows among which are all with the key of one of ``probes``."""
        same = " AND ".join(f"p.{quote(name)} = f.{quote(name)}" for name in self._by)
        return self._in_chunks(
            f"SELECT f.chunk FROM {self._fences} AS f WHERE EXISTS (SELECT 1 FROM {probes} AS p WHERE {same})"
        )

    def _in_chunks(self, chunks: str) -> str:
        rows = f"SELECT row FROM {self._rows} WHERE chunk IN ({chunks})"
        return f"SELECT * FROM {self._table} WHERE rowid IN ({rows})"

    def drop(self) -> None:
        """Take it away."""
        for name in (self._rows, self._fences):
            self._connection.execute(f"DROP TABLE {name}")
