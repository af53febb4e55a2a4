"""Queries over stored rows: the streams that they read, and their EXPLAIN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from watersmeet.catalog.streams import FRAME, StreamDef
from watersmeet.errors import CatalogError, UnsupportedError, did_you_mean
from watersmeet.sql.statements import HistoricalQuery, Relation
from watersmeet.sql.table_queries import spark_text


def stored_streams(query: HistoricalQuery, streams: Mapping[str, StreamDef]) -> dict[str, StreamDef]:
    """Return the streams that the query reads as ``table(name)``, by lower-case name.

    Raises ``CatalogError`` with the nearest names if there is no such stream, and ``UnsupportedError`` for external
    tables, registered DataFrames, and streams in the query without ``table()``.
    """
    found: dict[str, StreamDef] = {}
    for table in query.tables:
        stream = _stored_stream(table, streams)
        found[stream.name.lower()] = stream
    for other in query.others:
        if (running := streams.get(other.name.lower())) is not None:
            raise _mixed(running, query, other)
    return found


def explain_stored(query: HistoricalQuery, streams: Mapping[str, StreamDef], target: StreamDef | None = None) -> str:
    """Return the text of EXPLAIN; raises like ``stored_streams``."""
    return "\n".join(_lines(query, stored_streams(query, streams), target))


def _stored_stream(table: Relation, streams: Mapping[str, StreamDef]) -> StreamDef:
    stream = streams.get(table.name.lower())
    if stream is None:
        known = [each.name for each in streams.values() if not each.outside]
        raise CatalogError(
            f"there is no stream {table.name}", hint=did_you_mean(table.name, known), position=table.position
        )
    if stream.outside:
        raise UnsupportedError(
            f"{stream.name} is an external table: table(…) reads the stored rows of a stream",
            hint=f"join a stream with it: JOIN {stream.name} FOR SYSTEM_TIME AS OF PROCTIME()",
            position=table.position,
        )
    if stream.connector == FRAME:
        raise UnsupportedError(
            f"{stream.name} is a registered DataFrame: it has no stored rows",
            hint="write it to a stream (INSERT INTO … SELECT), or query it with Spark",
            position=table.position,
        )
    return stream


def _mixed(stream: StreamDef, query: HistoricalQuery, place: Relation) -> UnsupportedError:
    stored = f"table({query.tables[0].name})"
    if stream.outside:
        return UnsupportedError(
            f"{stream.name} is an external table: {stored} is stored, and only streams look up in one",
            hint=f"leave out table( ), and join {stream.name} FOR SYSTEM_TIME AS OF PROCTIME()",
            position=place.position,
        )
    return UnsupportedError(
        f"{stream.name} is a stream whose rows come as the query runs, but {stored} is what is stored now: one query"
        " takes either",
        hint=f"write table({stream.name}), or leave out table( ): a stream joins a table FOR SYSTEM_TIME AS OF a time",
        position=place.position,
    )


def _lines(query: HistoricalQuery, found: Mapping[str, StreamDef], target: StreamDef | None) -> Iterator[str]:
    yield "Spark batch query over the rows stored now: it ends by itself and keeps no state"
    views = {key: f"watersmeet_{key}" for key in found}
    for key, stream in found.items():
        yield f"table {stream.name} ({stream.connector}), for Spark the view {views[key]}…"
        yield f"  {_rows(stream)}"
        yield "  without bad rows, which streaming queries quarantine"
    if target is not None:
        yield f"writes its rows to {target.name} ({target.connector}), once"
    yield f"Spark SQL: {spark_text(query, views).text}"


def _rows(stream: StreamDef) -> str:
    if not stream.changes:
        return "all rows"
    key = ", ".join(stream.primary_key)
    return (
        f"of each {key} the newest row by {stream.time_column}, of one time the last in its source; "
        "none where that is a delete"
    )
