"""Temporary tables of one step: made as the step goes on, and dropped at its end, even if it fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count

import duckdb

from watersmeet.kernels.api import quote
from watersmeet.kernels.optimizers import Optimizers


class StepTables:
    """Temporary tables of DuckDB by name, until ``drop_all``.

    One that DuckDB's memory is too little for is made ``on_disk``, which gives the full name of a table in a file: in
    memory, it would hold 256 KB of each of its columns while it is filled (state/table_room.py).
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, optimizers: Optimizers, on_disk: Callable[[str], str]
    ) -> None:
        self._connection = connection
        self._optimizers = optimizers
        self._on_disk = on_disk
        self._made: set[str] = set()
        self._large: set[str] = set()  # names of tables that went to disk, in earlier steps too
        self._numbers = count()

    def make(self, name: str, sql: str, *, joins_as_written: bool = False) -> int:
        """Make a table of the rows of a query; return how many they are.  For the joins see ``StateView.query``."""
        self._made.add(name)
        with self._optimizers.joins_as_written(joins_as_written):
            return self._create("CREATE", name, sql)

    def add(self, sql: str, *, joins_as_written: bool = False) -> tuple[str, int]:
        """Make a table under a name of its own; return the name, and how many rows there are."""
        name = f"step_table_{next(self._numbers)}"
        return name, self.make(name, sql, joins_as_written=joins_as_written)

    def extend(self, name: str, sql: str) -> int:
        """Add the rows of a query to a table; return how many they are."""
        if name not in self._large:
            try:
                return self._run(f"INSERT INTO {quote(name)} {sql}")
            except duckdb.OutOfMemoryException:
                self._to_disk("CREATE", name, f"SELECT * FROM {quote(name)}")
        return self._run(f"INSERT INTO {quote(name)} {sql}")

    def remake(self, name: str, sql: str) -> int:
        """Replace a table by the rows of a query, which may read it; return how many they are."""
        return self._create("CREATE OR REPLACE", name, sql)

    def _create(self, how: str, name: str, sql: str) -> int:
        if name not in self._large:
            with suppress(duckdb.OutOfMemoryException):
                return self._run(f"{how} TEMP TABLE {quote(name)} AS {sql}")
        return self._to_disk(how, name, sql)

    def _to_disk(self, how: str, name: str, sql: str) -> int:
        rows = self._run(f"{how} TABLE {self._on_disk(quote(name))} AS {sql}")
        self._connection.execute(f"DROP TABLE IF EXISTS temp.{quote(name)}")  # what it replaces
        self._large.add(name)
        return rows

    def _run(self, sql: str) -> int:
        ((rows,),) = self._connection.execute(sql).fetchall()
        return int(rows)

    def drop(self, name: str) -> None:
        """Drop a table before the end of the step, to free its memory; other names are ignored."""
        if name in self._made:
            self._connection.execute(f"DROP TABLE IF EXISTS {quote(name)}")
            self._made.discard(name)

    def drop_all(self) -> None:
        """Drop all tables that were made.  The next step gives the same names: so its queries are the same."""
        for name in list(self._made):
            self.drop(name)
        self._numbers = count()
