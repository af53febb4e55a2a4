"""Segments of a relation in which the rows of a few keys are sought: Arrow tables, and an index of them by key.

A join of few new rows with many stored ones need not read them all.  DuckDB has no way to fetch rows by their places
that does not look at every row's, which takes as long as a join; of an Arrow table a row is taken where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.state.key_hashes import Numbers, key_hashes
from watersmeet.state.key_index import MOST_PLACES, KeyIndex
from watersmeet.state.segments import Segment
from watersmeet.state.small_segments import alike


class KeyedSegments:
    """A relation's segments; ``name`` begins the names of all that it registers with DuckDB."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._rows: dict[str, pa.Table] = {}
        self._first: dict[str, int] = {}  # the place of each segment's first row, in ascending order
        self._end = 0
        self._indexes: dict[tuple[str, ...], KeyIndex] = {}
        self._views: set[str] = set()

    def __contains__(self, segment_id: str) -> bool:
        return segment_id in self._rows

    def add(self, segment: Segment, rows: pa.Table) -> None:
        """Hold a segment's rows; they are copied where they lie in the memory of a larger batch."""
        if self._end + segment.rows > MOST_PLACES:
            self._begin_anew()
        self._rows[segment.id] = _alone(rows.combine_chunks())
        self._first[segment.id] = self._end
        self._end += segment.rows

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        del self._rows[segment_id]
        first = self._first.pop(segment_id)
        self._unregister(self._view_of(first))
        for index in self._indexes.values():
            index.leave_out(first)

    def rows(self, segment_id: str) -> pa.Table:
        """The rows of a segment."""
        return self._rows[segment_id]

    def count(self, segment_id: str, low: int) -> int:
        """Rows of a segment with ``$t >= low``."""
        return pc.sum(pc.greater_equal(self._rows[segment_id][TIME], low)).as_py() or 0

    def view(self, segment_id: str) -> str:
        """The name under which DuckDB finds a segment's rows."""
        name = self._view_of(self._first[segment_id])
        if name not in self._views:
            self._connection.register(name, self._rows[segment_id])
            self._views.add(name)
        return name

    def find(self, by: Sequence[str], probes: pa.Table, segments: Iterable[str], most: int) -> list[pa.Table] | None:
        """All rows of some segments with columns ``by`` equal to those of a row of ``probes``, and perhaps others.

        None where there are more than ``most``.
        """
        index = self._indexes.setdefault(tuple(by), KeyIndex())
        blocks = {self._first[id]: id for id in segments}
        for first in blocks.keys() - index.blocks:
            index.add(first, key_hashes(self._connection, self._rows[blocks[first]].select(list(by))))
        places = index.find(key_hashes(self._connection, probes), blocks.keys(), most)
        return None if places is None else alike(self._taken(places))

    def _taken(self, places: Numbers) -> list[pa.Table]:
        """The rows at some places, in ascending order, of each segment that has any."""
        firsts = np.fromiter(self._first.values(), np.uint64, len(self._first))
        cuts = [*np.searchsorted(places, firsts).tolist(), len(places)]
        return [
            self._rows[id].take(pa.array(places[start:end] - first))
            for id, first, (start, end) in zip(self._first, firsts, pairwise(cuts), strict=True)
            if start < end
        ]

    def _begin_anew(self) -> None:
        """Give all rows places from 0 on."""
        for name in list(self._views):
            self._unregister(name)
        self._indexes.clear()
        self._end = 0
        for id, rows in self._rows.items():
            self._first[id] = self._end
            self._end += rows.num_rows

    def _view_of(self, first: int) -> str:
        return f"{self._name}_at_{first}"

    def _unregister(self, view: str) -> None:
        if view in self._views:
            self._connection.unregister(view)
            self._views.remove(view)


def _alone(rows: pa.Table) -> pa.Table:
    """The rows, not kept in memory by the rest of a batch of which they are a part."""
    is_part = rows.get_total_buffer_size() > 2 * rows.nbytes
    return rows.take(pa.array(np.arange(rows.num_rows))) if is_part else rows
