"""Tables of a DuckDB file: how the file is opened, and its tables as external tables.

DuckDB lets one process write to a file, or several read it.  So nobody keeps the file open: each query and each batch
opens and closes it, and waits where another process has it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from watersmeet.columns import same_name
from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.expressions.type_names import spark_type
from watersmeet.lookup.file_tables import type_fits
from watersmeet.lookup.source import UnavailableError, both_names, cast_columns
from watersmeet.settings.secrets import hide, masked_value, resolve

#: Parts of messages that say that another process, or another connection of this one, has the file.
_IN_USE = ("Could not set lock", "different configuration")
#: The keys of a query; no table of a file has this name, which would be hidden by it.
_KEYS = "_watersmeet_keys"
_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class FileInUseError(Exception):
    """Another process has the file."""


@contextmanager
def opened(path: str, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB file, with times in UTC; raises ``FileInUseError``, and what DuckDB raises.

    Threads of this process, such as those of two queries into one file, take turns: DuckDB fails where one opens the
    file while another closes it.
    """
    with _turns[str(Path(path).absolute())]:
        try:
            # without settings, which would keep others of this process from opening the file
            connection = duckdb.connect(path, read_only=read_only)
        except duckdb.Error as error:
            if any(each in str(error) for each in _IN_USE):
                raise FileInUseError(first_line(error)) from None
            raise
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
        finally:
            connection.close()


def table_sql(name: str) -> str:
    """Return a table's name, perhaps with its schema, as SQL has it."""
    return ".".join(map(column_sql, name.split(".", 1)))


def column_sql(name: str) -> str:
    """Return a column's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def columns_of(connection: duckdb.DuckDBPyConnection, table: str) -> pa.Schema:
    """Return a table's columns; raises ``duckdb.CatalogException`` if there is no such table."""
    return connection.sql(f"SELECT * FROM {table_sql(table)} LIMIT 0").to_arrow_table().schema


def first_line(error: Exception) -> str:
    """Return what DuckDB says, without its kind, its suggestions and secrets."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return hide(said.partition(" Error: ")[2].partition(" See also http")[0] or said)


@dataclass(frozen=True, slots=True)
class DuckDbSource:
    """A table or view of a DuckDB file; its name in SQL is ``known_as``. Only the columns of ``schema`` are read."""

    path: str
    table: str
    schema: pa.Schema
    known_as: str = ""

    @property
    def name(self) -> str:
        """The table's name in SQL and in the file."""
        return both_names(self.known_as, self.table)

    @property
    def max_keys(self) -> int | None:
        """Any number (None)."""
        return None

    def check(self) -> None:
        """Check that the file has the table, and the table the columns."""
        with self._opened() as connection:
            self._actual_names(connection)

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Return the rows of the keys, by one query."""
        with self._opened() as connection:
            actual = dict(zip(self.schema.names, self._actual_names(connection), strict=True))
            wanted = ", ".join(f"stored.{column_sql(actual[name])} AS {column_sql(name)}" for name in self.schema.names)
            same = " AND ".join(
                f"{_compared(f'stored.{column_sql(actual[name])}', keys.schema.field(name).type)}"
                f" = asked.{column_sql(name)}"
                for name in keys.column_names
            )
            connection.register(_KEYS, keys)
            query = f"SELECT {wanted} FROM {table_sql(self.table)} AS stored SEMI JOIN {_KEYS} AS asked ON {same}"
            rows = connection.sql(query).to_arrow_table()
        return cast_columns(rows, self.schema, self.name)

    def _actual_names(self, connection: duckdb.DuckDBPyConnection) -> Sequence[str]:
        try:
            found = columns_of(connection, self.table)
        except duckdb.CatalogException:
            raise ConnectorError(f"{self._shown} has no table {self.table}", hint="correct the option table") from None
        names = []
        for field in self.schema:
            actual = same_name(field.name, found.names)
            if actual is None:
                raise ConnectorError(
                    f"table {self.table} has no column {field.name}", hint=did_you_mean(field.name, found.names)
                )
            if not type_fits(field.type, found.field(actual).type):
                raise ConnectorError(
                    f"column {actual} of table {self.table} is {spark_type(found.field(actual).type)}: it cannot be "
                    f"declared as {spark_type(field.type)}",
                    hint="declare the type that the table has, or look up in a view that casts it",
                )
            names.append(actual)
        return names

    @property
    def _shown(self) -> str:
        return masked_value("path", self.path)

    @contextmanager
    def _opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open the file; other processes leave it after a while, and what else is wrong stays."""
        path = resolve(self.path)
        if not Path(path).exists():
            raise ConnectorError(f"there is no file {self._shown}", hint="correct the option path, or write it first")
        try:
            with opened(path, read_only=True) as connection:
                yield connection
        except FileInUseError as error:
            raise UnavailableError(f"{self._shown}: {error}") from None
        except duckdb.Error as error:
            raise ConnectorError(f"table {self.table} of {self._shown} cannot be read: {first_line(error)}") from None


def _compared(column: str, key: pa.DataType) -> str:
    """Return what equals a key: a text, also of a UUID, to which DuckDB would cast every key."""
    return f"CAST({column} AS VARCHAR)" if pa.types.is_string(key) else column
