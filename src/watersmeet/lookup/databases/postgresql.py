"""PostgreSQL, through psycopg."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.lookup.databases.database import Database, on_conflict

if TYPE_CHECKING:
    import sqlalchemy as sa


class PostgreSql(Database):
    """Sessions end statements in time, and those of lookups cannot write."""

    shown = "PostgreSQL"
    driver = "postgresql+psycopg"
    package = "psycopg"
    is_written = True
    takes_arrays = True
    takes_nul = False

    def settings(self, query: Mapping[str, object], timeout: float, read_only: bool) -> dict[str, Any]:
        """Return limits of time, by the server and by TCP; libpq's options of the URL are psycopg's to check."""
        milliseconds = math.ceil(timeout * 1000)
        no_writes = " -c default_transaction_read_only=on" if read_only else ""
        return {
            "connect_args": {
                "application_name": "watersmeet",
                "connect_timeout": max(2, math.ceil(timeout)),  # libpq takes 2 seconds at least
                "options": f"-c statement_timeout={milliseconds}{no_writes}",
                "tcp_user_timeout": milliseconds,
            },
            "use_native_hstore": False,
            **({"isolation_level": "AUTOCOMMIT"} if read_only else {}),
        }

    def wait_for_writers(self, table: sa.Table, connection: sa.Connection) -> None:
        """Lock the table: a DELETE passes over a row that is not committed yet."""
        name = connection.dialect.identifier_preparer.format_table(table)
        connection.exec_driver_sql(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")

    def upsert(self, table: sa.Table, key: Sequence[sa.ColumnElement[Any]]) -> sa.Insert:
        """Return INSERT … ON CONFLICT over the key."""
        from sqlalchemy.dialects import postgresql

        return on_conflict(postgresql.insert(table), key)
