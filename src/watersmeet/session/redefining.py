"""The definitions of a job that replaces another: streams may get columns, wider types, fewer columns, other sinks.

They count while the job is planned, and are written to the catalogue when its queries have been replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from sqlglot import exp

from watersmeet.bind.define import define_stream, define_table
from watersmeet.bind.indexes import with_index, without_index
from watersmeet.catalog.catalog import is_same
from watersmeet.catalog.streams import EMBEDDED, StreamDef
from watersmeet.errors import CatalogError, Position
from watersmeet.expressions.arrow_types import arrow_type
from watersmeet.plan.replacing import is_wider
from watersmeet.session.streams import Streams, check_connector
from watersmeet.sql.statements import CreateIndex, CreateStream, CreateTable, DropIndex

Definition = CreateStream | CreateTable | CreateIndex | DropIndex


class Redefinitions:
    """What the statements of a job define otherwise than the catalogue, by lower-case name."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._new: list[CreateStream | CreateTable] = []
        self.changed: dict[str, StreamDef] = {}
        self.positions: dict[str, Position] = {}

    def take(self, statement: Definition) -> None:
        """Take a definition; ``CatalogError`` if the rows that an embedded stream stores would not fit it."""
        known = self._streams.by_name()
        if isinstance(statement, CreateIndex | DropIndex):
            stream = self._streams.require(statement.stream, statement)
            found = (
                with_index(stream, statement)
                if isinstance(statement, CreateIndex)
                else without_index(stream, statement)
            )
            self._take(found, stream, statement)
            return
        if isinstance(statement, CreateStream):
            found = define_stream(statement)
            check_connector(found, statement)
        else:
            found = define_table(statement)
        before = known.get(found.name.lower())
        if before is None:
            self._new.append(statement)
        elif not is_same(before, found):
            found = found.model_copy(update={"indexes": before.indexes})
        else:
            return
        self._take(found, before, statement)

    def _take(self, found: StreamDef, before: StreamDef | None, statement: Definition) -> None:
        if before == found:
            return
        if before is not None and before.derived:
            raise CatalogError(
                f"{before.name} is fed by its own query (CREATE STREAM … AS), and was no stream of its own",
                hint="use another name",
                position=statement.position,
            )
        if before is not None and EMBEDDED in (before.connector, found.connector):
            kept = before.model_copy(update={"indexes": found.indexes, "definition": found.definition})
            if kept != found:
                raise CatalogError(
                    f"{before.name} is stored in the workspace, with the columns that it was created with",
                    hint="create a stream of another name, and let the job use that",
                    position=statement.position,
                )
        self.changed[found.name.lower()] = found
        self.positions[found.name.lower()] = statement.position
        self._streams.redefine(self.changed)

    def feed(self, stream: StreamDef, statement: CreateStream) -> None:
        """Take the new text of a stream that its own query feeds."""
        self.changed[stream.name.lower()] = stream
        self.positions[stream.name.lower()] = statement.position
        self._streams.redefine(self.changed)

    def commit(self) -> None:
        """Write all of it to the catalogue."""
        self._streams.redefine({})
        for statement in self._new:
            if isinstance(statement, CreateStream):
                self._streams.create(statement)
            else:
                self._streams.create_table(statement)
        new = {statement.name.lower() for statement in self._new}
        for name, stream in self.changed.items():
            if name not in new:
                self._streams.catalog.replace(stream)

    def lines(self, known: Callable[[str], StreamDef | None]) -> Iterator[str]:
        """What differs, for people."""
        for name, stream in self.changed.items():
            if (before := known(name)) is None:
                yield f"{stream.kind} {stream.name} is new"
                continue
            if is_same(before, stream):
                continue
            changes = list(column_changes(before, stream))
            yield f"{stream.kind} {stream.name}: {'; '.join(changes) or 'its options or clauses differ'}"


def column_changes(before: StreamDef, after: StreamDef) -> Iterator[str]:
    """What differs of the columns of a stream."""
    for column in before.columns:
        now = after.column(column.name)
        if now is None:
            yield f"{column.name} is dropped"
        elif now.type != column.type:
            wider = "wider" if is_wider(_arrow(column.type), _arrow(now.type)) else "another type"
            yield f"{column.name} was {column.type}, is {now.type} ({wider})"
    for column in after.columns:
        if before.column(column.name) is None:
            yield f"{column.name} {column.type} is added"


def dropped_columns(before: StreamDef, after: StreamDef) -> list[str]:
    """The columns that a stream no longer has."""
    return [column.name for column in before.columns if after.column(column.name) is None]


def _arrow(type: str) -> pa.DataType:
    return arrow_type(exp.DataType.build(type, dialect="spark"))
