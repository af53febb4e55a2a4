"""Segments that DuckDB's memory has no room for lie in its file, and go when they are dropped."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.state.disk_tables import is_on_disk
from watersmeet.state.segments import Segment
from watersmeet.state.table_room import TableRoom
from watersmeet.state.working_sets import WorkingSets

PLAIN, LIST, STRUCT = pa.int64(), pa.list_(pa.string()), pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int32()))])
MAP = pa.map_(pa.string(), pa.int64())


def table(types: list[pa.DataType], rows: int) -> pa.Table:
    return pa.table({f"c{number}": pa.nulls(rows, type) for number, type in enumerate(types)})


@pytest.mark.parametrize(
    ("types", "most"),
    [([PLAIN], 80), ([PLAIN] * 2, 40), ([LIST], 26), ([STRUCT], 16), ([MAP], 16)],
    ids=["plain", "two", "list", "struct", "map"],
)
def test_a_table_of_many_columns_is_too_wide_to_be_filled(types: list[pa.DataType], most: int) -> None:
    room = TableRoom(4 * 300_000 * 80)
    assert room.take("fits", table(types * most, 10))
    assert not room.take("too wide", table(types * (most + 1), 10))


def test_what_is_never_spilled_takes_a_quarter() -> None:
    room = TableRoom(4 * 2_000_000)
    lists = table([LIST], 1_000_000)
    assert [name for name in range(20) if room.take(str(name), lists)] == list(range(7))
    assert room.take("plain", table([PLAIN], 30_000))
    room.give_back("3")
    room.give_back("3")
    assert room.take("again", lists)
    assert not room.take("one more", lists)


def test_nested_segments_are_on_disk_once_they_would_stay_in_memory() -> None:
    sets = WorkingSets(keyed_bytes=1 << 20, table_bytes=40_000_000)
    held = sets.get("q", "0")
    rows = pa.table({"$t": range(10_000), **{f"c{n}": [[{"x": i + n}] for i in range(10_000)] for n in range(6)}})
    segments = [Segment(str(number), "left", rows.num_rows, rows.nbytes, 0, 10_000, 1) for number in range(20)]
    for segment in segments:
        held.add(segment, rows)
    on_disk = [is_on_disk(held._tables[segment.id]) for segment in segments]
    assert on_disk[0] is False
    assert on_disk[-1] is True
    assert held.disk_bytes == sum(on_disk) * rows.nbytes
    assert held.query(f"SELECT count(*) AS n, sum(c5[1].x) AS s FROM {held.scan('left')}").to_pylist() == [
        {"n": 200_000, "s": 20 * sum(range(5, 10_005))}
    ]
    assert held.read(segments[-1:]).num_rows == 10_000
    for segment in segments:
        held.remove(segment.id)
    assert sets._table_room is not None
    assert sets._table_room._left == sets._table_room._most
