"""The script of a case: CREATE STREAM, TABLE and INDEX statements, then one query."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.bind.define import define_stream, define_table
from watersmeet.bind.indexes import with_index
from watersmeet.bind.insert_target import check_target
from watersmeet.bind.select import bind
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import CatalogError, UnsupportedError, did_you_mean
from watersmeet.lookup.tables import table_options
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateIndex, CreateStream, CreateTable, InsertSelect, Query, Select


def load_script(script: str) -> tuple[dict[str, StreamDef], Query]:
    """The streams that a script creates, by lower-case name, and its one query, which comes last.

    Raises the errors of the SQL front end, and ``UnsupportedError`` for any other statement and for a script that has
    no query or goes on after it.
    """
    streams: dict[str, StreamDef] = {}
    query: Query | None = None
    for statement in parse(script):
        if query is not None:
            raise UnsupportedError(
                "a test has one query, and nothing comes after it",
                hint="CREATE STREAM statements come first; a second query needs a case of its own",
                position=statement.position,
            )
        match statement:
            case CreateStream(query=None) | CreateTable():
                stream = _defined(statement)
                if (known := streams.get(stream.name.lower())) is not None:
                    raise CatalogError(f"there is a {known.kind} {stream.name} already", position=statement.position)
                streams[stream.name.lower()] = stream
            case CreateIndex(stream=name):
                if (indexed := streams.get(name.lower())) is None:
                    raise CatalogError(f"there is no stream {name}", position=statement.position)
                streams[name.lower()] = with_index(indexed, statement)
            case CreateStream(query=found) | Select(query=found):
                query = found
            case InsertSelect(query=found):
                _check_insert(statement, streams)
                query = found
            case _:
                raise UnsupportedError(
                    "a test takes CREATE STREAM, TABLE and INDEX statements, and one query", position=statement.position
                )
    if query is None:
        raise UnsupportedError("a test needs a query after its CREATE STREAM statements")
    return streams, query


def _defined(statement: CreateStream | CreateTable) -> StreamDef:
    if isinstance(statement, CreateStream):
        return define_stream(statement)
    table = define_table(statement)
    table_options(table)
    return table


def _check_insert(statement: InsertSelect, streams: Mapping[str, StreamDef]) -> None:
    target = streams.get(statement.stream.lower())
    if target is None:
        known = [stream.name for stream in streams.values()]
        raise CatalogError(
            f"there is no stream {statement.stream}",
            hint=did_you_mean(statement.stream, known),
            position=statement.position,
        )
    check_target(target, [column.name for column in bind(statement.query, streams).outputs], statement)
