"""Messages of logical replication as pieces of rows: what is read from a slot until it is durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.connectors.postgres.failures import ANEW
from watersmeet.connectors.postgres.rows import Layout, Row, layout_of
from watersmeet.connectors.postgres.table import Declared, Table
from watersmeet.errors import ConnectorError
from watersmeet.records.pgoutput import Begin, Change, Commit, Relation, Truncate, parse
from watersmeet.runtime.pieces import End, Piece, Pieces

DELTA, TIME, REASON = "delta", "time", "reason"
_VALUE = "value:"
#: A piece has at most so many rows, and about so many characters.
PIECE_ROWS, _PIECE_CHARACTERS = 20_000, 8 << 20


def value_column(name: str) -> str:
    """Return the column of a piece that holds a declared column's values."""
    return _VALUE + name


def piece_schema(names: Iterable[str]) -> pa.Schema:
    """Return the columns of a piece."""
    own = [(DELTA, pa.int8()), (TIME, pa.int64()), (REASON, pa.string())]
    return pa.schema([*own, *((value_column(name), pa.string()) for name in names)])


def _size(row: Row) -> int:
    return sum(len(value) for value in row.values if value is not None)


@dataclass(slots=True)
class PieceWriter:
    """Writes pieces of rows, numbered from ``number``."""

    pieces: Pieces
    run: int
    token: str
    number: int
    schema: pa.Schema
    most: int
    rows: list[tuple[Row, int]] = field(default_factory=list)
    characters: int = 0

    def add(self, row: Row, time: int) -> None:
        """Take a row."""
        self.rows.append((row, time))
        self.characters += _size(row)

    @property
    def is_full(self) -> bool:
        """Whether the rows are enough for a piece."""
        return len(self.rows) >= self.most or self.characters >= _PIECE_CHARACTERS

    def cut(self, end: End, position: int, time: int, rows: int | None = None) -> Piece:
        """Write the first ``rows`` (None: all) as a piece."""
        taken = self.rows if rows is None else self.rows[:rows]
        self.rows = [] if rows is None else self.rows[rows:]
        self.characters = sum(map(_size, (row for row, _ in self.rows)))
        columns: list[Sequence[object]] = [
            [row.delta for row, _ in taken],
            [at for _, at in taken],
            [row.reason for row, _ in taken],
            *([row.values[place] for row, _ in taken] for place in range(len(self.schema) - 3)),
        ]
        arrays = [pa.array(values, each.type) for values, each in zip(columns, self.schema, strict=True)]
        piece = Piece(self.number, self.run, self.token, len(taken), end, position, time)
        self.pieces.write_rows(piece, pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        self.number += 1
        return piece


@dataclass(slots=True)
class Collector:
    """Turns the messages of a slot into pieces.  ``position`` and ``time`` are those of the last commit so far."""

    writer: PieceWriter
    table: Table
    declared: Declared
    position: int
    time: int
    messages: int = 0
    is_stopped: bool = False
    """Whether what comes next cannot be followed."""
    _layout: Layout | ConnectorError | None = None
    _begun: Begin | None = None
    _whole: int = 0
    """How many of the writer's rows are of transactions that have ended."""
    _amid: list[Piece] = field(default_factory=list)

    def take(self, data: Iterator[bytes]) -> list[Piece]:
        """Return the pieces that were written of whole transactions.

        What cannot be followed raises ``ConnectorError``, once nothing before it is left to be read.
        """
        written: list[Piece] = []
        try:
            for each in data:
                self.messages += 1
                written += self._take(each)
        except ConnectorError:
            self._forget_transaction()
            written += self._cut_whole()
            self.is_stopped = True
            if not written:
                raise
            return written
        return [*written, *self._cut_whole()]

    def _take(self, data: bytes) -> list[Piece]:
        message = parse(data)
        match message:
            case Begin():
                self._begun = message
                self.time = max(self.time, message.time)
            case Relation() if message.id == self.table.id:
                self._layout = self._layout_of(message)
            case Change() if message.relation == self.table.id and self._is_new:
                return self._add(message)
            case Truncate() if self.table.id in message.relations and self._is_new:
                raise ConnectorError(
                    f"table {self.table.full_name} was truncated: which rows it had is not in the server's log, so "
                    f"that {self.declared.stream} cannot retract them",
                    hint=f"{ANEW}; where the query is to go on, delete rows with DELETE",
                )
            case Commit():
                return self._end(message)
        return []

    @property
    def _is_new(self) -> bool:
        """Whether the transaction was not read before: a server that has crashed may have forgotten that it was."""
        assert self._begun is not None  # changes stand between Begin and Commit
        return self._begun.commit >= self.position

    def _add(self, change: Change) -> list[Piece]:
        assert self._layout is not None  # the server describes a relation before its first change
        if isinstance(self._layout, ConnectorError):
            raise self._layout
        for row in self._layout.rows(change):
            self.writer.add(row, self.time)
        if not self.writer.is_full:
            return []
        written = self._cut_whole()
        if self.writer.is_full:
            self._amid.append(self.writer.cut(End.AMID, self.position, self.time))
        return written

    def _layout_of(self, relation: Relation) -> Layout | ConnectorError:
        """Return the layout, or why there is none: what was read before does not need one."""
        try:
            return layout_of(relation, self.table, self.declared)
        except ConnectorError as error:
            return error

    def _end(self, commit: Commit) -> list[Piece]:
        if self._is_new:
            self.position = commit.end
        written = [*self._amid]
        is_last_of_large = bool(self._amid)
        self._amid = []
        self._whole = len(self.writer.rows)
        if is_last_of_large or self.writer.is_full:
            written += self._cut_whole(even_if_empty=is_last_of_large)
        return written

    def _cut_whole(self, *, even_if_empty: bool = False) -> list[Piece]:
        if not self._whole and not even_if_empty:
            return []
        whole, self._whole = self._whole, 0
        return [self.writer.cut(End.TRANSACTION, self.position, self.time, whole)]

    def _forget_transaction(self) -> None:
        """Forget what was taken of a transaction that has not ended."""
        self.writer.rows = self.writer.rows[: self._whole]
        self.writer.pieces.delete(piece.name for piece in self._amid)
        self.writer.number -= len(self._amid)
        self._amid = []
