"""A DuckDB connection without tables of its own, for expressions over rows that are at hand; its time zone is UTC."""

from __future__ import annotations

from functools import cache

import duckdb


@cache
def scratch_connection() -> duckdb.DuckDBPyConnection:
    """The one connection of this process."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection
