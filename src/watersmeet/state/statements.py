"""Queries that a bucket runs at every step, prepared so that DuckDB plans them once.

For a few rows DuckDB takes longer to parse and to plan a query than to run it.  But a prepared query does not notice
that a name stands for another view, and one that reads a table of DuckDB is planned at each run.  So only queries over
``RegisteredTables`` are prepared, whose names keep their columns; temporary tables beside them do no harm.
"""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict

import duckdb
import pyarrow as pa

#: So many queries are remembered, those that ran last.
_MOST = 64
_numbers = itertools.count()


class Statements:
    """The queries of one bucket that ran last; those that come again are prepared."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._names: OrderedDict[str, str | None] = OrderedDict()  # by query; None: it has run once

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a query over ``RegisteredTables``."""
        if sql in self._names:
            name = self._names[sql] or self._prepared(sql)
            rows = fetched(self._connection, f"EXECUTE {name}")
        else:
            rows = fetched(self._connection, sql)
            self._names[sql] = None
        self._names.move_to_end(sql)
        if len(self._names) > _MOST:
            self._deallocate(self._names.popitem(last=False)[1])
        return rows

    def forget(self) -> None:
        """Forget all queries."""
        for name in self._names.values():
            self._deallocate(name)
        self._names.clear()

    def _prepared(self, sql: str) -> str:
        name = f"query_{next(_numbers)}"
        self._connection.execute(f"PREPARE {name} AS {sql}")
        self._names[sql] = name
        return name

    def _deallocate(self, name: str | None) -> None:
        if name is not None:
            self._connection.execute(f"DEALLOCATE {name}")


def fetched(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Return the rows of a statement.

    ``connection.sql(sql).to_arrow_table()`` would plan it twice.  The copy that DuckDB warns of here costs some
    nanoseconds a row.
    """
    connection.execute(sql)
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return connection.to_arrow_table()
