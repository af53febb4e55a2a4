"""Temporary tables of one step: made as the step goes on, and dropped at its end, even if it fails."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from watersmeet.kernels.api import quote
from watersmeet.kernels.optimizers import Optimizers

if TYPE_CHECKING:
    import duckdb


class StepTables:
    """Temporary tables of DuckDB by name, until ``drop_all``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, optimizers: Optimizers) -> None:
        self._connection = connection
        self._optimizers = optimizers
        self._made: set[str] = set()
        self._numbers = count()

    def make(self, name: str, sql: str, *, joins_as_written: bool = False) -> int:
        """Make a table of the rows of a query; return how many they are.  For the joins see ``StateView.query``."""
        self._made.add(name)
        with self._optimizers.joins_as_written(joins_as_written):
            return self._created(f"CREATE TEMP TABLE {quote(name)} AS {sql}")

    def add(self, sql: str, *, joins_as_written: bool = False) -> tuple[str, int]:
        """Make a table under a name of its own; return the name, and how many rows there are."""
        name = f"step_table_{next(self._numbers)}"
        return name, self.make(name, sql, joins_as_written=joins_as_written)

    def extend(self, name: str, sql: str) -> int:
        """Add the rows of a query to a table; return how many they are."""
        return self._created(f"INSERT INTO {quote(name)} {sql}")

    def remake(self, name: str, sql: str) -> int:
        """Replace a table by the rows of a query, which may read it; return how many they are."""
        return self._created(f"CREATE OR REPLACE TEMP TABLE {quote(name)} AS {sql}")

    def _created(self, sql: str) -> int:
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
