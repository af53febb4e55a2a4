"""The ``duckdb`` connector: a table of a DuckDB file as a sink.

A batch is one transaction of deletes and upserts by key, made by the driver, so writing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA, same_name
from watersmeet.connectors.connector import WRITES_ANEW, SinkConnector, WriteBatch, Writing
from watersmeet.connectors.net_changes import collected, net_changes, require_columns_of_table, require_primary_key
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.errors import ConfigError, ConnectorError, SinkOutageError, did_you_mean
from watersmeet.lookup.duckdb_tables import FileInUseError, column_sql, first_line, opened, table_sql
from watersmeet.lookup.table_options import DuckDbFile, parse_table_options
from watersmeet.lookup.tables import table_schema
from watersmeet.settings.secrets import masked_value, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A text whose DuckDB type is another one than VARCHAR may be written in another form than it came.
_TYPE_OF = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INTEGER"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_string, "VARCHAR"),
    (pa.types.is_binary, "BLOB"),
    (pa.types.is_date, "DATE"),
)
#: A batch; no table of a file has this name, which would be hidden by it.
_CHANGES = "_watersmeet_changes"
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")


class DuckDbConnector(SinkConnector):
    """A sink that keeps the newest row of each PRIMARY KEY in a table of a DuckDB file.

    ``path`` is the file, ``table`` its table (``schema.table`` if needed). Both are made if they are not there. An
    existing table needs a primary key or a unique index over the stream's key. The driver writes, and the file is
    open only while it does; while another process has the file, the query waits.
    """

    name = "duckdb"
    model = DuckDbFile
    changelogs = (Changelogs.BY_KEY,)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options, columns that DuckDB does not take, and a stream without a key."""
        file_of(stream.options)
        for field in table_schema(stream, [column.name for column in stream.columns]):
            _type_of(field.type)
        require_columns_of_table(stream)
        require_primary_key(stream)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what writes a batch; raises as ``DuckDbTable.prepare`` does."""
        table = DuckDbTable(writing.stream)
        table.prepare()

        def write(frame: DataFrame, batch_id: int, _key: str) -> None:
            rows = collected(frame)
            writing.tried(lambda: table.write(rows, batch_id))

        return write

    def reach(self, spark: SparkSession, stream: StreamDef) -> None:
        """Raise as ``DuckDbTable.prepare`` does."""
        DuckDbTable(stream).prepare()


def file_of(options: Mapping[str, str]) -> DuckDbFile:
    """Return the checked options of a WITH clause; raises ``ConfigError`` for missing, unknown or wrong ones."""
    return parse_table_options(DuckDbFile, DuckDbConnector.name, options)


class DuckDbTable:
    """The table of a stream. Every method raises ``SinkOutageError`` while another process has the file."""

    def __init__(self, stream: StreamDef) -> None:
        given = file_of(stream.options)
        self._stream, self._path, self._table = stream, given.path, given.table
        self._declared = table_schema(stream, [column.name for column in stream.columns])

    def prepare(self) -> None:
        """Make file and table if they are not there.

        Raises ``ConnectorError`` where the file cannot be opened, or the table has other columns, types or keys.
        """
        with self._opened(f"table {self._table} of {self._shown} cannot be written to", hint=None) as connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._made()}")
            names = self._names(connection)
            try:
                connection.register(_CHANGES, self._declared.append(pa.field(TP_DELTA, pa.int8())).empty_table())
                connection.execute(f"EXPLAIN {self._upsert(names)}")
            except duckdb.BinderException as error:
                if "conflict target" not in str(error):
                    raise
                key = ", ".join(self._stream.primary_key)
                raise ConnectorError(
                    f"table {self._table} has no primary key or unique index over ({key}), which upserts need",
                    hint="add one, or declare the key that the table has",
                ) from None

    def write(self, rows: pa.Table, batch_id: int) -> None:
        """Write a batch, which may have been written before; raises ``ConnectorError`` for several rows of a key."""
        changes = net_changes(rows, self._stream)
        if not changes.num_rows:
            return
        with self._opened(f"batch {batch_id} could not be written to table {self._table} of {self._shown}") as database:
            names = self._names(database)
            database.register(_CHANGES, changes)
            database.begin()
            database.execute(self._delete(names))
            database.execute(self._upsert(names))
            database.commit()

    @property
    def _shown(self) -> str:
        return masked_value("path", self._path)

    def _made(self) -> str:
        columns = ", ".join(f"{column_sql(field.name)} {_type_of(field.type)}" for field in self._declared)
        key = ", ".join(map(column_sql, self._stream.primary_key))
        return f"{table_sql(self._table)} ({columns}, PRIMARY KEY ({key}))"

    def _names(self, connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
        """Return the table's own name of each declared column."""
        types = {name: kind for name, kind, *_ in connection.sql(f"DESCRIBE {table_sql(self._table)}").fetchall()}
        names = {}
        for field in self._declared:
            actual = same_name(field.name, types)
            if actual is None:
                raise ConnectorError(
                    f"table {self._table} has no column {field.name}, which {self._stream.name} declares",
                    hint=did_you_mean(field.name, list(types)),
                )
            if not _takes(types[actual], field.type):
                raise ConnectorError(
                    f"column {actual} of table {self._table} is {types[actual]}: it does not take every {field.type}",
                    hint=f"declare in {self._stream.name} the type that the table has; the query's values are cast to"
                    " it",
                )
            names[field.name] = actual
        return names

    def _delete(self, names: Mapping[str, str]) -> str:
        # as bytes, because a column's collation may take different texts for equal
        same = " AND ".join(
            f"encode(CAST(old.{column_sql(names[key])} AS VARCHAR)) = encode(given.{column_sql(key)})"
            if pa.types.is_string(self._declared.field(key).type)
            else f"old.{column_sql(names[key])} = given.{column_sql(key)}"
            for key in self._stream.primary_key
        )
        where = f"{same} AND given.{TP_DELTA} < 0"
        return f"DELETE FROM {table_sql(self._table)} AS old USING {_CHANGES} AS given WHERE {where}"

    def _upsert(self, names: Mapping[str, str]) -> str:
        key = self._stream.primary_key
        into = ", ".join(column_sql(names[field.name]) for field in self._declared)
        given = ", ".join(column_sql(field.name) for field in self._declared)
        target = ", ".join(column_sql(names[name]) for name in key)
        replaced = [column_sql(names[field.name]) for field in self._declared if field.name not in key]
        update = ", ".join(f"{each} = excluded.{each}" for each in replaced)
        return (
            f"INSERT INTO {table_sql(self._table)} AS kept ({into}) SELECT {given} FROM {_CHANGES} WHERE {TP_DELTA} > 0"
            f" ON CONFLICT ({target}) DO {f'UPDATE SET {update}' if update else 'NOTHING'}"
        )

    @contextmanager
    def _opened(self, what: str, hint: str | None = WRITES_ANEW) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with opened(resolve(self._path), read_only=False) as connection:
                yield connection
        except FileInUseError as error:
            raise SinkOutageError(f"{what}: {error}", waits_for=f"{self._shown}: {error}", hint=hint) from None
        except duckdb.Error as error:
            raise ConnectorError(f"{what}: {first_line(error)}", hint=hint) from None


def _type_of(declared: pa.DataType) -> str:
    """Return the type of a column that is made; raises ``ConfigError`` for arrays, maps and structs."""
    if pa.types.is_decimal(declared):
        return f"DECIMAL({declared.precision}, {declared.scale})"
    if pa.types.is_timestamp(declared):
        return "TIMESTAMP" if declared.tz is None else "TIMESTAMP WITH TIME ZONE"
    found = next((kind for belongs, kind in _TYPE_OF if belongs(declared)), None)
    if found is None:
        raise ConfigError(f"duckdb takes no column of type {declared}", hint="leave the column out, or CAST it")
    return found


def _takes(actual: str, declared: pa.DataType) -> bool:
    """Return whether a column keeps every value as it is, or refuses it."""
    same = _type_of(declared)
    if actual == same:
        return True
    if pa.types.is_integer(declared):
        return actual in _WHOLE
    if pa.types.is_decimal(declared):
        scale = actual.removeprefix("DECIMAL(").removesuffix(")").rpartition(",")[2]
        return actual.startswith("DECIMAL(") and int(scale) >= declared.scale
    if pa.types.is_string(declared):
        return actual.startswith("ENUM(")
    return same == "FLOAT" and actual == "DOUBLE"
