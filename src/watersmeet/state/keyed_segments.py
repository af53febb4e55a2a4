"""Keyed segments: a relation's segments as Arrow tables, with a hash index by key.

A join of few new rows with many stored ones looks up the rows of their keys instead of reading all.  They are kept in
Arrow because DuckDB fetches rows by position only with a full scan, which takes as long as a join.  What exceeds the
budget of the process lies in files that are mapped into memory; pages that a lookup or a scan has read are given back.
Rows that a lookup has read from files may be kept (found_rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.state.found_rows import FoundRows
from watersmeet.state.key_hashes import Numbers, key_hashes
from watersmeet.state.key_index import MAX_PLACES, KeyIndex
from watersmeet.state.mapped_file import MappedFile, mapped_table
from watersmeet.state.segments import Segment
from watersmeet.state.small_segments import alike

#: A piece of a scan has at most so many rows, and about so many bytes.
_SCANNED_ROWS, _SCANNED_BYTES = 65_536, 4 << 20


class KeyedSegments:
    """A relation's segments; ``name`` is the prefix of the names that it registers with DuckDB."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, budget: ArrowBudget, found: FoundRows) -> None:
        self._connection = connection
        self._name = name
        self._budget = budget
        self._found = found  # shared with other relations; rows of this one have ``name`` as their owner
        self._rows: dict[str, pa.Table] = {}
        self._taken: dict[str, int] = {}  # of the budget; other segments are in files
        self._files: dict[str, MappedFile] = {}
        self._first: dict[str, int] = {}  # the place of each segment's first row, in ascending order
        self._end = 0
        self._indexes: dict[tuple[str, ...], KeyIndex] = {}
        self._views: set[str] = set()

    def __contains__(self, segment_id: str) -> bool:
        return segment_id in self._rows

    def add(self, segment: Segment, rows: pa.Table, *, in_memory: bool = True) -> None:
        """Add a segment's rows, to a file if not ``in_memory``; rows that are a slice of a larger batch are copied."""
        if self._end + segment.rows > MAX_PLACES:
            self._renumber()
        if in_memory and self._budget.take(segment.nbytes):
            self._taken[segment.id] = segment.nbytes
            self._rows[segment.id] = _detached(rows.combine_chunks())
        else:
            self._files[segment.id], self._rows[segment.id] = mapped_table(rows)
        self._first[segment.id] = self._end
        self._end += segment.rows

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        rows = self._rows.pop(segment_id).num_rows
        self._budget.give_back(self._taken.pop(segment_id, 0))
        self._release(segment_id)  # what still holds its rows keeps it mapped
        self._files.pop(segment_id, None)
        first = self._first.pop(segment_id)
        self._found.remove(self._name, first, first + rows)
        self._unregister(self._view_of(first))
        for index in self._indexes.values():
            index.remove(first)

    def close(self) -> None:
        """Drop the indexes; all segments have been removed."""
        self._forget_indexes()

    def move_to_file(self, segment_id: str) -> None:
        """Move a segment's rows to a file, if they are in memory."""
        if segment_id in self._taken:
            self._unregister(self._view_of(self._first[segment_id]))
            self._files[segment_id], self._rows[segment_id] = mapped_table(self._rows[segment_id])
            self._budget.give_back(self._taken.pop(segment_id))

    def is_in_file(self, segment_id: str) -> bool:
        """Return whether a segment's rows are in a file; False also for segments of others."""
        return segment_id in self._files

    def rows(self, segment_id: str) -> pa.Table:
        """Return the rows of a segment."""
        return self._whole(segment_id)

    def count(self, segment_id: str, low: int) -> int:
        """Return how many rows of a segment have ``$t >= low``."""
        found = pc.sum(pc.greater_equal(self._whole(segment_id)[TIME], low)).as_py() or 0
        self._release(segment_id)
        return found

    def view(self, segment_id: str) -> str:
        """Return the name by which DuckDB finds a segment's rows."""
        name = self._view_of(self._first[segment_id])
        if name not in self._views:
            rows, file = self._rows[segment_id], self._files.get(segment_id)
            self._connection.register(name, rows if file is None else _Scan(rows, file))
            self._views.add(name)
        return name

    def find(self, by: Sequence[str], probes: pa.Table, segments: Iterable[str], most: int) -> list[pa.Table] | None:
        """Return rows of some segments: every row whose ``by`` columns equal a probe's, and possibly others.

        Returns None if there are more than ``most``.  The tables differ in their types (see ``alike``).
        """
        index = self._indexes.setdefault(tuple(by), KeyIndex(self._budget))
        blocks = {self._first[id]: id for id in segments}
        for first in sorted(blocks.keys() - index.blocks):
            index.add(first, key_hashes(self._connection, self._whole(blocks[first]).select(list(by))))
            self._release(blocks[first])
        places = index.find(key_hashes(self._connection, probes), blocks.keys(), most)
        return None if places is None else alike(self._take(places))

    def _take(self, places: Numbers) -> list[pa.Table]:
        """Return the rows at these ascending places; those in files are read if they are not held already."""
        by_segment = list(self._by_segment(places))
        in_memory = [self._rows[id].take(rows) for id, _, rows in by_segment if id not in self._files]
        in_files = [part for id, part, _ in by_segment if id in self._files]
        if not in_files:
            return in_memory
        held, others = self._found.find(self._name, np.concatenate(in_files))
        read = [(part, self._read(id, rows)) for id, part, rows in self._by_segment(others)]
        self._found.add(self._name, read)
        return [*in_memory, *held, *(rows for _, rows in read)]

    def _by_segment(self, places: Numbers) -> Iterator[tuple[str, Numbers, pa.Array]]:
        """Yield the segments that have some of these ascending places, with these places and where they are in it."""
        firsts = np.fromiter(self._first.values(), np.uint64, len(self._first))
        cuts = [*np.searchsorted(places, firsts).tolist(), len(places)]
        for id, first, (start, end) in zip(self._first, firsts, pairwise(cuts), strict=True):
            if start < end:
                yield id, places[start:end], pa.array(places[start:end] - first)

    def _read(self, segment_id: str, rows: pa.Array) -> pa.Table:
        stored = self._rows[segment_id]
        self._files[segment_id].expect(len(rows) * stored.num_columns)
        found = stored.take(rows)
        self._release(segment_id)
        return found

    def _whole(self, segment_id: str) -> pa.Table:
        """Return the rows of a segment, to read all of them."""
        if (file := self._files.get(segment_id)) is not None:
            file.expect()
        return self._rows[segment_id]

    def _release(self, segment_id: str) -> None:
        if (file := self._files.get(segment_id)) is not None:
            file.release()

    def _renumber(self) -> None:
        """Number all rows from place 0 on."""
        for name in list(self._views):
            self._unregister(name)
        self._forget_indexes()
        self._found.clear(self._name)
        self._end = 0
        for id, rows in self._rows.items():
            self._first[id] = self._end
            self._end += rows.num_rows

    def _forget_indexes(self) -> None:
        for index in self._indexes.values():
            index.close()
        self._indexes.clear()

    def _view_of(self, first: int) -> str:
        return f"{self._name}_at_{first}"

    def _unregister(self, view: str) -> None:
        if view in self._views:
            self._connection.unregister(view)
            self._views.remove(view)


class _Scan:
    """Rows in a file as DuckDB reads them: piece by piece, each given back before the next."""

    def __init__(self, rows: pa.Table, file: MappedFile) -> None:
        self._rows, self._file = rows, file

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._rows.schema, self._pieces())
        return reader.__arrow_c_stream__(requested_schema)

    def _pieces(self) -> Iterator[pa.RecordBatch]:
        self._file.expect()
        fitting = _SCANNED_BYTES * self._rows.num_rows // max(self._rows.nbytes, 1)
        for piece in self._rows.to_batches(max_chunksize=max(min(_SCANNED_ROWS, fitting), 1)):
            try:
                yield piece
            finally:  # also if no more is asked for
                self._file.release()


def _detached(rows: pa.Table) -> pa.Table:
    """Copy rows that are a slice of a larger batch, so that they do not keep the batch in memory."""
    is_part = rows.get_total_buffer_size() > 2 * rows.nbytes
    return rows.take(pa.array(np.arange(rows.num_rows))) if is_part else rows
