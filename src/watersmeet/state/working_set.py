"""The working set: a bucket's live segments as DuckDB tables in the worker's memory.

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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER, quote
from watersmeet.state.cold import ColdDatabase, hot, is_cold
from watersmeet.state.segment_index import SegmentIndex
from watersmeet.state.segments import Segment

_numbers = itertools.count()
#: A working set that has not been asked for so long is closed.
IDLE_SECONDS = 600.0
#: Segments of so many rows are worth an index.
LEAST_INDEXED = 20_000


class WorkingSet:
    """Tables of one bucket's segments; a ``StateView`` for its kernel."""

    _table_numbers = itertools.count()

    def __init__(self, connection: duckdb.DuckDBPyConnection, cold: ColdDatabase | None = None) -> None:
        self._connection = connection
        self._cold = cold or ColdDatabase(connection)
        self._tables: dict[str, tuple[Segment, str]] = {}
        self._indexes: dict[str, dict[tuple[str, ...], SegmentIndex]] = {}

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection that all sets of the process share."""
        return self._connection

    @property
    def nbytes(self) -> int:
        """Bytes of the segments held."""
        return sum(segment.nbytes for segment, _ in self._tables.values())

    def sync(self, live: Sequence[Segment], load: Callable[[Segment], pa.Table], *, most_hot: int | None = None) -> int:
        """Hold just the ``live`` segments; the bytes that had to be loaded come back.  ``most_hot``: see ``cool``."""
        wanted = {segment.id: segment for segment in live}
        for gone in self._tables.keys() - wanted.keys():
            self.remove(gone)
        missing = [segment for id, segment in wanted.items() if id not in self._tables]
        in_memory = hot(live, most_hot)
        for segment in missing:
            self.add(segment, load(segment), is_hot=segment.id in in_memory)
        return sum(segment.nbytes for segment in missing)

    def cool(self, live: Sequence[Segment], most_hot: int | None) -> None:
        """Keep the newest segments, up to ``most_hot`` rows (None: all), in memory and move the others to disk."""
        in_memory = hot(live, most_hot)
        for segment in live:
            _, name = self._tables[segment.id]
            if segment.id in in_memory or is_cold(name):
                continue
            on_disk = self._cold.table(name)
            self._connection.execute(f"CREATE TABLE {on_disk} AS SELECT * FROM {name}")
            self.remove(segment.id)
            self._tables[segment.id] = (segment, on_disk)

    def add(self, segment: Segment, rows: pa.Table, *, is_hot: bool = True) -> None:
        """Hold the rows of a segment, in memory or on disk."""
        name = f"segment_{next(self._table_numbers)}"
        if not is_hot:
            name = self._cold.table(name)
        # DuckDB finds ``rows`` by its name here, in half of the time that it takes to register it
        self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
        self._tables[segment.id] = (segment, name)

    def remove(self, segment_id: str) -> None:
        """Drop a segment."""
        for index in self._indexes.pop(segment_id, {}).values():
            index.drop()
        _, name = self._tables.pop(segment_id)
        self._connection.execute(f"DROP TABLE {name}")

    def scan(self, relation: str, low: int = NEVER, high: int = FOREVER) -> str | None:
        """SQL over the stored rows of a relation with ``low <= $t <= high``, segments outside pruned."""
        parts = []
        for segment, name in self._tables.values():
            if segment.relation != relation or segment.high < low or segment.low > high:
                continue
            inside = low <= segment.low and segment.high <= high
            where = "" if inside else f" WHERE {quote(TIME)} BETWEEN {low} AND {high}"
            parts.append(f"SELECT * FROM {name}{where}")
        return f"({' UNION ALL '.join(parts)})" if parts else None

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
        for id, (segment, name) in self._tables.items():
            if segment.relation != relation:
                continue
            if segment.rows < LEAST_INDEXED:
                parts.append(f"SELECT * FROM {name}")
                continue
            indexes = self._indexes.setdefault(id, {})
            if tuple(by) not in indexes:
                indexes[tuple(by)] = SegmentIndex(self._connection, name, by, len(indexes))
            parts.append(seek(indexes[tuple(by)]))
        return f"({' UNION ALL '.join(parts)})" if parts else None

    def read(self, segments: Iterable[Segment]) -> pa.Table:
        """The rows of some segments as one Arrow table."""
        parts = " UNION ALL ".join(f"SELECT * FROM {self._tables[segment.id][1]}" for segment in segments)
        return self._connection.sql(parts).to_arrow_table()

    def count(self, relation: str, low: int) -> int:
        """Stored rows of a relation with ``$t >= low``; only a segment that has older ones too is looked into."""
        rows = 0
        for segment, name in self._tables.values():
            if segment.relation != relation or segment.high < low:
                continue
            if segment.low >= low:
                rows += segment.rows
                continue
            counted = self._connection.execute(f"SELECT count(*) FROM {name} WHERE {quote(TIME)} >= {low}").fetchall()
            rows += int(counted[0][0])
        return rows

    def close(self) -> None:
        """Drop all segments."""
        for id in list(self._tables):
            self.remove(id)


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
        self._idle_seconds = idle_seconds
        self._sets: OrderedDict[tuple[str, ...], WorkingSet] = OrderedDict()
        self._asked_for: dict[tuple[str, ...], float] = {}

    def get(self, *key: str) -> WorkingSet:
        """The working set of a bucket (key: query run, operator, bucket), empty where it was not known."""
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = WorkingSet(self._connection, self._cold)
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
