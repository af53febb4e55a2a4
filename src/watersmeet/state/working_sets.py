"""All working sets of a worker process: one DuckDB, one budget for rows in Arrow."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import duckdb

from watersmeet.kernels.optimizers import Optimizers
from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.state.disk_tables import DiskTables
from watersmeet.state.table_memory import TableMemory
from watersmeet.state.table_room import TableRoom
from watersmeet.state.working_set import WorkingSet

_numbers = itertools.count()
#: A working set that has not been used for this long is closed.
IDLE_SECONDS = 600.0
#: What DuckDB makes of a result before it is asked for it, where memory is little; ten times as much by default.
_LITTLE_BUFFER = "1MB"


class WorkingSets:
    """Working sets by key, in one DuckDB.

    DuckDB keeps to ``table_bytes`` (None: its own limit) and spills beyond; rows in Arrow keep to ``keyed_bytes``, and
    lie in files beyond.  A set that has not been used for ``idle_seconds`` is closed: its query has ended, or runs
    elsewhere.
    """

    def __init__(
        self,
        *,
        keyed_bytes: int,
        table_bytes: int | None = None,
        has_little_memory: bool = False,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "preserve_insertion_order": False,
            # DuckDB creates it at the first spill and deletes it at the end; the default is the working directory
            "temp_directory": str(Path(tempfile.gettempdir()) / f"watersmeet-{os.getpid()}-{next(_numbers)}"),
        }
        if table_bytes is not None:
            config["memory_limit"] = f"{table_bytes // 1000}kB"
        self._connection = duckdb.connect(":memory:", config=config)
        self._on_disk = DiskTables(self._connection)
        self._connection.execute("SET TimeZone = 'UTC'")
        if has_little_memory:
            self._connection.execute(f"SET streaming_buffer_size = '{_LITTLE_BUFFER}'")
        self._budget = ArrowBudget(keyed_bytes)
        self._optimizers = Optimizers(self._connection, has_little_memory=has_little_memory)
        self._table_memory = TableMemory(self._connection, table_bytes) if table_bytes and has_little_memory else None
        self._table_room = TableRoom(table_bytes) if table_bytes else None
        self._idle_seconds = idle_seconds
        self._sets: OrderedDict[tuple[str, ...], WorkingSet] = OrderedDict()
        self._last_used: dict[tuple[str, ...], float] = {}

    def get(self, *key: str) -> WorkingSet:
        """Return the working set of a bucket (key: query run, operator, bucket), an empty one if it is new."""
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = WorkingSet(
                self._connection,
                self._on_disk,
                self._budget,
                self._optimizers,
                self._table_memory,
                self._table_room,
            )
        self._sets.move_to_end(key)
        self._last_used[key] = time.monotonic()
        return found

    @property
    def keyed_bytes_left(self) -> int:
        """What is left of ``keyed_bytes``."""
        return self._budget.left

    def tidy(self) -> None:
        """After a task: close the sets that have been idle for long, except the newest; give back unused memory."""
        idle_since = time.monotonic() - self._idle_seconds
        while len(self._sets) > 1:
            key = next(iter(self._sets))
            if self._last_used[key] > idle_since:
                break
            self._close(key)
        if self._table_memory is not None:
            self._table_memory.give_back()

    def forget(self) -> None:
        """Close all sets.  Tests use it to drop the cache, which results never depend on."""
        for key in list(self._sets):
            self._close(key)

    def _close(self, key: tuple[str, ...]) -> None:
        del self._last_used[key]
        self._sets.pop(key).close()
