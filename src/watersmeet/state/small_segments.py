"""Small segments: one table for all segments of a relation that have few rows.

A statement costs some tenths of a millisecond for each table that it reads, and to create or drop a table costs a
millisecond.  A stream of small batches writes a segment with every batch, and compaction soon merges it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.state.segments import Segment

#: A segment with fewer rows than one DuckDB vector is small …
SMALL_ROWS = 2_048
#: … unless it has this many bytes: small segments always stay in memory.
SMALL_BYTES = 256 * 1024


def is_small(segment: Segment) -> bool:
    """Return whether a segment shares a table with others."""
    return segment.rows < SMALL_ROWS and segment.nbytes < SMALL_BYTES


class SmallSegments:
    """A relation's small segments; ``table`` is the name of the DuckDB table that they share."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        self._connection = connection
        self._table = table
        self._rows: dict[str, pa.Table] = {}
        self._is_filled = False

    def add(self, segment: Segment, rows: pa.Table) -> None:
        """Add a copy of a segment's rows: they may be a slice of a large batch."""
        self._rows[segment.id] = rows.take(pa.array(range(rows.num_rows), pa.int32()))
        self._is_filled = False

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        del self._rows[segment_id]
        self._is_filled = False
        if not self._rows:
            self._connection.execute(f"DROP TABLE IF EXISTS {self._table}")

    def rows(self, segment_id: str) -> pa.Table:
        """Return the rows of a segment."""
        return self._rows[segment_id]

    def count(self, segment_id: str, low: int) -> int:
        """Return how many rows of a segment have ``$t >= low``."""
        return pc.sum(pc.greater_equal(self._rows[segment_id][TIME], low)).as_py() or 0

    def table(self) -> str:
        """Return the name of the table with the rows of all segments, filled if they have changed."""
        if not self._is_filled:
            first, *others = alike(self._rows.values())
            self._fill(f"CREATE OR REPLACE TABLE {self._table} AS", first)
            for each in others:
                self._fill(f"INSERT INTO {self._table}", each)
            self._is_filled = True
        return self._table

    def _fill(self, how: str, rows: pa.Table) -> None:
        self._connection.execute(f"{how} SELECT * FROM rows")  # DuckDB finds the variable by its name


def alike(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """Concatenate tables of equal schema; the rows of a relation come in one or two schemas.

    DuckDB returns some Arrow types as other types, which Arrow cannot always cast back.
    """
    by_schema: dict[pa.Schema, list[pa.Table]] = defaultdict(list)
    for table in tables:
        by_schema[table.schema].append(table)
    return [pa.concat_tables(each) for each in by_schema.values()]
