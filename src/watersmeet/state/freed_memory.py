"""What becomes of memory that a worker frees.

By default it stays with the process, for its next use: Arrow's allocator keeps what it frees, and so does that of the C
library, which DuckDB uses.  A worker that holds much would then take half as much again.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

#: Blocks of more bytes are taken from the system one by one; so are all that DuckDB and most that Arrow asks for.
_LARGE_BYTES = 128 * 1024
#: ``M_TRIM_THRESHOLD`` of glibc's ``mallopt``.  To set it also keeps the size of large blocks at 128 KiB, which
#: otherwise grows to that of the largest one that was freed.
_TRIM_THRESHOLD = -1


def give_back_what_is_freed() -> None:
    """Have this process return memory to the system when it is freed, as far as the system can."""
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError):  # other C libraries have no such setting
        ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, _LARGE_BYTES)
