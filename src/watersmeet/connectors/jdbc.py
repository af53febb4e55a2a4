"""The ``jdbc`` connector: a table of a database as a sink, through SQLAlchemy.

A batch is one transaction of upserts and deletes by key, so writing it again changes nothing. The table must exist,
with a unique index over the key; it is inspected before a query starts. The driver writes, so workers need no access
to the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.connector import SinkConnector, WriteBatch, Writing
from watersmeet.connectors.jdbc_failures import NoAnswerError, failure, in_time, is_tried_at_once
from watersmeet.connectors.net_changes import collected, net_changes, require_columns_of_table
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.errors import ConfigError, ConnectorError, did_you_mean
from watersmeet.lookup.connections import Address, engine_of, require_packages
from watersmeet.lookup.jdbc import same_name
from watersmeet.lookup.jdbc_types import fits, python_type
from watersmeet.lookup.table_options import DatabaseOptions, parse_table_options
from watersmeet.lookup.tables import table_schema
from watersmeet.runtime.real_time.operator_task import EPOCH
from watersmeet.runtime.real_time.sinks import LiveSink, written_by_workers
from watersmeet.settings.durations import seconds

if TYPE_CHECKING:
    import sqlalchemy as sa
    from pyspark.sql import DataFrame
    from sqlalchemy.types import TypeEngine

_DATABASES = ("postgresql", "sqlite")
_CHUNK = 2_000
"""Rows per call of the driver."""


class JdbcSinkOptions(DatabaseOptions):
    """The WITH options of a table that results are written to."""

    timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds that a statement with some of a batch's rows, or making a connection, may take: ``'60 seconds'``."""

    @field_validator("timeout", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        return seconds(value)


def options_of(options: Mapping[str, str]) -> JdbcSinkOptions:
    """Return the checked options of a WITH clause; raises ``ConfigError`` for missing, unknown or wrong ones."""
    given = parse_table_options(JdbcSinkOptions, "jdbc", options)
    database = given.url.split(":")[1]
    if database not in _DATABASES:
        raise ConfigError(
            f"jdbc writes to {' and '.join(_DATABASES)}, not to {database}",
            hint="for another database, write a changelog that a program can apply to it: kafka, or files"
            " WITH (changelog = 'true')",
            option="url",
        )
    return given


class JdbcConnector(SinkConnector):
    """A sink that keeps the newest row of each PRIMARY KEY in a table of PostgreSQL or SQLite.

    ``url`` is the database (``jdbc:postgresql://host:port/database``), ``table`` an existing table with a unique index
    over the key, ``user`` and ``password`` the login (by reference to a secret). ``timeout`` is the longest that a
    statement or a connection attempt may take (default ``'60 seconds'``).
    """

    name = "jdbc"
    model = JdbcSinkOptions
    changelogs = (Changelogs.BY_KEY,)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options, a column ``_tp_delta`` and a stream without a primary key."""
        options_of(stream.options)
        require_columns_of_table(stream)
        if not stream.changes:
            raise ConfigError(
                f"{stream.name} has no PRIMARY KEY: a batch written again, as after a failure, would double its rows",
                hint="CREATE MUTABLE STREAM … PRIMARY KEY (…) WITH (connector = 'jdbc', …), and INSERT INTO it",
            )

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what writes a batch; raises as ``open_table`` does."""
        sink = open_table(writing.stream)

        def write(frame: DataFrame, batch_id: int, _key: str) -> None:
            rows = collected(frame)
            writing.tried(lambda: sink.write(rows, batch_id))

        return write

    def open_live_sink(self, writing: Writing) -> LiveSink:
        """Return what writes rows as they come, from the tasks that make them; raises as ``open_table`` does."""
        open_table(writing.stream)
        write = partial(_write_live, writing.stream)
        return LiveSink(lambda rows, run: written_by_workers(rows, write))


@dataclass(frozen=True, slots=True)
class JdbcSink:
    """The table of a stream and its statements; columns are ``c0``, ``c1``, … in declared order."""

    stream: StreamDef
    address: Address
    upsert: sa.Insert
    delete: sa.Delete

    def write(self, rows: pa.Table, batch_id: int) -> None:
        """Write a batch, which may have been written before.

        Raises ``SinkOutageError`` where the database is down or hangs, and ``ConnectorError`` where it refuses, and for
        several rows of a key.
        """
        import sqlalchemy as sa

        changes = net_changes(rows, self.stream)
        for last in (False, True):
            try:
                self._transact(changes)
                return
            except (sa.exc.SQLAlchemyError, NoAnswerError) as error:
                if last or not is_tried_at_once(error):
                    what = f"batch {batch_id} could not be written to {_named(self.stream)}"
                    failed = failure(what, error, self.address)
                    failed.hint = "fix the cause and run the query again: it writes the batch anew"
                    raise failed from None

    def _transact(self, changes: pa.Table) -> None:
        if not changes.num_rows:
            return
        names = [column.name for column in self.stream.columns]
        gone = pc.less(changes[TP_DELTA], 0)
        work: list[tuple[Any, pa.Table]] = [
            (self.delete, changes.filter(gone).select(self.stream.primary_key)),
            (self.upsert, changes.filter(pc.invert(gone)).select(names)),
        ]
        keys = {name: f"c{number}" for number, name in enumerate(names)}
        with engine_of(self.address).connect() as connection, connection.begin() as transaction:
            for statement, rows in work:
                rows = rows.rename_columns([keys[name] for name in rows.column_names])
                for start in range(0, rows.num_rows, _CHUNK):
                    with in_time(connection, self.address):
                        connection.execute(statement, rows.slice(start, _CHUNK).to_pylist())
            with in_time(connection, self.address):
                transaction.commit()


def _write_live(stream: StreamDef, rows: pa.Table) -> None:
    """Write rows that have come together, in a task."""
    epoch = rows[EPOCH][0].as_py()
    _opened(stream.model_dump_json()).write(rows.drop_columns([EPOCH]), epoch)


@cache
def _opened(definition: str) -> JdbcSink:
    return open_table(StreamDef.model_validate_json(definition))


def open_table(stream: StreamDef) -> JdbcSink:
    """Inspect the table of a stream and return it as a sink.

    Raises ``ConnectorError`` where it cannot be reached, does not exist, or has other columns, types or keys.
    """
    require_packages()
    import sqlalchemy as sa

    given = options_of(stream.options)
    address = Address(given.url, given.user, given.password, given.timeout, read_only=False)
    try:
        with engine_of(address).connect() as connection, in_time(connection, address):
            table = _described(stream, given.table, connection)
            return JdbcSink(stream, address, _upsert(table, stream, connection.dialect.name), _delete(table, stream))
    except (sa.exc.SQLAlchemyError, NoAnswerError) as error:
        raise failure(f"{_named(stream)} cannot be written to", error, address) from None


# -- the table ---------------------------------------------------------------------------------------------------------


def _described(stream: StreamDef, name: str, connection: sa.Connection) -> sa.Table:
    """Return the table with the declared columns, under the table's own names and types."""
    import sqlalchemy as sa

    *schema, base = name.split(".")
    place = (base, schema[0] if schema else None)
    known = sa.inspect(connection)
    try:
        found = {each["name"]: each["type"] for each in known.get_columns(*place)}
    except sa.exc.NoSuchTableError:
        raise ConnectorError(
            f"the database has no table {name} for {stream.name} to be written to",
            hint="create it first, with a primary key; or correct the option table, or grant the user access to it",
        ) from None
    columns: dict[str, sa.Column[Any]] = {}
    for field in table_schema(stream, [column.name for column in stream.columns]):
        actual = same_name(field.name, found)
        if actual is None:
            raise ConnectorError(
                f"table {name} has no column {field.name}, which {stream.name} declares",
                hint=did_you_mean(field.name, found),
            )
        if not fits(field.type, found[actual]) or _loses(field.type, found[actual], connection.dialect.name):
            raise ConnectorError(
                f"column {actual} of table {name} is {found[actual]!s}: it does not take every {field.type}",
                hint=f"declare in {stream.name} the type that the table has; the query's values are cast to it",
            )
        columns[field.name] = sa.Column(actual, found[actual], key=f"c{len(columns)}", quote=True)
    _require_unique(name, [columns[each].name for each in stream.primary_key], _unique_sets(known, *place))
    return sa.Table(place[0], sa.MetaData(), *columns.values(), schema=place[1], quote=True, quote_schema=True)


def _loses(declared: pa.DataType, actual: TypeEngine[Any], dialect: str) -> bool:
    """Return whether the database would silently round a value."""
    import sqlalchemy as sa

    if pa.types.is_decimal(declared):
        if isinstance(actual, sa.Integer):
            return bool(declared.scale > 0)
        scale = getattr(actual, "scale", None)
        return dialect == "sqlite" or (scale is not None and scale < declared.scale)
    if pa.types.is_floating(declared):
        # PostgreSQL keeps only 15 digits of a double in a numeric column
        return python_type(actual) is not float or (isinstance(actual, sa.REAL) and declared == pa.float64())
    if pa.types.is_timestamp(declared):
        return (getattr(actual, "precision", None) or 6) < 6
    return False


def _unique_sets(known: sa.Inspector, name: str, schema: str | None) -> Iterator[set[str | None]]:
    """Return the sets of columns that are unique in the table."""
    yield set(known.get_pk_constraint(name, schema)["constrained_columns"])
    for constraint in known.get_unique_constraints(name, schema):
        yield set(constraint["column_names"])
    for index in known.get_indexes(name, schema):
        partial = index.get("dialect_options", {}).keys() & {"postgresql_where", "sqlite_where"}
        if index["unique"] and not partial:
            yield set(index["column_names"])


def _require_unique(table: str, key: Sequence[str], unique: Iterator[set[str | None]]) -> None:
    if not any(each == set(key) for each in unique):
        shown = ", ".join(key)
        raise ConnectorError(
            f"table {table} has no primary key or unique index over ({shown}), which upserts need",
            hint=f"ALTER TABLE {table} ADD PRIMARY KEY ({shown}), or declare the key that the table has",
        )


# -- statements --------------------------------------------------------------------------------------------------------


def _upsert(table: sa.Table, stream: StreamDef, dialect: str) -> sa.Insert:
    from sqlalchemy.dialects import postgresql, sqlite

    # both have the same methods but no common type
    statement: Any = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    names = [column.name for column in stream.columns]
    key = [table.c[f"c{names.index(name)}"] for name in stream.primary_key]
    replaced = {each.key: statement.excluded[each.key] for each in table.c if each not in key}
    if not replaced:
        return statement.on_conflict_do_nothing(index_elements=key)  # type: ignore[no-any-return]
    return statement.on_conflict_do_update(index_elements=key, set_=replaced)  # type: ignore[no-any-return]


def _delete(table: sa.Table, stream: StreamDef) -> sa.Delete:
    import sqlalchemy as sa

    names = [column.name for column in stream.columns]
    key = [table.c[f"c{names.index(name)}"] for name in stream.primary_key]
    return sa.delete(table).where(*(each == sa.bindparam(each.key, type_=each.type) for each in key))


def _named(stream: StreamDef) -> str:
    """Return how messages name the table of a stream."""
    return f"table {stream.options['table']}"
