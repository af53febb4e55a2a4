"""What an outside table offers to a lookup, and how it says that it cannot be reached just now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from watersmeet.errors import ConnectorError
from watersmeet.expressions.type_names import spark_type


class UnavailableError(Exception):
    """The table cannot be reached, or gives no answer in time: asking again may help."""


class LookupSource(Protocol):
    """An outside table.  It is plain data, shipped to the workers with each task, and holds no secret."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that it gives, with their declared types."""

    @property
    def most_keys(self) -> int | None:
        """How many keys one query may ask for (None: any number)."""

    def check(self) -> None:
        """Compare the table with what was declared, before a query starts; raises as ``fetch`` does."""

    def fetch(self, keys: pa.Table) -> pa.Table:
        """The rows of ``schema`` whose columns equal those of one of the ``keys``; others may be among them.

        Keys are distinct and hold no NULL.  Raises ``UnavailableError`` where asking again may help, and
        ``ConnectorError`` where it cannot: a column that is not there, a type that does not fit, no right to read.
        """


@dataclass(frozen=True, slots=True, eq=False)
class RowsSource:
    """A table whose rows travel with the query: a small batch of rows, as it was when the query was made."""

    name: str
    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.rows.schema

    @property
    def most_keys(self) -> int | None:
        """Any number."""
        return None

    def check(self) -> None:
        """Nothing can be wrong with it."""

    def fetch(self, keys: pa.Table) -> pa.Table:
        """All rows: there are few."""
        return self.rows


def both_names(known_as: str, written: str) -> str:
    """What messages call a table: the name that SQL has for it, and where it is."""
    return written if known_as in ("", written) else f"{known_as} ({written})"


def cast_columns(rows: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """The rows with the declared types; ``ConnectorError`` names the column with a value that does not fit."""
    columns = []
    for field in schema:
        column = rows[field.name]
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise misfit(table, field, f"another value of {spark_type(column.type)}") from None
    return pa.table(columns, schema=schema)


def misfit(table: str, field: pa.Field, found: str) -> ConnectorError:
    """The error for a column whose type, or a value of which, is not what was declared."""
    return ConnectorError(
        f"column {field.name} of table {table} holds {found}, which does not fit its declared type "
        f"{spark_type(field.type)}",
        hint="declare the type that the table has, or look up in a view that casts it",
    )
