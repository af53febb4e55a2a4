"""All working sets of a worker process: one DuckDB, one memory limit, least recently used sets closed first."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import duckdb

from watersmeet.state.disk_tables import DiskTables
from watersmeet.state.working_set import WorkingSet

_numbers = itertools.count()
#: A working set that has not been used for this long is closed.
IDLE_SECONDS = 600.0


class WorkingSets:
    """Working sets by key, in one DuckDB.

    Sets are kept until they hold more than ``max_bytes`` together, or have not been used for ``idle_seconds``: then
    their query has ended, or runs elsewhere.  With a ``memory_limit``, all large segments stay in DuckDB, which counts
    and spills them.
    """

    def __init__(self, *, max_bytes: int, memory_limit: str | None = None, idle_seconds: float = IDLE_SECONDS) -> None:
        config: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "preserve_insertion_order": False,
            # DuckDB creates it at the first spill and deletes it at the end; the default is the working directory
            "temp_directory": str(Path(tempfile.gettempdir()) / f"watersmeet-{os.getpid()}-{next(_numbers)}"),
        }
        if memory_limit:
            config["memory_limit"] = memory_limit
        self._connection = duckdb.connect(":memory:", config=config)
        self._on_disk = DiskTables(self._connection)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._max_bytes = max_bytes
        self._max_keyed = 0 if memory_limit else max_bytes  # rows in Arrow are not in DuckDB's limit
        self._idle_seconds = idle_seconds
        self._sets: OrderedDict[tuple[str, ...], WorkingSet] = OrderedDict()
        self._last_used: dict[tuple[str, ...], float] = {}

    def get(self, *key: str) -> WorkingSet:
        """Return the working set of a bucket (key: query run, operator, bucket), an empty one if it is new."""
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = WorkingSet(self._connection, self._on_disk, max_keyed=self._max_keyed)
        self._sets.move_to_end(key)
        self._last_used[key] = time.monotonic()
        return found

    def trim(self) -> None:
        """Close idle sets, then the least recently used ones until the rest fits.  The newest set always stays."""
        total = sum(each.nbytes for each in self._sets.values())
        idle_since = time.monotonic() - self._idle_seconds
        while len(self._sets) > 1:
            key = next(iter(self._sets))
            if total <= self._max_bytes and self._last_used[key] > idle_since:
                break
            total -= self._sets[key].nbytes
            self._close(key)

    def forget(self) -> None:
        """Close all sets.  Tests use it to drop the cache, which results never depend on."""
        for key in list(self._sets):
            self._close(key)

    def _close(self, key: tuple[str, ...]) -> None:
        del self._last_used[key]
        self._sets.pop(key).close()
