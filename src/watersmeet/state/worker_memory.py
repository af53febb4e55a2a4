"""How the memory of one worker process is divided.

What a process needs before it holds a row is a constant.  Of the rest:

======== ===== =====================================================================================
share    of 20 for
======== ===== =====================================================================================
tables   10    DuckDB: state in tables, hash tables of joins; beyond it, DuckDB spills to disk
keyed    4     rows that are looked up by key, with their indexes; beyond it, they lie in mapped files
step     2     the rows of one step; a batch with more is taken in several steps
======== ===== =====================================================================================

What is left is for what a step makes of its rows: results under way, rows to store, and their encoded form.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Python with its libraries, as resident as the kernel counts it, before much is held: 172 to 200 MB were measured.
BASE_BYTES = 200_000_000
#: Buffers of DuckDB and what allocators keep, some 150 MB, are little beside so much.
_LITTLE_BYTES = 1_500_000_000
#: A step of fewer bytes costs more than its rows.
_LEAST_STEP_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """The shares of ``total`` bytes, at least ``LEAST_WORKER_BYTES`` of settings/query_settings.py."""

    total: int

    @property
    def is_little(self) -> bool:
        """Whether a worker should take little memory rather than little time."""
        return self.total < _LITTLE_BYTES

    @property
    def table_bytes(self) -> int:
        """The limit of DuckDB."""
        return self._share(10)

    @property
    def keyed_bytes(self) -> int:
        """What rows in Arrow and their indexes may take."""
        return self._share(4)

    @property
    def step_bytes(self) -> int:
        """What the rows of one step may take."""
        return max(self._share(2), _LEAST_STEP_BYTES)

    def _share(self, parts: int) -> int:
        return (self.total - BASE_BYTES) * parts // 20
