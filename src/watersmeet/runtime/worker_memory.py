"""Memory of worker processes between their tasks.

A query has several Python processes on each core, of which one works at a time: those that pack, those that hold state,
those that unpack.  Arrow's allocator keeps what it has freed, for a process that may not be asked again for a second.
"""

from __future__ import annotations

import pyarrow as pa


def give_back() -> None:
    """Return memory that is not in use to the system: the tasks that come next need it in other processes."""
    pa.default_memory_pool().release_unused()
