"""SQLite, by Python's own driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from watersmeet.lookup.databases.database import Database, on_conflict

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.types import TypeEngine


class Sqlite(Database):
    """A file of one machine."""

    shown = "SQLite"
    is_written = True

    def rounds(self, declared: pa.DataType, actual: TypeEngine[Any]) -> bool:
        """Return True also for decimals, of which SQLite makes floats."""
        return pa.types.is_decimal(declared) or super().rounds(declared, actual)

    def upsert(self, table: sa.Table, key: Sequence[sa.ColumnElement[Any]]) -> sa.Insert:
        """Return INSERT … ON CONFLICT over the key."""
        from sqlalchemy.dialects import sqlite

        return on_conflict(sqlite.insert(table), key)
