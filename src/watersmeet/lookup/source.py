"""The interface of external tables to lookups, and the error for a table that is temporarily unreachable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from watersmeet.errors import ConnectorError
from watersmeet.expressions.type_names import spark_type


class UnavailableError(Exception):
    """The table cannot be reached or does not answer in time; a retry may help."""


class LookupSource(Protocol):
    """An external table: plain data without secrets, which Spark ships to the workers with each task."""

    @property
    def name(self) -> str:
        """The table's name in messages."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that ``fetch`` returns, with their declared types."""

    @property
    def max_keys(self) -> int | None:
        """The most keys of one query (None: any number)."""

    def check(self) -> None:
        """Compare the table with its declaration before a query starts; raises as ``fetch`` does."""

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Return the rows, as ``schema``, whose columns equal those of one of the ``keys``; others may be among them.

        Keys are distinct and hold no NULL. Raises ``UnavailableError`` where a retry may help, and ``ConnectorError``
        where it cannot: a missing column, a type that does not fit, no permission to read.
        """


@dataclass(frozen=True, slots=True, eq=False)
class RowsSource:
    """A table whose rows travel with the query: a small batch of rows, fixed when the query was made."""

    name: str
    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.rows.schema

    @property
    def max_keys(self) -> int | None:
        """Any number (None)."""
        return None

    def check(self) -> None:
        """Do nothing: the rows have their own schema."""

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Return all rows."""
        return self.rows


def both_names(known_as: str, written: str) -> str:
    """Return a table's name in messages: its name in SQL, and its location."""
    return written if known_as in ("", written) else f"{known_as} ({written})"


def cast_columns(rows: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """Return the rows with the declared types; raises ``ConnectorError`` for a column with a value outside its type."""
    columns = []
    for field in schema:
        column = rows[field.name]
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise misfit(table, field, f"another value of {spark_type(column.type)}") from None
    return pa.table(columns, schema=schema)


def misfit(table: str, field: pa.Field, found: str) -> ConnectorError:
    """Return the error for a column whose type or values do not fit its declaration."""
    return ConnectorError(
        f"column {field.name} of table {table} holds {found}, which does not fit its declared type "
        f"{spark_type(field.type)}",
        hint="declare the type that the table has, or look up in a view that casts it",
    )
