"""The temporary tables of one step: made as the step goes on, and dropped at its end, even if it fails."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from watersmeet.kernels.api import quote

if TYPE_CHECKING:
    import duckdb


class StepTables:
    """Tables of DuckDB by name; ``with StepTables(connection) as tables`` drops those that were made in it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._made: set[str] = set()

    def make(self, name: str, sql: str) -> None:
        """Make a table of the rows of a query."""
        self._made.add(name)
        self._connection.execute(f"CREATE TEMP TABLE {quote(name)} AS {sql}")

    def remake(self, name: str, sql: str) -> None:
        """Replace a table by the rows of a query, which may read it."""
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {quote(name)} AS {sql}")

    def count(self, name: str) -> int:
        """Return how many rows a table has."""
        ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {quote(name)}").fetchall()
        return int(rows)

    def drop(self, name: str) -> None:
        """Drop a table before the end of the step, to free its memory."""
        self._connection.execute(f"DROP TABLE IF EXISTS {quote(name)}")
        self._made.discard(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in list(self._made):
            self.drop(name)
