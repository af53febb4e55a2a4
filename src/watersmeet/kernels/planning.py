"""How DuckDB plans the queries of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

#: The optimizers that order joins and choose their build sides.
_ORDERING = ("join_order", "build_side_probe_side")
#: Those that tell a join how close together its keys are.  Where integer keys span less than a million, DuckDB keeps
#: the build side of an inner join in arrays of that length, however few its rows: 70 MB for seven columns.  They do
#: not count towards ``memory_limit``.
_RANGES = ("join_filter_pushdown", "statistics_propagation")


class Planning:
    """Which of DuckDB's optimizers plan a connection's queries; with little memory, none that may take much of it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, has_little_memory: bool = False) -> None:
        self._connection = connection
        self._disabled = _RANGES if has_little_memory else ()
        if has_little_memory:
            self._disable(self._disabled)

    @contextmanager
    def joins_as_written(self, wanted: bool) -> Iterator[None]:
        """If ``wanted``, plan joins in the order in which they are written, and not as DuckDB finds best."""
        if not wanted:
            yield
            return
        self._disable((*self._disabled, *_ORDERING))
        try:
            yield
        finally:
            self._disable(self._disabled)

    def _disable(self, optimizers: tuple[str, ...]) -> None:
        self._connection.execute(f"SET disabled_optimizers = '{','.join(optimizers)}'")
