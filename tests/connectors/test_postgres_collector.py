"""Messages of a slot as pieces, without a server: where pieces end, which transactions count, which times rows get."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.records.test_pgoutput import relation, row
from watersmeet.connectors.postgres.changes import Collector, PieceWriter, piece_schema
from watersmeet.connectors.postgres.source import end_of_batch
from watersmeet.connectors.postgres.table import Declared, Table, TableColumn
from watersmeet.errors import ConnectorError
from watersmeet.runtime.pieces import End, Pieces

_SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string())])
_DECLARED = Declared("t", _SCHEMA, ("id",), needs_whole_rows=False)
_COLUMNS = {
    "id": TableColumn("id", 23, "integer", "int4", None, False, 1),
    "v": TableColumn("v", 25, "text", "text", None, False, 2),
}
_RELATION = relation(7, "t", [("id", 23), ("v", 25)])


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    pieces = Pieces(str(tmp_path / "pieces"))
    run, token = pieces.begin(pieces.listing(), 0)
    writer = PieceWriter(pieces, run, token, 0, piece_schema(_SCHEMA.names), 10)
    return Collector(writer, Table(7, "public", "t", False, _COLUMNS), _DECLARED, position=100, time=0)


def transaction(commit: int, time: int, *changes: bytes) -> Iterator[bytes]:
    yield b"B" + struct.pack("!QqI", commit, time - 946_684_800_000_000, 1)
    yield from changes
    yield b"C" + struct.pack("!bQQq", 0, commit, commit + 10, 0)


def inserts(*ids: int, into: int = 7) -> list[bytes]:
    return [b"I" + struct.pack("!I", into) + b"N" + row([str(id), "x"]) for id in ids]


def taken(collector: Collector, *transactions: Iterator[bytes]) -> list[tuple[str, int, int]]:
    found = collector.take(each for one in transactions for each in one)
    return [(piece.end.value, piece.rows, piece.position) for piece in found]


def rows(collector: Collector) -> list[tuple[str, int]]:
    pieces = collector.writer.pieces
    return [
        (each["value:id"], each["time"])
        for piece in pieces.listing().pieces
        for each in pieces.read_rows(piece.name).to_pylist()
    ]


def test_times_never_go_back(collector: Collector) -> None:
    taken(collector, transaction(100, 50, _RELATION, *inserts(1)), transaction(200, 40, *inserts(2)))
    taken(collector, transaction(300, 30, _RELATION, *inserts(3)), transaction(400, 60, *inserts(4)))
    assert rows(collector) == [("1", 50), ("2", 50), ("3", 50), ("4", 60)]


def test_what_was_read_before_and_other_tables_do_not_count(collector: Collector) -> None:
    old, new = transaction(99, 5, _RELATION, *inserts(1)), transaction(100, 6, _RELATION, *inserts(2))
    other = transaction(500, 7, relation(8, "other", [("id", 23), ("v", 25)]), *inserts(3, into=8))
    assert taken(collector, old, new, other) == [("t", 1, 510)]
    assert rows(collector) == [("2", 6)]


def test_pieces_of_large_and_small_transactions(collector: Collector) -> None:
    first = [transaction(100 + 20 * at, 5, *([_RELATION] if not at else []), *inserts(at)) for at in range(4)]
    large = transaction(1_000, 6, *inserts(*range(100, 125)))
    found = taken(collector, *first, large, transaction(2_000, 7, *inserts(9)))
    assert found == [("t", 4, 170), ("m", 10, 170), ("m", 10, 170), ("t", 5, 1_010), ("t", 1, 2_010)]
    pieces = collector.writer.pieces.listing().pieces
    assert [end_of_batch(pieces, begin, 5) for begin in (0, 1, 4)] == [1, 4, 5]
    assert end_of_batch(pieces, 0, None) == 5
    assert [id for id, _ in rows(collector)] == [*map(str, range(4)), *map(str, range(100, 125)), "9"]


def test_a_large_transaction_that_ends_with_a_piece_has_an_end(collector: Collector) -> None:
    assert taken(collector, transaction(100, 5, _RELATION, *inserts(*range(20))))[-1] == ("t", 0, 110)
    assert collector.writer.pieces.listing().pieces[-1].end is End.TRANSACTION


def test_nothing_is_left_of_a_transaction_that_is_refused(collector: Collector) -> None:
    truncate = b"T" + struct.pack("!ibI", 1, 0, 7)
    first = transaction(100, 5, _RELATION, *inserts(1))
    refused = list(transaction(200, 6, *inserts(*range(10, 35)), truncate))
    assert taken(collector, first, iter(refused)) == [("t", 1, 110)]
    with pytest.raises(ConnectorError, match="was truncated"):
        taken(collector, iter([refused[0], _RELATION, *refused[1:]]))
    assert rows(collector) == [("1", 5)]
    assert collector.writer.number == 1
    assert not collector.writer.pieces.listing().void


def test_a_column_that_is_gone_matters_to_new_changes_only(collector: Collector) -> None:
    other = relation(7, "t", [("id", 23)])
    assert taken(collector, transaction(50, 5, other, b"I" + struct.pack("!I", 7) + b"N" + row(["1"]))) == []
    with pytest.raises(ConnectorError, match=r"column v of table public\.t was dropped or renamed"):
        taken(collector, transaction(150, 5, other, b"I" + struct.pack("!I", 7) + b"N" + row(["1"])))
