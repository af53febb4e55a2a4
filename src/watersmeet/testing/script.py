"""The script of a case: CREATE STREAM, TABLE and INDEX statements, then one query."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.bind.define import define_stream, define_table
from watersmeet.bind.indexes import with_index
from watersmeet.bind.insert_target import check_query
from watersmeet.bind.statement import bind
from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.errors import CatalogError, UnsupportedError, did_you_mean
from watersmeet.lookup.tables import table_options
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateIndex, CreateStream, CreateTable, InsertSelect, Query, Select


def load_script(script: str) -> tuple[dict[str, StreamDef], Query]:
    """Return the streams that a script creates, by lower-case name, and its one query, which comes last.

    Connectors and options are checked as the session checks them.  Raises the errors of the SQL front end, and
    ``UnsupportedError`` for any other statement, a second query, or a script without a query.
    """
    streams: dict[str, StreamDef] = {}
    query: Query | None = None
    for statement in parse(script):
        if query is not None:
            raise UnsupportedError(
                "a test has one query, and nothing may follow it",
                hint="CREATE STREAM statements come first; write another case for a second query",
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
            case CreateStream(query=found):
                _check_derived(statement)
                query = found
            case Select(query=found):
                query = found
            case InsertSelect(query=found):
                _check_insert(statement, streams)
                query = found
            case _:
                raise UnsupportedError(
                    "a test takes CREATE STREAM, TABLE and INDEX statements and one query", position=statement.position
                )
    if query is None:
        raise UnsupportedError("a test needs a query after its CREATE STREAM statements")
    return streams, query


def _defined(statement: CreateStream | CreateTable) -> StreamDef:
    if isinstance(statement, CreateStream):
        stream = define_stream(statement)
        _check_connector(stream, statement)
        return stream
    table = define_table(statement)
    table_options(table)
    return table


def _check_connector(stream: StreamDef, statement: CreateStream) -> None:
    if stream.connector == EMBEDDED and not stream.options:
        return
    # Importing the connectors takes a second, because they import PySpark.
    from watersmeet.session.streams import check_connector

    check_connector(stream, statement)


def _check_derived(statement: CreateStream) -> None:
    """Check the connector and the options of CREATE STREAM ... AS, before its columns are known."""
    options = dict(statement.options)
    connector = options.pop("connector", EMBEDDED)
    _check_connector(StreamDef(name=statement.name, columns=(), connector=connector, options=options), statement)


def _check_insert(statement: InsertSelect, streams: Mapping[str, StreamDef]) -> None:
    target = streams.get(statement.stream.lower())
    if target is None:
        known = [stream.name for stream in streams.values()]
        raise CatalogError(
            f"there is no stream {statement.stream}",
            hint=did_you_mean(statement.stream, known),
            position=statement.position,
        )
    check_query(target, bind(statement.query, streams), statement)
