"""The table of a stream of ``jdbc``: how it must be, and the statements that write to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import same_name
from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.lookup.databases.database import Database
from watersmeet.lookup.jdbc_types import fits, python_type
from watersmeet.lookup.tables import table_schema

if TYPE_CHECKING:
    import sqlalchemy as sa

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
#: The parameter of a delete that has the keys.
KEYS = "keys"


def described(stream: StreamDef, name: str, database: Database, connection: sa.Connection) -> sa.Table:
    """Return the table with the declared columns, under the table's own names and types; ``c0``, ``c1``, … are keys.

    Raises ``ConnectorError`` where it does not exist, or has other columns, types or keys.
    """
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
        kind = database.column_type(found[actual], field.type)
        if not fits(field.type, kind) or database.rounds(field.type, kind):
            raise ConnectorError(
                f"column {actual} of table {name} is {found[actual]!s}: it does not take every {field.type}",
                hint=f"declare in {stream.name} the type that the table has; the query's values are cast to it",
            )
        columns[field.name] = sa.Column(actual, kind, key=f"c{len(columns)}", quote=True)
    _require_unique(name, [columns[each].name for each in stream.primary_key], _unique_sets(known, *place))
    return sa.Table(place[0], sa.MetaData(), *columns.values(), schema=place[1], quote=True, quote_schema=True)


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


def uuids_of(table: sa.Table, stream: StreamDef) -> list[str]:
    """Return the columns that the stream declares as texts, and the table has as UUIDs."""
    return [
        field.name
        for field, column in zip(table_schema(stream, [each.name for each in stream.columns]), table.c, strict=True)
        if pa.types.is_string(field.type) and python_type(column.type) is UUID
    ]


def require_uuids(changes: pa.Table, names: Sequence[str], stream: StreamDef) -> None:
    """Raise ``ConnectorError`` for a text that the database would change: two keys here could be one there."""
    for name in names:
        others = changes.filter(pc.invert(pc.match_substring_regex(changes[name], _UUID)))
        if others.num_rows:
            raise ConnectorError(
                f"a text for table {stream.options['table']} is no UUID in its usual form: {name} ="
                f" {others[name][0].as_py()!r}",
                hint="write it with small letters and hyphens, as by lower(…): the database would change it",
            )


def delete(table: sa.Table, stream: StreamDef) -> sa.Delete:
    """Return the statement that deletes the rows of ``keys``: values, or tuples where the key has several columns."""
    import sqlalchemy as sa

    key = key_of(table, stream)
    wanted: sa.BindParameter[Any] = sa.bindparam(KEYS, expanding=True)
    return sa.delete(table).where(key[0].in_(wanted) if len(key) == 1 else sa.tuple_(*key).in_(wanted))


def key_of(table: sa.FromClause, stream: StreamDef) -> list[sa.ColumnElement[Any]]:
    """Return the key's columns of a table with a column ``c0``, ``c1``, … for each of the stream's."""
    names = [column.name for column in stream.columns]
    return [table.c[f"c{names.index(name)}"] for name in stream.primary_key]
