"""Arrow tables registered with DuckDB for the length of a step.

To register and unregister a table takes DuckDB most of a millisecond: for a step of one record, a tenth of the whole
step each.  So names stay registered, and each name reads the rows of the current step.  A name keeps its columns, as a
prepared statement expects (statements.py).
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import duckdb
import pyarrow as pa

_numbers = itertools.count()


class RegisteredTables:
    """The tables that a step registers; later steps reuse the names."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._slots: dict[str, _Slot] = {}
        self._free: defaultdict[pa.Schema, list[str]] = defaultdict(list)

    def register(self, rows: pa.Table) -> str:
        """Return a name by which DuckDB finds these rows until ``release``.

        Steps that register tables of the same columns in the same order get the same names.
        """
        if free := self._free[rows.schema]:
            name = free.pop()
            self._slots[name].rows = rows
            return name
        name = f"registered_{next(_numbers)}"
        slot = self._slots[name] = _Slot(rows)
        self._connection.register(name, slot)
        return name

    def release(self) -> None:
        """Release all rows; the names stay registered."""
        self._free.clear()
        for name, slot in reversed(self._slots.items()):  # the oldest name is the last, and taken first
            slot.rows = None
            self._free[slot.schema].append(name)

    def close(self) -> None:
        """Unregister all names."""
        for name in self._slots:
            self._connection.unregister(name)
        self._slots.clear()
        self._free.clear()


class _Slot:
    """The object behind a name.

    DuckDB asks for its Arrow C stream at every read, and once before for the schema (Arrow PyCapsule interface).
    """

    def __init__(self, rows: pa.Table) -> None:
        self.rows: pa.Table | None = rows
        self.schema = rows.schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        assert self.rows is not None, "rows are registered until the step ends"
        return self.rows.__arrow_c_stream__(requested_schema)
