"""The working set: a bucket's live segments as DuckDB tables in the worker's memory, small ones together in one.

It is a cache.  Spark hands a bucket to whichever worker process is free, so before every step the set is brought to
what the manifest names by set difference: tables of segments that are gone are dropped, missing ones are loaded from
the store.  First use, retry, restart and another worker are one path, and nothing depends on what was there before.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER, quote
from watersmeet.state.cold import ColdDatabase, hot, is_cold
from watersmeet.state.key_hashes import key_hashes
from watersmeet.state.keyed_segments import KeyedSegments
from watersmeet.state.segment_index import SegmentIndex
from watersmeet.state.segments import Segment
from watersmeet.state.shown_tables import ShownTables
from watersmeet.state.small_segments import SmallSegments, alike, is_small

_numbers = itertools.count()
#: A working set that has not been asked for so long is closed.
IDLE_SECONDS = 600.0
#: Segments of so many rows are worth an index.
LEAST_INDEXED = 20_000
#: Keys are sought in so many stored rows at least, of which a join reads all in some milliseconds …
LEAST_SOUGHT = 200_000
#: … and only in so many for each row that seeks: to find a row by its key takes as long as to read so many.
ROWS_PER_PROBE = 32
#: If more than one of so many is found, a scan is as fast.
ROWS_PER_FOUND = 32
#: So many rows are looked at before keys are sought in a relation for the first time.
SAMPLED = 10_000


class WorkingSet:
    """Tables of one bucket's segments; a ``StateView`` for its kernel."""

    _table_numbers = itertools.count()

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, cold: ColdDatabase | None = None, *, most_keyed: int = 0
    ) -> None:
        self._connection = connection
        self._cold = cold or ColdDatabase(connection)
        self._most_keyed = most_keyed
        self._is_hybrid = False
        self._shown = ShownTables(connection)
        self._segments: dict[str, Segment] = {}
        self._tables: dict[str, str] = {}  # of segments that are neither small nor keyed
        self._keyed: dict[str, KeyedSegments] = {}  # of each relation in which keys have been sought
        self._small: dict[str, SmallSegments] = {}  # of each relation
        self._indexes: dict[str, dict[tuple[str, ...], SegmentIndex]] = {}
        self._unspent: dict[str, int] = {}  # rows of each relation that may be looked at: see may_scan

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection that all sets of the process share."""
        return self._connection

    @property
    def nbytes(self) -> int:
        """Bytes of the segments held."""
        return sum(segment.nbytes for segment in self._segments.values())

    def sync(self, live: Sequence[Segment], load: Callable[[Segment], pa.Table], *, most_hot: int | None = None) -> int:
        """Hold just the ``live`` segments; the bytes that had to be loaded come back.  ``most_hot``: see ``cool``."""
        self._is_hybrid = most_hot is not None
        wanted = {segment.id: segment for segment in live}
        for gone in self._segments.keys() - wanted.keys():
            self.remove(gone)
        missing = [segment for id, segment in wanted.items() if id not in self._segments]
        in_memory = hot(live, most_hot)
        for segment in missing:
            self.add(segment, load(segment), is_hot=segment.id in in_memory)
        return sum(segment.nbytes for segment in missing)

    def cool(self, live: Sequence[Segment], most_hot: int | None) -> None:
        """Keep the newest segments, up to ``most_hot`` rows (None: all), in memory and move the others to disk.

        Small ones stay in memory.
        """
        in_memory = hot(live, most_hot)
        for segment in live:
            name = self._tables.get(segment.id)
            if name is None or segment.id in in_memory or is_cold(name):
                continue
            on_disk = self._cold.table(name)
            self._connection.execute(f"CREATE TABLE {on_disk} AS SELECT * FROM {name}")
            self.remove(segment.id)
            self._segments[segment.id], self._tables[segment.id] = segment, on_disk

    def add(self, segment: Segment, rows: pa.Table, *, is_hot: bool = True) -> None:
        """Hold the rows of a segment, in memory or on disk."""
        self._segments[segment.id] = segment
        if is_small(segment):
            self._small_of(segment.relation).add(segment, rows)
            return
        if segment.relation in self._keyed and self._may_key():
            self._keyed[segment.relation].add(segment, rows)
            return
        name = self._new_name()
        if not is_hot:
            name = self._cold.table(name)
        # DuckDB finds ``rows`` by its name here, in half of the time that it takes to register it
        self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
        self._tables[segment.id] = name

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        segment = self._segments.pop(segment_id)
        for index in self._indexes.pop(segment_id, {}).values():
            index.drop()
        if segment_id in self._tables:
            self._connection.execute(f"DROP TABLE {self._tables.pop(segment_id)}")
        else:
            self._home(segment).remove(segment_id)

    def show(self, rows: pa.Table) -> str:
        """The name by which DuckDB finds these rows until ``let_go``."""
        return self._shown.show(rows)

    def scan(self, relation: str, low: int = NEVER, high: int = FOREVER) -> str | None:
        """SQL over the stored rows of a relation with ``low <= $t <= high``, segments outside pruned."""
        return _between(self._tables_of(relation, low, high), low, high)

    def matching(
        self, relation: str, by: Sequence[str], probes: pa.Table, low: int = NEVER, high: int = FOREVER
    ) -> str | None:
        """SQL over stored rows with ``low <= $t <= high``, among them all whose columns ``by`` equal those of a probe.

        What it finds is shown.
        """
        reach = [each for each in self._of(relation) if _is_within(each, low, high)]
        rows = sum(each.rows for each in reach)
        found = None
        is_worth_it = by and rows >= max(LEAST_SOUGHT, ROWS_PER_PROBE * probes.num_rows)
        if is_worth_it and self._is_keyed(relation, by, probes):
            keyed = self._keyed[relation]
            found = keyed.find(by, probes, [each.id for each in reach if each.id in keyed], rows // ROWS_PER_FOUND)
        if found is None:
            return self.scan(relation, low, high)
        tables = [(self.show(each), reach) for each in found]
        return _between((*tables, *self._tables_of(relation, low, high, keyed=False)), low, high)

    def may_scan(self, relation: str, rows: int) -> bool:
        """Whether a step may look at all rows of a relation; each that asks has ``rows`` of them to spend on it."""
        unspent = self._unspent.get(relation, 0) + rows
        may = unspent >= self.count(relation, NEVER)
        self._unspent[relation] = 0 if may else unspent
        return may

    def near(self, relation: str, by: Sequence[str], probes: str) -> str | None:
        """SQL over the stored rows of a relation among which are those that ``probes`` ask for.

        That is, for each row of the relation ``probes``, the newest stored rows with equal columns ``by`` at or before
        its ``$t``.
        """
        return self._sought(relation, by, lambda index: index.near(probes))

    def of_keys(self, relation: str, by: Sequence[str], probes: str) -> str | None:
        """SQL over the stored rows of a relation among which are all with columns ``by`` equal to those of a probe."""
        return self._sought(relation, by, lambda index: index.of_keys(probes))

    def _sought(self, relation: str, by: Sequence[str], seek: Callable[[SegmentIndex], str]) -> str | None:
        """SQL over what an index finds in large segments, and all rows of small ones."""
        parts = []
        for table, segments in self._tables_of(relation):
            if len(segments) > 1 or segments[0].rows < LEAST_INDEXED:
                parts.append(f"SELECT * FROM {table}")
                continue
            indexes = self._indexes.setdefault(segments[0].id, {})
            if tuple(by) not in indexes:
                indexes[tuple(by)] = SegmentIndex(self._connection, table, by, len(indexes))
            parts.append(seek(indexes[tuple(by)]))
        return _union(parts)

    def read(self, segments: Sequence[Segment]) -> pa.Table:
        """The rows of some segments of a relation as one Arrow table."""
        small = alike(self._home(each).rows(each.id) for each in segments if each.id not in self._tables)
        names = [self._tables[each.id] for each in segments if each.id in self._tables]
        if not names and len(small) == 1:
            return small[0]
        views = {f"small_{number}": rows for number, rows in enumerate(small)}
        for name, rows in views.items():
            self._connection.register(name, rows)
        try:
            parts = [f"SELECT * FROM {name}" for name in (*names, *views)]
            return self._connection.sql(" UNION ALL ".join(parts)).to_arrow_table()
        finally:
            for name in views:
                self._connection.unregister(name)

    def count(self, relation: str, low: int) -> int:
        """Stored rows of a relation with ``$t >= low``; only a segment that has older ones too is looked into."""
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
                rows += self._home(segment).count(segment.id, low)
        return rows

    def let_go(self) -> None:
        """Forget what a step has shown, or found."""
        self._shown.clear()

    def close(self) -> None:
        """Drop all segments."""
        self._shown.close()
        for id in list(self._segments):
            self.remove(id)

    def _of(self, relation: str) -> list[Segment]:
        return [each for each in self._segments.values() if each.relation == relation]

    def _tables_of(
        self, relation: str, low: int = NEVER, high: int = FOREVER, *, keyed: bool = True
    ) -> Iterator[tuple[str, list[Segment]]]:
        """The tables with a relation's rows of some times, each with the segments that it holds."""
        small = []
        for segment in self._of(relation):
            if segment.id in self._tables:
                if _is_within(segment, low, high):
                    yield self._tables[segment.id], [segment]
            elif isinstance(home := self._home(segment), SmallSegments):
                small.append(segment)
            elif keyed and _is_within(segment, low, high):
                yield home.view(segment.id), [segment]
        if any(_is_within(each, low, high) for each in small):
            yield self._small_of(relation).table(), small

    def _home(self, segment: Segment) -> SmallSegments | KeyedSegments:
        """What holds a segment that has no table."""
        keyed = self._keyed.get(segment.relation)
        return keyed if keyed is not None and segment.id in keyed else self._small_of(segment.relation)

    def _may_key(self) -> bool:
        """Whether more rows may be held as Arrow, where DuckDB cannot put them on disk."""
        return not self._is_hybrid and self.nbytes <= self._most_keyed

    def _is_keyed(self, relation: str, by: Sequence[str], probes: pa.Table) -> bool:
        """Whether keys can be sought in a relation, which from the first time that they are few is held for it."""
        if relation not in self._keyed and self._may_key() and self._are_few(relation, by, probes):
            self._key(relation)
        return relation in self._keyed

    def _are_few(self, relation: str, by: Sequence[str], probes: pa.Table) -> bool:
        """Whether few of a relation's rows have the keys of ``probes``, to judge by some of its largest table."""
        tables = [each for each in self._of(relation) if each.id in self._tables]
        if not tables:
            return True
        largest = max(tables, key=lambda each: each.rows)
        columns = ", ".join(quote(name) for name in by)
        step = -(-largest.rows // SAMPLED)
        sample = f"SELECT {columns} FROM {self._tables[largest.id]} WHERE rowid % {step} = 0"
        stored = key_hashes(self._connection, self._connection.sql(sample).to_arrow_table())
        return bool(ROWS_PER_FOUND * np.isin(stored, key_hashes(self._connection, probes)).sum() <= len(stored))

    def _key(self, relation: str) -> None:
        """Hold a relation's segments that have tables to be sought by key."""
        keyed = self._keyed[relation] = KeyedSegments(self._connection, self._new_name())
        for segment in self._of(relation):
            if (table := self._tables.get(segment.id)) is not None:
                keyed.add(segment, self._connection.sql(f"SELECT * FROM {table}").to_arrow_table())
                del self._tables[segment.id]
                self._connection.execute(f"DROP TABLE {table}")

    def _small_of(self, relation: str) -> SmallSegments:
        if relation not in self._small:
            self._small[relation] = SmallSegments(self._connection, self._new_name())
        return self._small[relation]

    def _new_name(self) -> str:
        return f"segment_{next(self._table_numbers)}"


def _is_within(segment: Segment, low: int, high: int) -> bool:
    """Whether a segment may have rows with ``low <= $t <= high``."""
    return segment.high >= low and segment.low <= high


def _between(tables: Iterable[tuple[str, Sequence[Segment]]], low: int, high: int) -> str | None:
    """SQL over the rows with ``low <= $t <= high`` of tables, each beside the segments that it holds."""
    parts = []
    for table, segments in tables:
        is_inside = all(low <= each.low and each.high <= high for each in segments)
        parts.append((table, "" if is_inside else f" WHERE {quote(TIME)} BETWEEN {low} AND {high}"))
    if len(parts) == 1 and not parts[0][1]:
        return parts[0][0]  # a SELECT around another takes DuckDB some tenths of a millisecond
    return _union(f"SELECT * FROM {table}{where}" for table, where in parts)


def _union(parts: Iterable[str]) -> str | None:
    selects = " UNION ALL ".join(parts)
    return f"({selects})" if selects else None


class WorkingSets:
    """All working sets of a process, in one DuckDB with one memory limit, least recently used ones closed first.

    Sets that nobody has asked for in ``idle_seconds`` are closed too: their query has ended, or runs elsewhere.
    """

    def __init__(self, *, most_bytes: int, memory_limit: str | None = None, idle_seconds: float = IDLE_SECONDS) -> None:
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "preserve_insertion_order": False,
            # DuckDB makes it when it first spills, and takes it away at the end; its default is the working directory
            "temp_directory": str(Path(tempfile.gettempdir()) / f"watersmeet-{os.getpid()}-{next(_numbers)}"),
        }
        if memory_limit:
            config["memory_limit"] = memory_limit
        self._connection = duckdb.connect(":memory:", config=config)
        self._cold = ColdDatabase(self._connection)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._most_bytes = most_bytes
        self._most_keyed = 0 if memory_limit else most_bytes  # what is not in a table is not in DuckDB's limit
        self._idle_seconds = idle_seconds
        self._sets: OrderedDict[tuple[str, ...], WorkingSet] = OrderedDict()
        self._asked_for: dict[tuple[str, ...], float] = {}

    def get(self, *key: str) -> WorkingSet:
        """The working set of a bucket (key: query run, operator, bucket), empty where it was not known."""
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = WorkingSet(self._connection, self._cold, most_keyed=self._most_keyed)
        self._sets.move_to_end(key)
        self._asked_for[key] = time.monotonic()
        return found

    def trim(self) -> None:
        """Close idle sets, then the least recently used ones until the rest fits; the newest always stays."""
        total = sum(each.nbytes for each in self._sets.values())
        idle_since = time.monotonic() - self._idle_seconds
        while len(self._sets) > 1:
            key = next(iter(self._sets))
            if total <= self._most_bytes and self._asked_for[key] > idle_since:
                break
            total -= self._sets[key].nbytes
            self._close(key)

    def forget(self) -> None:
        """Close all of them (a test throws the cache away; correctness never depends on it)."""
        for key in list(self._sets):
            self._close(key)

    def _close(self, key: tuple[str, ...]) -> None:
        del self._asked_for[key]
        self._sets.pop(key).close()
