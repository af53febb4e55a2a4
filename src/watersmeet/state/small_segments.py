"""Small segments: all segments of a relation that have few rows, joined into one Arrow table.

A statement costs some tenths of a millisecond for each table that it reads, and to create or drop a table in DuckDB
costs a millisecond.  A stream of small batches writes a segment with every batch, and compaction soon merges it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

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
    """A relation's small segments."""

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}
        self._rows: dict[str, pa.Table] = {}
        self._joined: list[pa.Table] = []  # all rows; none until they are asked for after a change

    def add(self, segment: Segment, rows: pa.Table) -> None:
        """Add a copy of a segment's rows: they may be a slice of a large batch."""
        self._segments[segment.id] = segment
        self._rows[segment.id] = rows.take(pa.array(range(rows.num_rows), pa.int32()))
        self._joined = []

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        del self._segments[segment_id], self._rows[segment_id]
        self._joined = []

    def rows(self, segment_id: str) -> pa.Table:
        """Return the rows of a segment."""
        return self._rows[segment_id]

    def count(self, segment_id: str, low: int) -> int:
        """Return how many rows of a segment have ``$t >= low``."""
        return pc.sum(pc.greater_equal(self._rows[segment_id][TIME], low)).as_py() or 0

    def between(self, low: int, high: int) -> Iterator[pa.Table]:
        """Yield the rows with ``low <= $t <= high``: one or two tables, or none if there are no rows."""
        if not self._joined:
            self._joined = [rows.combine_chunks() for rows in alike(self._rows.values())]
        if all(each.is_inside(low, high) for each in self._segments.values()):
            yield from self._joined
            return
        for rows in self._joined:
            times = rows[TIME]
            found = rows.filter(pc.and_(pc.greater_equal(times, low), pc.less_equal(times, high)))
            if found.num_rows:
                yield found


def alike(tables: Iterable[pa.Table]) -> list[pa.Table]:
    """Concatenate tables of equal schema; the rows of a relation come in one or two schemas.

    DuckDB returns some Arrow types as other types, which Arrow cannot always cast back.
    """
    by_schema: dict[pa.Schema, list[pa.Table]] = defaultdict(list)
    for table in tables:
        by_schema[table.schema].append(table)
    return [pa.concat_tables(each) for each in by_schema.values()]
