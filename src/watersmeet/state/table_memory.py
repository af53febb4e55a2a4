"""The memory that DuckDB has freed and still keeps, in a worker that has little.

DuckDB has an allocator of its own, which keeps for a while what it frees, like those of ``state/freed_memory.py``.  It
gives all of that back when ``memory_limit`` is set, to whatever value.

A block that may be spilled stands in a queue for that.  When it is freed, its entry stays until DuckDB looks for blocks
to spill.  An entry takes some 220 bytes, which ``memory_limit`` does not count.  A hash join takes 16 blocks and more,
however few its rows are, and each of six queues grows to 32,768 entries: 50 MB in all.
"""

from __future__ import annotations

from contextlib import suppress

import duckdb

#: So many entries take 3.6 MB.
_MOST_ENTRIES = 16_384


class TableMemory:
    """Gives back what one DuckDB does not use, and keeps its ``memory_limit`` at ``table_bytes``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, table_bytes: int) -> None:
        self._connection = connection
        self._limit = f"{table_bytes // 1000}kB"

    def give_back(self) -> None:
        """Return what is unused to the system.  No query may be under way; if the queues are long, all tables spill."""
        if self._entries() > _MOST_ENTRIES:
            # what cannot be spilled exceeds any limit so small, and the disk may be full: then it stays in memory
            with suppress(duckdb.Error):
                self._set_limit("1kB")
        self._set_limit(self._limit)

    def _set_limit(self, limit: str) -> None:
        self._connection.execute(f"SET memory_limit = '{limit}'")

    def _entries(self) -> int:
        queues = self._connection.execute("SELECT sum(approximate_size)::BIGINT FROM duckdb_eviction_queues()")
        ((entries,),) = queues.fetchall()
        return int(entries)
