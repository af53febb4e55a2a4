"""An index of one large segment, by key columns and event time.

Rows are sorted once by (key, ``$t``) and cut into small chunks.  For each key in a chunk, the oldest time is a *fence*:
the last fence of a key at or before a time names the one chunk to read.

    chunk 0: (a, 10) (a, 20)    chunk 1: (a, 30) (b, 5)      fences: a 10 → 0, a 30 → 1, b 5 → 1
    as of (a, 25): the last fence of a at or before 25 is 10, so chunk 0 holds the row: (a, 20)

An index is built at the first request and never stored, like all of the working set.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from watersmeet.columns import TIME
from watersmeet.kernels.api import quote

#: Distinct (key, time) pairs in a chunk.  Larger chunks read more rows in vain; smaller ones have more fences.
CHUNK = 32


class SegmentIndex:
    """The index of one DuckDB table by some columns and ``$t``; a chunk never splits rows of equal key and time."""

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

    def as_of(self, probes: str) -> str:
        """Return SQL for the chunks that may hold, for each probe, the newest rows of its key at or before its ``$t``.

        ``probes`` is a relation with the key columns and ``$t``.
        """
        same = [f"p.{quote(name)} = f.{quote(name)}" for name in self._by]
        on = " AND ".join([*same, f"p.{quote(TIME)} >= f.{quote(TIME)}"])
        # ASOF JOIN sorts every fence that it reads: leave out those of other keys
        fences = f"SELECT * FROM {self._fences} AS f"
        if same:
            fences += f" WHERE EXISTS (SELECT 1 FROM {probes} AS p WHERE {' AND '.join(same)})"
        return self._in_chunks(f"SELECT f.chunk FROM {probes} AS p ASOF JOIN ({fences}) AS f ON {on}")

    def with_keys(self, probes: str) -> str:
        """Return SQL for the chunks that hold rows with the key of a probe; NULL equals NULL.

        As that of ``as_of``, the statement ends in a WHERE clause, to which conditions may be added.
        """
        same = " AND ".join(f"p.{quote(name)} IS NOT DISTINCT FROM f.{quote(name)}" for name in self._by)
        return self._in_chunks(
            f"SELECT f.chunk FROM {self._fences} AS f WHERE EXISTS (SELECT 1 FROM {probes} AS p WHERE {same})"
        )

    def _in_chunks(self, chunks: str) -> str:
        rows = f"SELECT row FROM {self._rows} WHERE chunk IN ({chunks})"
        return f"SELECT * FROM {self._table} WHERE rowid IN ({rows})"

    def drop(self) -> None:
        """Drop the index's tables."""
        for name in (self._rows, self._fences):
            self._connection.execute(f"DROP TABLE {name}")
