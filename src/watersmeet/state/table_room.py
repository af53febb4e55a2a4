"""Which segments lie in DuckDB's file because its memory has no room for their tables.

DuckDB spills what tables in memory hold, but not all of it.  Measured with DuckDB 2.0, tables of 2,500 to 60,000 rows:

- While it fills a table, it holds a last block of 256 KB of each column, and of each part of a nested one.
- Of a column of a filled table, it never spills which values are NULL: a bit a row, at least 4 KB.
- Of a nested column, it never spills the first 256 KB of each innermost column.

Of a table in a file, it spills all.  But to write one takes three times as long.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from watersmeet.kernels.row_bytes import stored_parts

#: What is held of a part of a column while a table is filled: a block, and which values are NULL.
_FILLING_BYTES = 300_000
#: What stays in memory of a column within a nested one.
_NESTED_BYTES = 280_000
_LEAST_BYTES = 4_096


class TableRoom:
    """What of ``table_bytes`` is left for tables in memory: a quarter for filling one, a quarter for what stays."""

    def __init__(self, table_bytes: int) -> None:
        self._most = table_bytes // 4
        self._held: dict[str, int] = {}
        self._left = self._most

    def take(self, name: str, rows: pa.Table) -> bool:
        """Take what a table of these rows needs; False, and nothing is taken, if there is no room."""
        staying = min(sum(_staying_bytes(type, rows.num_rows) for type in rows.schema.types), rows.nbytes)
        if sum(map(stored_parts, rows.schema.types)) * _FILLING_BYTES > self._most or staying > self._left:
            return False
        self._held[name] = staying
        self._left -= staying
        return True

    def give_back(self, name: str) -> None:
        """Give back what a table has taken; other names are ignored."""
        self._left += self._held.pop(name, 0)


def _staying_bytes(type: pa.DataType, rows: int) -> int:
    """Return what stays in memory of a column, at most."""
    if not pt.is_nested(type):
        return max(rows // 8, _LEAST_BYTES)
    return _innermost(type) * _NESTED_BYTES


def _innermost(type: pa.DataType) -> int:
    """Return how many columns that are not nested a column consists of."""
    if not pt.is_nested(type):
        return 1
    return sum(_innermost(type.field(number).type) for number in range(type.num_fields))
