"""The database servers that lookups are tested with, and declared columns."""

from __future__ import annotations

from pyspark.sql.types import StructType

from tests.lookup.conftest import mariadb, mariadb_process, postgres, server

__all__ = ["mariadb", "mariadb_process", "postgres", "server", "struct_of"]


def struct_of(ddl: str) -> StructType:
    """Declared columns, written as in CREATE STREAM; needs a running session."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found
