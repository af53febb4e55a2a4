"""Segments of so few rows that a table of each would cost more than it holds: one table for all of a relation's.

Each statement over tables costs what their number costs, some tenths of a millisecond for each, and each table that is
made or dropped a millisecond.  A stream of small batches leaves a segment with every batch, soon to be merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.state.segments import Segment

#: Segments of fewer rows than DuckDB works on at a time are small …
SMALL_ROWS = 2_048
#: … unless their rows are large: they stay in memory.
SMALL_BYTES = 256 * 1024


def is_small(segment: Segment) -> bool:
    """Whether a segment's rows are to lie beside others in one table."""
    return segment.rows < SMALL_ROWS and segment.nbytes < SMALL_BYTES


class SmallSegments:
    """A relation's small segments; ``table`` is the DuckDB table that has their rows while they are asked for."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        self._connection = connection
        self._table = table
        self._rows: dict[str, pa.Table] = {}
        self._is_filled = False

    def add(self, segment: Segment, rows: pa.Table) -> None:
        """Hold a copy of a segment's rows, which may lie in the memory of a large batch."""
        self._rows[segment.id] = rows.take(pa.array(range(rows.num_rows), pa.int32()))
        self._is_filled = False

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        del self._rows[segment_id]
        self._is_filled = False
        if not self._rows:
            self._connection.execute(f"DROP TABLE IF EXISTS {self._table}")

    def rows(self, segment_id: str) -> pa.Table:
        """The rows of a segment."""
        return self._rows[segment_id]

    def count(self, segment_id: str, low: int) -> int:
        """Rows of a segment with ``$t >= low``."""
        return pc.sum(pc.greater_equal(self._rows[segment_id][TIME], low)).as_py() or 0

    def table(self) -> str:
        """The table with the rows of all of them."""
        if not self._is_filled:
            first, *others = alike(self._rows.values())
            self._fill(f"CREATE OR REPLACE TABLE {self._table} AS", first)
            for each in others:
                self._fill(f"INSERT INTO {self._table}", each)
            self._is_filled = True
        return self._table

    def _fill(self, how: str, rows: pa.Table) -> None:
        self._connection.execute(f"{how} SELECT * FROM rows")  # DuckDB finds them by this name


def alike(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """The rows of tables that have the same columns: one table, or another of those that came out of DuckDB.

    It has types of its own for some of Arrow's, which Arrow does not always cast back.
    """
    by_schema: dict[pa.Schema, list[pa.Table]] = defaultdict(list)
    for table in tables:
        by_schema[table.schema].append(table)
    return [pa.concat_tables(each) for each in by_schema.values()]
