"""What becomes of memory that a worker frees.

By default it stays with the process, for its next use: Arrow's allocator keeps what it frees, and so does that of the C
library, which Python and numpy use.  That saves time, and takes up to 150 MB more than what is in use.  For what DuckDB
keeps see ``table_memory.py``.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

import pyarrow as pa

#: Blocks of more bytes are taken from the system one by one, and go back when they are freed.  Nearly all blocks of
#: DuckDB and of Arrow are larger.
_LARGE_BYTES = 128 * 1024
#: ``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` of glibc.  Both are this by default, and grow with the largest block
#: that was freed unless they are set.
_PARAMETERS = (-3, -1)
#: Arrow reads Parquet with its first allocator, whichever is set later.
_FIRST_POOL = pa.default_memory_pool()


@cache
def give_back_what_is_freed() -> None:
    """Have this process return memory to the system when it is freed, as far as the system can, from now on."""
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError):  # other C libraries have no such setting
        c_library = ctypes.CDLL(None)
        for parameter in _PARAMETERS:
            c_library.mallopt(parameter, _LARGE_BYTES)


def release_unused() -> None:
    """Return to the system, once, what Arrow's allocators keep of what was freed."""
    _FIRST_POOL.release_unused()
    pa.default_memory_pool().release_unused()
