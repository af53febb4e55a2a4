"""CREATE INDEX and DROP INDEX: columns by which rows of changing streams are looked up."""

from __future__ import annotations

from watersmeet.catalog.streams import Index, StreamDef
from watersmeet.errors import BindError, CatalogError, did_you_mean
from watersmeet.sql.statements import CreateIndex, DropIndex


def with_index(stream: StreamDef, statement: CreateIndex) -> StreamDef:
    """Return the stream with one more index; the same stream if it has that index already.

    Raises ``BindError`` for unknown columns and streams without a primary key, ``CatalogError`` if another index has
    the name.
    """
    if stream.outside:
        raise BindError(
            f"{stream.name} is an external table: lookups use its own indexes",
            hint="create the index in the external system",
            position=statement.position,
        )
    if not stream.changes:
        raise BindError(
            f"{stream.name} has no PRIMARY KEY: its rows are looked up only by join keys, which needs no index",
            hint="leave it out, or give the stream a PRIMARY KEY and a mode",
            position=statement.position,
        )
    columns = []
    for wanted in statement.columns:
        if (column := stream.column(wanted)) is None:
            raise BindError(
                f"{stream.name} has no column {wanted}",
                hint=did_you_mean(wanted, [each.name for each in stream.columns]),
                position=statement.columns_positions.get(wanted, statement.position),
            )
        columns.append(column.name)
    index = Index(name=statement.name, columns=tuple(dict.fromkeys(columns)))
    known = _named(stream, statement.name)
    if known is not None and (known.columns == index.columns or statement.if_not_exists):
        return stream
    if known is not None:
        raise CatalogError(
            f"{stream.name} has an index {known.name} already, on ({', '.join(known.columns)})",
            hint=f"use another name, or DROP INDEX {known.name} ON {stream.name} first",
            position=statement.position,
        )
    return stream.model_copy(update={"indexes": (*stream.indexes, index)})


def without_index(stream: StreamDef, statement: DropIndex) -> StreamDef:
    """Return the stream without an index; ``CatalogError`` if it has none of that name."""
    known = _named(stream, statement.name)
    if known is None and not statement.if_exists:
        raise CatalogError(
            f"{stream.name} has no index {statement.name}",
            hint=did_you_mean(statement.name, [index.name for index in stream.indexes]),
            position=statement.position,
        )
    return stream.model_copy(update={"indexes": tuple(index for index in stream.indexes if index is not known)})


def _named(stream: StreamDef, name: str) -> Index | None:
    return next((index for index in stream.indexes if index.name.lower() == name.lower()), None)
