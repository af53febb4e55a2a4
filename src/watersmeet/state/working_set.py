"""The working set: a bucket's live segments as tables in the worker's DuckDB.

It is a cache.  Spark hands a bucket to whichever worker process is free, so each step first syncs the set with the
manifest: it drops obsolete segments and loads missing ones from the store.  First use, retry, restart and a move to
another worker share one path, and no result depends on what the set held before.

Small segments share one Arrow table per relation.  A large one has a DuckDB table of its own, in memory or on disk: in
hybrid mode, and where memory has no room for it (table_room.py).  If rows of its relation are looked up by key, it is
kept in Arrow with a hash index instead, in memory or in a mapped file.  In hybrid mode, rows that lookups find in files
are kept in memory too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER, BatchPart, quote
from watersmeet.kernels.optimizers import Optimizers
from watersmeet.kernels.step_tables import StepTables
from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.state.disk_tables import DiskTables, is_on_disk
from watersmeet.state.found_rows import FoundRows
from watersmeet.state.hot_bounds import HotBounds, newest_segments
from watersmeet.state.key_hashes import key_hashes
from watersmeet.state.keyed_segments import KeyedSegments
from watersmeet.state.large_values import LargeValues
from watersmeet.state.registered_tables import RegisteredTables
from watersmeet.state.segment_index import SegmentIndex
from watersmeet.state.segments import Segment
from watersmeet.state.small_segments import SmallSegments, alike, is_small
from watersmeet.state.statements import Statements, fetched
from watersmeet.state.table_memory import TableMemory
from watersmeet.state.table_room import TableRoom

#: A segment gets an index by key and time from this many rows on.
MIN_INDEXED = 20_000
#: Fewer stored rows are scanned, which takes a join some milliseconds.
MIN_PROBED_ROWS = 200_000
#: One index probe costs about as much as scanning 32 rows.
ROWS_PER_PROBE = 32
#: A lookup that returns more than 1 row in 32 is no faster than a scan.
ROWS_PER_FOUND = 32
#: DuckDB's errors by the beginning of their texts.
_ERRORS = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "Out of Range Error": duckdb.OutOfRangeException,
    "Conversion Error": duckdb.ConversionException,
}
#: A piece of a streamed result has about so many rows, or bytes if rows are large; DuckDB makes fewer rows at a time.
_PIECE_ROWS, _PIECE_BYTES = 131_072, 8 << 20
#: With little memory: a piece is held while the next is made.
_FEW_PIECE_BYTES = 2 << 20
_READ_ROWS = 2_048
#: A lookup may return this many bytes, however small the budget is.
_LEAST_FOUND_BYTES = 8 << 20
#: A text column of an Arrow batch may have 2 GiB.
_BATCH_BYTES = 1 << 30
#: A part of a relation that is read on its own has about so many bytes.
_PART_BYTES = 32 << 20
#: Stored rows sampled to estimate how many a lookup returns, before a relation gets a hash index.
SAMPLE_ROWS = 10_000


class WorkingSet:
    """The segments of one bucket; a ``StateView`` for its kernel."""

    _table_numbers = itertools.count()

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        on_disk: DiskTables | None = None,
        budget: ArrowBudget | None = None,
        optimizers: Optimizers | None = None,
        table_memory: TableMemory | None = None,
        table_room: TableRoom | None = None,
    ) -> None:
        self.statistics: Mapping[str, Any] = {}  # those of the manifest: see StateView
        self.max_bytes: int | None = None  # see StateView, also for the batch
        self.batch = BatchPart(0)
        self.carried: Sequence[str] = ()  # columns whose values need not be where the kernel is: see OperatorSpec
        self.values = LargeValues()
        self._optimizers = optimizers or Optimizers(connection)
        self._connection = connection
        self._on_disk = on_disk or DiskTables(connection)
        self.tables = StepTables(connection, self._optimizers, self._on_disk.table)
        self._budget = budget or ArrowBudget(0)
        self._table_memory = table_memory
        self._table_room = table_room
        self._found = FoundRows(self._budget)
        self._registered = RegisteredTables(connection)
        self._statements = Statements(connection)
        self._segments: dict[str, Segment] = {}
        self._tables: dict[str, str] = {}  # of segments that are neither small nor keyed
        self._keyed: dict[str, KeyedSegments] = {}  # by relation
        self._small: dict[str, SmallSegments] = {}  # by relation
        self._indexes: dict[str, dict[tuple[str, ...], SegmentIndex]] = {}
        self._scan_budgets: dict[str, int] = {}  # rows by relation: see spend_scan_budget
        self._streamed: pa.RecordBatchReader | None = None  # the last result that was streamed

    @property
    def has_little_memory(self) -> bool:
        """Whether queries should take little memory; see ``StateView``."""
        return self._optimizers.has_little_memory

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection that all sets of the process share."""
        return self._connection

    @property
    def nbytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.nbytes for segment in self._segments.values())

    @property
    def disk_bytes(self) -> int:
        """Bytes of the segments that lie in files of this process."""
        return sum(segment.nbytes for segment in self._segments.values() if self._is_on_disk(segment))

    def _is_on_disk(self, segment: Segment) -> bool:
        if segment.id in self._tables:
            return is_on_disk(self._tables[segment.id])
        keyed = self._keyed.get(segment.relation)
        return keyed is not None and keyed.is_in_file(segment.id)

    # -- segments --------------------------------------------------------------------------------------------------

    def sync(
        self, live: Sequence[Segment], load: Callable[[Segment], pa.Table], *, hot: HotBounds | None = None
    ) -> int:
        """Hold exactly the ``live`` segments; return the bytes that were loaded.

        For the ``hot`` bounds see ``move_to_disk``.  Found rows may take half of them.
        """
        if hot is not None:
            self._found.limit(hot.part(2))
        wanted = {segment.id: segment for segment in live}
        for obsolete in self._segments.keys() - wanted.keys():
            self.remove(obsolete)
        missing = [segment for id, segment in wanted.items() if id not in self._segments]
        in_memory = self._newest(live, hot)
        for segment in missing:
            self.add(segment, load(segment), in_memory=segment.id in in_memory)
        return sum(segment.nbytes for segment in missing)

    def move_to_disk(self, live: Sequence[Segment], hot: HotBounds | None) -> None:
        """Keep the newest segments and the found rows within the ``hot`` bounds (None: all), the others on disk.

        Small segments stay in memory.
        """
        in_memory = self._newest(live, hot)
        for segment in live:
            if segment.id in in_memory:
                continue
            if segment.relation in self._keyed and segment.id in self._keyed[segment.relation]:
                self._keyed[segment.relation].move_to_file(segment.id)
            name = self._tables.get(segment.id)
            if name is None or is_on_disk(name):
                continue
            on_disk = self._on_disk.table(name)
            self._connection.execute(f"CREATE TABLE {on_disk} AS SELECT * FROM {name}")
            self._drop(segment.id)
            self._segments[segment.id], self._tables[segment.id] = segment, on_disk

    def add(self, segment: Segment, rows: pa.Table, *, in_memory: bool = True) -> None:
        """Add a segment's rows, in memory or on disk; large values that the kernel does not read are in a file."""
        self._hold(segment, self.values.keep(segment.id, rows, self.carried, in_file=True), in_memory=in_memory)
        self._segments[segment.id] = segment

    def _hold(self, segment: Segment, rows: pa.Table, *, in_memory: bool) -> None:
        if is_small(segment):
            self._small_of(segment.relation).add(segment, rows)
            return
        if segment.relation in self._keyed:
            self._keyed[segment.relation].add(segment, rows, in_memory=in_memory)
            return
        name = self._new_name()
        has_room = in_memory and (self._table_room is None or self._table_room.take(name, rows))
        if not has_room or not self._make_in_memory(name, rows):
            name = self._on_disk.table(name)
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
        self._tables[segment.id] = name

    def _make_in_memory(self, name: str, rows: pa.Table) -> bool:
        """Make a table in memory; False, and no table, if there is no room, as other queries may be under way."""
        try:
            # DuckDB finds the variable ``rows`` by its name, in half the time that registering it takes
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
        except duckdb.OutOfMemoryException:
            if self._table_room is not None:
                self._table_room.give_back(name)
            return False
        return True

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        self._drop(segment_id)
        self.values.forget(segment_id)

    def _drop(self, segment_id: str) -> None:
        segment = self._segments.pop(segment_id)
        for index in self._indexes.pop(segment_id, {}).values():
            index.drop()
        if segment_id in self._tables:
            self._drop_table(segment_id)
            self.give_back()
        else:
            self._holder(segment).remove(segment_id)

    def _drop_table(self, segment_id: str) -> None:
        name = self._tables.pop(segment_id)
        self._connection.execute(f"DROP TABLE {name}")
        if self._table_room is not None:
            self._table_room.give_back(name)

    def read(self, segments: Sequence[Segment]) -> pa.Table:
        """Return the rows of some segments of one relation, with all their values, as one Arrow table."""
        return self.values.whole(self._read(segments))

    def _read(self, segments: Sequence[Segment]) -> pa.Table:
        small = alike(self._holder(each).rows(each.id) for each in segments if each.id not in self._tables)
        names = [self._tables[each.id] for each in segments if each.id in self._tables]
        if not names and len(small) == 1:
            return small[0]
        views = {f"small_{number}": rows for number, rows in enumerate(small)}
        for name, rows in views.items():
            self._connection.register(name, rows)
        try:
            parts = [f"SELECT * FROM {name}" for name in (*names, *views)]
            return fetched(self._connection, " UNION ALL ".join(parts))
        finally:
            for name in views:
                self._connection.unregister(name)

    def give_back(self) -> None:
        """Return what DuckDB has freed to the system, if memory is little.  No query may be under way."""
        if self._table_memory is not None:
            self._table_memory.give_back()

    def close(self) -> None:
        """Drop all segments and unregister all names."""
        self._statements.forget()
        self._registered.close()
        for id in list(self._segments):
            self.remove(id)
        for keyed in self._keyed.values():
            keyed.close()

    # -- for the kernel: see StateView -----------------------------------------------------------------------------

    def register(self, rows: pa.Table) -> str:
        """Return a name by which SQL finds these rows until ``release``."""
        return self._registered.register(rows)

    def release(self) -> None:
        """Release what a step registered, looked up, made or streamed; of results, the rest may not have been taken."""
        if self._streamed is not None:
            self._streamed.close()
            self._streamed = None
        self.tables.drop_all()
        self._registered.release()

    def query(self, sql: str, *, joins_as_written: bool = False) -> pa.Table:
        """Return the rows of a query; see ``StateView``."""
        if not joins_as_written and not self._tables and not self._keyed:  # all that it reads is registered
            return self._statements.query(sql)
        with self._optimizers.joins_as_written(joins_as_written):
            return fetched(self._connection, sql)

    def stream(self, sql: str, *, joins_as_written: bool = False) -> Iterator[pa.Table]:
        """Yield the rows of a query as they are made; see ``StateView``.

        A query that ``execute`` runs would collect its whole result first.
        """
        with _errors_of_duckdb(), self._optimizers.joins_as_written(joins_as_written):
            self._streamed = reader = self._connection.sql(sql).to_arrow_reader(_READ_ROWS)
            yield reader.schema.empty_table()
            yield from _gathered(reader, _FEW_PIECE_BYTES if self.has_little_memory else _PIECE_BYTES)

    def scan(self, relation: str, low: int = NEVER, high: int = FOREVER) -> str | None:
        """Return SQL for all stored rows with ``low <= $t <= high``; segments outside are pruned."""
        return _between(self._tables_of(relation, low, high), low, high)

    def parts(self, relation: str) -> list[str]:
        """Return SQL for all stored rows in parts; see ``StateView``."""
        parts: list[list[str]] = []
        held = 0
        for table, segments in self._tables_of(relation):
            nbytes = sum(each.nbytes for each in segments)
            if not parts or held + nbytes > _PART_BYTES:
                parts.append([])
                held = 0
            parts[-1].append(table)
            held += nbytes
        return [f"({' UNION ALL '.join(f'SELECT * FROM {table}' for table in part)})" for part in parts]

    def few_rows(self, relation: str, low: int = NEVER, high: int = FOREVER) -> list[pa.Table] | None:
        """Return the stored rows with ``low <= $t <= high``; None if some may be in large segments."""
        reach = [each for each in self._of(relation) if _is_within(each, low, high)]
        if not all(is_small(each) for each in reach):
            return None
        return list(self._small_of(relation).between(low, high)) if reach else []

    def rows_with_keys(
        self, relation: str, by: Sequence[str], probes: pa.Table | str, low: int = NEVER, high: int = FOREVER
    ) -> str | None:
        """Return SQL for stored rows with ``low <= $t <= high``, every row with a probe's key among them.

        Arrow probes use the hash index if the stored rows are many and the probes few; rows that it finds are
        registered.  SQL probes use the indexes by key and time of large segments, in memory or on
        disk.  Otherwise the result is a scan.
        """
        if not by:
            return self.scan(relation, low, high)
        if isinstance(probes, str):
            return self._indexed(relation, by, lambda index: index.with_keys(probes), low, high)
        reach = [each for each in self._of(relation) if _is_within(each, low, high)]
        rows = sum(each.rows for each in reach)
        found = None
        is_worth_it = rows >= max(MIN_PROBED_ROWS, ROWS_PER_PROBE * probes.num_rows)
        if is_worth_it and self._ensure_keyed(relation, by, probes):
            keyed = self._keyed[relation]
            found = keyed.find(by, probes, [each.id for each in reach if each.id in keyed], self._most_found(reach))
        if found is None:
            return self.scan(relation, low, high)
        tables = [(self.register(each), reach) for each in found]
        return _between((*tables, *self._tables_of(relation, low, high, keyed=False)), low, high)

    def rows_as_of(self, relation: str, by: Sequence[str], probes: str) -> str | None:
        """Return SQL for stored rows, the newest rows of each probe's key at or before its ``$t`` among them."""
        return self._indexed(relation, by, lambda index: index.as_of(probes))

    def stored_bytes(self, relation: str, low: int) -> int:
        """Return what a relation takes in segments that hold rows with ``$t >= low``."""
        return sum(segment.nbytes for segment in self._of(relation) if segment.high >= low)

    def most_rows(self, relation: str, low: int = NEVER, high: int = FOREVER) -> int:
        """Return how many rows ``scan`` returns at most."""
        return sum(each.rows for each in self._of(relation) if _is_within(each, low, high))

    def count(self, relation: str, low: int) -> int:
        """Return how many stored rows have ``$t >= low``; only segments that also hold older rows are read."""
        rows = 0
        for segment in self._of(relation):
            if segment.high < low:
                continue
            if segment.low >= low:
                rows += segment.rows
            elif segment.id in self._tables:
                count = f"SELECT count(*) FROM {self._tables[segment.id]} WHERE {quote(TIME)} >= {low}"
                rows += int(self._connection.execute(count).fetchall()[0][0])
            else:
                rows += self._holder(segment).count(segment.id, low)
        return rows

    def spend_scan_budget(self, relation: str, rows: int) -> bool:
        """Add ``rows`` to the relation's scan budget; if it now covers all stored rows, spend it and return True."""
        budget = self._scan_budgets.get(relation, 0) + rows
        is_enough = budget >= self.count(relation, NEVER)
        self._scan_budgets[relation] = 0 if is_enough else budget
        return is_enough

    # -- where segments are ----------------------------------------------------------------------------------------

    def _newest(self, live: Sequence[Segment], hot: HotBounds | None) -> set[str]:
        return newest_segments(live, hot, self._found.rows, self._found.nbytes)

    def _of(self, relation: str) -> list[Segment]:
        return [each for each in self._segments.values() if each.relation == relation]

    def _tables_of(
        self, relation: str, low: int = NEVER, high: int = FOREVER, *, keyed: bool = True
    ) -> Iterator[tuple[str, list[Segment]]]:
        """Yield the tables that may hold a relation's rows of these times, each with the large segments in it.

        A table without any has the rows of small segments, and none of other times.
        """
        small = []
        for segment in self._of(relation):
            if segment.id in self._tables:
                if _is_within(segment, low, high):
                    yield self._tables[segment.id], [segment]
            elif isinstance(holder := self._holder(segment), SmallSegments):
                small.append(segment)
            elif keyed and _is_within(segment, low, high):
                yield holder.view(segment.id), [segment]
        if any(_is_within(each, low, high) for each in small):
            yield from ((self.register(rows), []) for rows in self._small_of(relation).between(low, high))

    def _holder(self, segment: Segment) -> SmallSegments | KeyedSegments:
        """Return what holds a segment that has no table of its own."""
        keyed = self._keyed.get(segment.relation)
        return keyed if keyed is not None and segment.id in keyed else self._small_of(segment.relation)

    def _small_of(self, relation: str) -> SmallSegments:
        if relation not in self._small:
            self._small[relation] = SmallSegments()
        return self._small[relation]

    def _new_name(self) -> str:
        return f"segment_{next(self._table_numbers)}"

    # -- index lookups ---------------------------------------------------------------------------------------------

    def _most_found(self, reach: Sequence[Segment]) -> int:
        """Return how many rows of some segments a lookup by key may return; what it finds is held as one table."""
        rows, nbytes = sum(each.rows for each in reach), sum(each.nbytes for each in reach)
        most_bytes = max(self._budget.max_bytes // 2, _LEAST_FOUND_BYTES)
        return min(rows // ROWS_PER_FOUND, most_bytes * rows // max(nbytes, 1))

    def _indexed(
        self,
        relation: str,
        by: Sequence[str],
        look_up: Callable[[SegmentIndex], str],
        low: int = NEVER,
        high: int = FOREVER,
    ) -> str | None:
        """Return SQL that looks rows up in large segments and reads small ones whole."""
        selects = []
        for table, segments in self._tables_of(relation, low, high):
            bounds = _bounds(segments, low, high)
            first = next(iter(segments), None)
            if first is not None and first.id in self._tables and first.rows >= MIN_INDEXED:
                selects.append(look_up(self._index_of(first, table, by)) + (f" AND {bounds}" if bounds else ""))
            else:
                selects.append(f"SELECT * FROM {table}" + (f" WHERE {bounds}" if bounds else ""))
        return _union(selects)

    def _index_of(self, segment: Segment, table: str, by: Sequence[str]) -> SegmentIndex:
        indexes = self._indexes.setdefault(segment.id, {})
        if tuple(by) not in indexes:
            indexes[tuple(by)] = SegmentIndex(self._connection, table, by, len(indexes))
        return indexes[tuple(by)]

    def _ensure_keyed(self, relation: str, by: Sequence[str], probes: pa.Table) -> bool:
        """Return whether a relation has a hash index; the first lookup that returns few rows moves it to Arrow."""
        if relation not in self._keyed and self._finds_few(relation, by, probes):
            self._move_to_arrow(relation)
        return relation in self._keyed

    def _finds_few(self, relation: str, by: Sequence[str], probes: pa.Table) -> bool:
        """Estimate, from a sample of the relation's largest table, whether few stored rows have the probes' keys."""
        tables = [each for each in self._of(relation) if each.id in self._tables]
        if not tables:
            return True
        largest = max(tables, key=lambda each: each.rows)
        columns = ", ".join(quote(name) for name in by)
        step = -(-largest.rows // SAMPLE_ROWS)
        sample = f"SELECT {columns} FROM {self._tables[largest.id]} WHERE rowid % {step} = 0"
        stored = key_hashes(self._connection, self.query(sample))
        return bool(ROWS_PER_FOUND * np.isin(stored, key_hashes(self._connection, probes)).sum() <= len(stored))

    def _move_to_arrow(self, relation: str) -> None:
        keyed = self._keyed[relation] = KeyedSegments(self._connection, self._new_name(), self._budget, self._found)
        for segment in self._of(relation):
            if (table := self._tables.get(segment.id)) is not None:
                with _errors_of_duckdb():
                    # in one batch, if a batch can have so many bytes: several would be copied into one
                    rows = min(segment.rows, _BATCH_BYTES * segment.rows // max(segment.nbytes, 1))
                    reader = self._connection.sql(f"SELECT * FROM {table}").to_arrow_reader(max(rows, 1))
                    keyed.add(segment, reader.read_all(), in_memory=not is_on_disk(table))
                self._drop_table(segment.id)


@contextmanager
def _errors_of_duckdb() -> Iterator[None]:
    """Raise DuckDB's errors, of which Arrow's reader passes on the text alone."""
    try:
        yield
    except OSError as error:
        kind = _ERRORS.get(str(error).partition(":")[0], duckdb.Error)
        raise kind(str(error)) from None


def _gathered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        gathered.append(batch)
        rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        if rows >= _PIECE_ROWS or nbytes >= most:
            yield pa.Table.from_batches(gathered)
            gathered, rows, nbytes = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _is_within(segment: Segment, low: int, high: int) -> bool:
    """Return whether a segment may hold rows with ``low <= $t <= high``."""
    return segment.high >= low and segment.low <= high


def _between(tables: Iterable[tuple[str, Sequence[Segment]]], low: int, high: int) -> str | None:
    """Return SQL for the rows with ``low <= $t <= high`` of tables, each paired with the segments in it."""
    parts = [(table, _bounds(segments, low, high)) for table, segments in tables]
    if len(parts) == 1 and not parts[0][1]:
        return parts[0][0]  # one more SELECT around it takes DuckDB some tenths of a millisecond
    return _union(f"SELECT * FROM {table}" + (f" WHERE {bounds}" if bounds else "") for table, bounds in parts)


def _bounds(segments: Sequence[Segment], low: int, high: int) -> str:
    """Return ``$t BETWEEN low AND high``, empty if all rows of these segments lie inside."""
    is_inside = all(each.is_inside(low, high) for each in segments)
    return "" if is_inside else f"{quote(TIME)} BETWEEN {low} AND {high}"


def _union(selects: Iterable[str]) -> str | None:
    joined = " UNION ALL ".join(selects)
    return f"({joined})" if joined else None
