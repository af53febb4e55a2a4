"""Parquet files read in the worker: the rows that Spark would read, or a clear error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.columns import SEQUENCE, TP_TIME
from watersmeet.engine import parquet_pages
from watersmeet.engine.parquet import ParquetFile, ParquetRows, evened, read_columns
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.state import freed_memory

INSTANT = pa.timestamp("us", tz="UTC")


def write(path: Path, table: pa.Table, **options: str) -> ParquetFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return ParquetFile(path.as_uri(), "p/", "")


def read(file: ParquetFile, schema: pa.Schema, root: Path, *, numbered: bool = False) -> pa.Table:
    return pa.concat_tables(replace(file, root=str(root)).read(ParquetRows(schema, numbered)))


def test_columns_by_name_and_those_that_are_missing(tmp_path: Path) -> None:
    file = write(tmp_path / "a b.parquet", pa.table({"ID": [1, 2], "other": ["x", "y"]}))
    rows = read(file, pa.schema([("late", pa.string()), ("id", pa.int64())]), tmp_path)
    assert rows.to_pylist() == [{"late": None, "id": 1}, {"late": None, "id": 2}]


def test_rows_are_numbered_through_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_pages, "_ROWS", 7)
    file = write(tmp_path / "a.parquet", pa.table({"id": range(300)}))
    rows = read(file, pa.schema([("id", pa.int64())]), tmp_path, numbered=True)
    assert rows[SEQUENCE].to_pylist() == [b"p/" + i.to_bytes(8, "big") for i in range(300)]
    assert rows["id"].to_pylist() == list(range(300))


def test_folders_named_after_columns(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("shop", pa.string())])
    table = pa.table({"id": [1], "shop": ["in the file"]})
    file = write(tmp_path / "year=1" / "Day=2026-11-21" / "shop=a%20b" / "x.parquet", table)
    (row,) = read(file, schema, tmp_path / "year=1").to_pylist()
    assert (row["id"], str(row["day"]), row["shop"]) == (1, "2026-11-21", "a b")
    file = write(tmp_path / "day=__HIVE_DEFAULT_PARTITION__" / "x.parquet", table)
    (row,) = read(file, schema, tmp_path).to_pylist()
    assert (row["day"], row["shop"]) == (None, "in the file")


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (pa.array([1, None], pa.int32()), pa.int64()),
        (pa.array([1, None], pa.int8()), pa.int32()),
        (pa.array([1.5, None], pa.float32()), pa.float64()),
        (pa.array([1, None], pa.int32()), pa.float64()),
        (pa.array(["a", "b"]).dictionary_encode(), pa.string()),
        (pa.array([1, None], pa.timestamp("ms", tz="UTC")), INSTANT),
        (pa.array([1, None], pa.timestamp("us")), INSTANT),
    ],
)
def test_what_is_widened(tmp_path: Path, stored: pa.Array, declared: pa.DataType) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"v": stored}))
    rows = read(file, pa.schema([("v", declared)]), tmp_path)
    plain = stored.dictionary_decode() if pa.types.is_dictionary(stored.type) else stored
    assert rows["v"].combine_chunks() == plain.cast(declared)


@pytest.mark.parametrize(
    ("stored", "declared"),
    [
        (pa.array([1], pa.int64()), pa.int32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([1], pa.int64()), pa.string()),
        (pa.array([2**60], pa.int64()), pa.float64()),
    ],
)
def test_what_is_refused(tmp_path: Path, stored: pa.Array, declared: pa.DataType) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"v": stored}))
    with pytest.raises(ConnectorError, match=rf"a\.parquet: column v is .*, but the stream declares {declared}"):
        read(file, pa.schema([("v", declared)]), tmp_path)


def test_old_timestamps_of_96_bits(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array([1_700_000_000_123_456], INSTANT)})
    file = write(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps="true")
    assert read(file, table.schema, tmp_path)["ts"] == table["ts"]


def test_the_arrival_is_that_of_the_batch_where_rows_do_not_hold_it(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"id": [1, 2]}))
    arrival = pa.scalar(1_700_000_000_000_000, INSTANT)
    rows = read(ParquetFile(file.uri, "", "", arrival), pa.schema([(TP_TIME, INSTANT)]), tmp_path)
    assert rows[TP_TIME].to_pylist() == [arrival.as_py()] * 2


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no Parquet at all"])
def test_a_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(ConnectorError, match=r"a\.parquet cannot be read as Parquet: "):
        read(ParquetFile(path.as_uri(), "", ""), pa.schema([("id", pa.int64())]), tmp_path)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"id": [1], "ID": [2]}))
    with pytest.raises(ConnectorError, match="two columns that differ in case only: id and ID"):
        read(file, pa.schema([("id", pa.int64())]), tmp_path)


def test_a_file_that_is_damaged_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", pa.table({"id": range(300)}))
    content = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(ConnectorError, match=r"a\.parquet cannot be read as Parquet: ") as raised:
        read(file, pa.schema([("id", pa.int64())]), tmp_path)
    assert not isinstance(raised.value, OutageError)
    assert "put a whole file in its place" in str(raised.value.hint)


def test_a_store_that_is_away_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("When reading key 'a' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject")

    file = write(tmp_path / "a.parquet", pa.table({"id": [1]}))
    monkeypatch.setattr(pq, "ParquetFile", away)
    with pytest.raises(OutageError, match="cannot be read as Parquet: When reading"):
        read(file, pa.schema([("id", pa.int64())]), tmp_path)


def test_a_file_of_large_values_is_read_piece_by_piece(tmp_path: Path) -> None:
    """Its bytes are not all in memory before its first row is."""
    text = pa.array([bytes([number]) * 500_000 for number in range(64)])
    path = tmp_path / "1.parquet"
    # a page for each row
    pq.write_table(pa.table({"a": text}), path, compression="none", use_dictionary=False, write_batch_size=1)
    before, peak, found = pa.total_allocated_bytes(), 0, 0
    for rows in ParquetFile(str(path), "0", str(tmp_path)).read(ParquetRows(pa.schema([("a", pa.binary())]))):
        peak = max(peak, pa.total_allocated_bytes() - before)
        found += rows.num_rows
    assert found == 64
    assert peak < 20_000_000 < path.stat().st_size


@pytest.mark.parametrize("long_rows", [range(1_000, 20_000), range(5_000, 20_000)], ids=["often", "at the end"])
def test_long_texts_that_the_file_does_not_tell_of_are_read_in_small_parts(tmp_path: Path, long_rows: range) -> None:
    """A dictionary has each text once, and metadata tell sums only."""
    texts = ["long " * 800 if number in long_rows else f"short {number}" for number in range(20_000)]
    table = pa.table({"id": range(20_000), "text": texts})
    pq.write_table(table, tmp_path / "t.parquet")
    del texts
    pool, parts, taken = freed_memory._FIRST_POOL, list[pa.Table](), [0]
    before = pool.bytes_allocated()
    for part in read_columns(str(tmp_path / "t.parquet"), table.schema, {}):
        taken.append(pool.bytes_allocated() - before - sum(each.nbytes for each in parts))
        parts.append(part)
    assert pa.concat_tables(parts).equals(table)
    assert max(part.nbytes for part in parts) <= 17 << 20
    assert max(taken) <= 55 << 20, "beside the parts that are kept here"
    assert all(column.num_chunks <= 1 for part in parts for column in part.columns)


def test_small_parts_are_joined_and_large_ones_divided() -> None:
    rows = pa.table({"id": range(2_000), "text": ["x" * 20_000] * 1_000 + ["y"] * 1_000})
    parts = [rows.slice(start, 900) for start in range(0, 2_000, 900)]
    found = list(evened(parts, 1_500))
    assert pa.concat_tables(found).equals(rows)
    (*divided, joined) = [part.num_rows for part in found]
    assert len(divided) == 2
    assert sum(divided) == 900
    assert max(part.nbytes for part in found) <= 16 << 20
    assert joined == 1_100
    assert [part.num_rows for part in evened(parts, 1_000)][-2:] == [900, 200]
    assert list(evened([], 10)) == []
