"""Queries that a bucket runs at every step, prepared so that DuckDB plans them once.

For a few rows DuckDB takes longer to parse and to plan a query than to run it.
"""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

#: So many queries are remembered, those that ran last.
_MOST = 64
#: The optimizers that order joins and choose their build sides.
_ORDERING = "join_order,build_side_probe_side"
_numbers = itertools.count()


class Statements:
    """Runs queries on a connection; one that comes again is prepared.

    The tables of a query keep their columns, and stay until ``forget``: a prepared query refers to them.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        # the prepared name of each query (None: it has run once), by its text and whether it joins as written
        self._names: OrderedDict[tuple[str, bool], str | None] = OrderedDict()

    def query(self, sql: str, *, joins_as_written: bool = False) -> pa.Table:
        """Return the rows of a query; see ``StateView``."""
        key = sql, joins_as_written
        if name := self._names.get(key):
            rows = self._rows(f"EXECUTE {name}")
        else:
            with planning(self._connection, joins_as_written=joins_as_written):
                rows = self._rows(f"EXECUTE {self._prepared(key)}" if key in self._names else sql)
            self._names.setdefault(key, None)
        self._names.move_to_end(key)
        if len(self._names) > _MOST:
            self._deallocate(self._names.popitem(last=False)[1])
        return rows

    def forget(self) -> None:
        """Forget all queries."""
        for name in self._names.values():
            self._deallocate(name)
        self._names.clear()

    def _prepared(self, key: tuple[str, bool]) -> str:
        name = f"query_{next(_numbers)}"
        self._connection.execute(f"PREPARE {name} AS {key[0]}")
        self._names[key] = name
        return name

    def _rows(self, sql: str) -> pa.Table:
        """Return the rows of a statement.

        ``connection.sql(sql).to_arrow_table()`` would plan it twice.  The copy that DuckDB warns of here costs some
        nanoseconds a row.
        """
        self._connection.execute(sql)
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return self._connection.to_arrow_table()

    def _deallocate(self, name: str | None) -> None:
        if name is not None:
            self._connection.execute(f"DEALLOCATE {name}")


@contextmanager
def planning(connection: duckdb.DuckDBPyConnection, *, joins_as_written: bool) -> Iterator[None]:
    """Plan statements with joins in the order that DuckDB finds best, or as they are written."""
    if not joins_as_written:
        yield
        return
    connection.execute(f"SET disabled_optimizers = '{_ORDERING}'")
    try:
        yield
    finally:
        connection.execute("RESET disabled_optimizers")
