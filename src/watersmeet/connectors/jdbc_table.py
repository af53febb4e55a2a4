"""The table of a stream of ``jdbc``: how it must be, and the statements that write to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.lookup.jdbc import same_name
from watersmeet.lookup.jdbc_types import fits, python_type
from watersmeet.lookup.tables import table_schema

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.types import TypeEngine


def described(stream: StreamDef, name: str, connection: sa.Connection) -> sa.Table:
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


def upsert(table: sa.Table, stream: StreamDef, dialect: str, rows: sa.Select[Any] | None = None) -> sa.Insert:
    """Return the statement that inserts rows or replaces those of their keys: rows given one by one, or selected."""
    from sqlalchemy.dialects import postgresql, sqlite

    # both have the same methods but no common type
    statement: Any = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    if rows is not None:
        statement = statement.from_select(list(table.c), rows)
    key = key_of(table, stream)
    replaced = {each.key: statement.excluded[each.key] for each in table.c if each not in key}
    if not replaced:
        return statement.on_conflict_do_nothing(index_elements=key)  # type: ignore[no-any-return]
    return statement.on_conflict_do_update(index_elements=key, set_=replaced)  # type: ignore[no-any-return]


def delete(table: sa.Table, stream: StreamDef) -> sa.Delete:
    """Return the statement that deletes the row of a key."""
    import sqlalchemy as sa

    return sa.delete(table).where(*(each == sa.bindparam(each.key, type_=each.type) for each in key_of(table, stream)))


def key_of(table: sa.FromClause, stream: StreamDef) -> list[sa.ColumnElement[Any]]:
    """Return the key's columns of a table with a column ``c0``, ``c1``, … for each of the stream's."""
    names = [column.name for column in stream.columns]
    return [table.c[f"c{names.index(name)}"] for name in stream.primary_key]
