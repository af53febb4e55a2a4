"""Rows as the text that PostgreSQL's COPY takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

if TYPE_CHECKING:
    import sqlalchemy as sa

# NULL is the only value without quotes
_AS_CSV = pa.csv.WriteOptions(include_header=False, quoting_style="all_valid")


def copy_rows(rows: pa.Table, table: sa.Table, connection: sa.Connection) -> None:
    """Copy rows into a table that has their columns in this order; raises ``DBAPIError`` as a statement does."""
    import psycopg
    import sqlalchemy as sa
    from psycopg import sql

    text = csv_of(rows)
    command = sql.SQL("COPY {} FROM STDIN WITH (FORMAT csv, ENCODING 'UTF8')").format(
        sql.Identifier(str(table.schema), table.name)
    )
    line = connection.connection.driver_connection
    assert isinstance(line, psycopg.Connection)
    try:
        with line.cursor() as cursor:
            _require_no_nul(rows)
            with cursor.copy(command) as copy:
                copy.write(text)
    except psycopg.Error as error:
        has_ended = connection.dialect.is_disconnect(error, line, None)  # type: ignore[arg-type]
        if has_ended:
            connection.invalidate()
        raise sa.exc.DBAPIError.instance(
            *("COPY", None, error, psycopg.Error, True),
            connection_invalidated=has_ended,
            dialect=connection.dialect,
        ) from None


def csv_of(rows: pa.Table) -> bytes:
    """Return rows as lines of CSV in UTF-8."""
    out = pa.BufferOutputStream()
    texts = pa.table([_texts(column) for column in rows.columns], names=rows.column_names)
    pa.csv.write_csv(texts, out, _AS_CSV)
    return bytes(out.getvalue())


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_binary(values.type):
        return pa.chunked_array(
            [[None if each is None else rf"\x{each.hex()}" for each in values.to_pylist()]], "string"
        )
    if pa.types.is_floating(values.type):
        # the shortest text of a FLOAT is another number as a double precision
        values = values.cast(pa.float64())
    return values.cast(pa.string())


def _require_no_nul(rows: pa.Table) -> None:
    """Raise what psycopg raises for values that it sends one by one."""
    import psycopg

    for column in rows.columns:
        if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, "\0")).as_py():
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
