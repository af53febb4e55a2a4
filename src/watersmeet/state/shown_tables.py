"""Arrow tables that DuckDB finds by name for the length of a step.

To register a table and to take it away again takes DuckDB most of a millisecond, which of a step of one record was a
tenth for each.  So names stay, and what is registered under one hands out the rows of the moment.
"""

from __future__ import annotations

import itertools

import duckdb
import pyarrow as pa

_numbers = itertools.count()


class ShownTables:
    """The tables that a step shows to DuckDB; names and what they cost are used again by the steps after it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._slots: dict[str, _Slot] = {}
        self._free: list[str] = []

    def show(self, rows: pa.Table) -> str:
        """The name by which DuckDB finds these rows until ``clear``."""
        if self._free:
            name = self._free.pop()
            self._slots[name].rows = rows
            return name
        name = f"shown_{next(_numbers)}"
        slot = self._slots[name] = _Slot(rows)
        self._connection.register(name, slot)
        return name

    def clear(self) -> None:
        """Let go of all rows."""
        for slot in self._slots.values():
            slot.rows = None
        self._free = list(self._slots)

    def close(self) -> None:
        """Take all names away."""
        for name in self._slots:
            self._connection.unregister(name)
        self._slots.clear()
        self._free.clear()


class _Slot:
    """What DuckDB knows under a name: it asks for Arrow's C stream each time that it reads, and before for its schema.

    See the Arrow PyCapsule interface.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.rows: pa.Table | None = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        assert self.rows is not None, "rows are shown until the step ends"
        return self.rows.__arrow_c_stream__(requested_schema)
