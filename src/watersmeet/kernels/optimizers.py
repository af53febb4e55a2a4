"""Which of DuckDB's optimizers plan the queries of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

#: Those that order joins and choose their build sides.
_ORDERING = ("join_order", "build_side_probe_side")
#: Those that tell an inner join how close together its integer keys are.  Where these span about a million or less,
#: DuckDB makes a "perfect hash join": it copies the build side into arrays as long as the span, however few its rows
#: are.  They do not count towards ``memory_limit``: 72 MB for 24,000 rows of seven columns.
_SPANS = ("join_filter_pushdown", "statistics_propagation")


class Optimizers:
    """Those of a DuckDB with all its connections; with little memory, none of them plans perfect hash joins."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, has_little_memory: bool = False) -> None:
        self.has_little_memory = has_little_memory
        self._connection = connection
        self._disabled = _SPANS if has_little_memory else ()
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
