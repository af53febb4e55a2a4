"""Row groups with large pages: the same rows as of others, a few columns at a time, in little memory."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.engine import parquet, parquet_pages
from watersmeet.engine.parquet import ParquetFile, ParquetRows
from watersmeet.engine.parquet_pages import ColumnSize, bytes_ahead, page_in, parts, runs
from watersmeet.errors import ConnectorError, LimitError
from watersmeet.state.mapped_file import mapped_batches

ROWS = 1000


def numbers(step: int) -> list[int | None]:
    return [None if i % 7 == 0 else i * step for i in range(ROWS)]


def many_types() -> pa.Table:
    texts = [None if i % 5 == 0 else f"{i}" * (i % 9) for i in range(ROWS)]
    return pa.table(
        {
            "a": pa.array(numbers(3), pa.int32()),
            "b": pa.array(texts),
            "c": pa.array([None if n is None else [n] * (n % 4) for n in numbers(1)], pa.list_(pa.int64())),
            "d": pa.array(
                [None if n is None else {"x": n, "y": {"z": f"{n}"}} for n in numbers(2)],
                pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))]),
            ),
            "e": pa.array([None if n is None else Decimal(n) / 100 for n in numbers(5)], pa.decimal128(12, 2)),
            "f": pa.array([None if n is None else f"one of {n % 3}" for n in numbers(1)]).dictionary_encode(),
            "g": pa.array(
                [[("k", n)] for n in numbers(1)],
                pa.map_(pa.string(), pa.int64()),
            ),
            "h": pa.array(numbers(1_000_003), pa.timestamp("us", tz="UTC")),
            "i": pa.array([None if n is None else n % 2 == 0 for n in numbers(1)]),
            "j.k": pa.array([b"", None, b"\0" * 50, b"x"] * (ROWS // 4)),
            "l": pa.array([[{"m": f"{n}", "n": [1.5]}] for n in numbers(1)]),
        }
    )


def declared(table: pa.Table) -> pa.Schema:
    """What a stream declares for them: no dictionaries, wider numbers, columns that are not there, another order."""
    kinds = {"a": pa.int64(), "e": pa.decimal128(20, 4), "f": pa.string()}
    fields = [pa.field(each.name, kinds.get(each.name, each.type)) for each in table.schema]
    return pa.schema([pa.field("late", pa.string()), *reversed(fields)])


def read(path: Path, schema: pa.Schema) -> list[pa.Table]:
    return list(ParquetFile(path.as_uri(), "p/", "").read(ParquetRows(schema, numbered=True)))


def one_table(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The columns of each file that rows waited in."""
    found: list[list[str]] = []
    original = mapped_batches

    def noted(batches: Any, schema: pa.Schema) -> Any:
        found.append(schema.names)
        return original(batches, schema)

    monkeypatch.setattr(parquet, "mapped_batches", noted)
    return found


@pytest.fixture
def all_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_pages, "_PAGES_BYTES", 1)
    monkeypatch.setattr(parquet_pages, "_FEW_BYTES", 0)
    monkeypatch.setattr(parquet_pages, "_ROWS", 97)


@pytest.mark.parametrize("size", [ROWS, 300, 50])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "compression": "none"},
        {"data_page_size": 64, "write_batch_size": 8, "compression": "zstd"},
        {"data_page_version": "2.0", "write_page_checksum": True},
    ],
    ids=["plain", "no dictionary", "small pages", "version 2"],
)
def test_the_same_rows_in_the_same_order(
    tmp_path: Path,
    stored: list[list[str]],
    request: pytest.FixtureRequest,
    options: dict[str, Any],
    size: int,
) -> None:
    table, path = many_types(), tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=size, **options)
    schema = declared(table)
    ordinary = read(path, schema)
    assert not stored
    request.getfixturevalue("all_are_wide")
    wide = read(path, schema)
    assert one_table(wide).equals(one_table(ordinary))
    assert one_table(wide)["b"].combine_chunks() == table["b"].combine_chunks()
    assert max(rows.num_rows for rows in wide) == min(97, size)
    # all columns of each row group but its last, each in a file of its own
    assert len(stored) == -(-ROWS // size) * 10
    assert all(len(names) == 1 for names in stored)


@pytest.mark.usefixtures("all_are_wide")
def test_only_columns_that_are_wanted_are_stored(tmp_path: Path, stored: list[list[str]]) -> None:
    table, path = many_types(), tmp_path / "a.parquet"
    pq.write_table(table, path)
    rows = one_table(read(path, pa.schema([table.schema.field(name) for name in ("d", "j.k", "b")])))
    assert rows.drop_columns(["_seq"]).equals(table.select(["d", "j.k", "b"]).combine_chunks())
    assert len(stored) == 2
    assert {name for names in stored for name in names} < {"d", "j.k", "b"}


@pytest.mark.usefixtures("all_are_wide")
def test_files_of_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT i, i % 5 AS j, repeat('x', i % 50) AS k FROM range({ROWS}) t(i)) TO '{path}'")
    rows = one_table(read(path, pa.schema([("k", pa.string()), ("j", pa.int64()), ("i", pa.int64())])))
    assert rows["i"].to_pylist() == list(range(ROWS))
    assert rows["j"].to_pylist() == [i % 5 for i in range(ROWS)]
    assert rows["k"].to_pylist() == ["x" * (i % 50) for i in range(ROWS)]


def test_only_row_groups_that_are_large_wait_in_files(
    tmp_path: Path, stored: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_pages, "_PAGES_BYTES", 3_000_000)
    path = tmp_path / "a.parquet"
    schema = pa.schema([("n", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    groups = [
        pa.table({"n": range(100), **{name: [f"{i:02d}" * length for i in range(100)] for name in "ab"}}, schema=schema)
        for length in (1, 5, 10_000, 10_000, 2)
    ]
    with pq.ParquetWriter(path, schema, use_dictionary=False, data_page_size=10_000_000) as writer:
        for group in groups:
            writer.write_table(group)
    assert one_table(read(path, schema)).drop_columns(["_seq"]).equals(one_table(groups))
    assert stored == [["a"], ["a"]]


def wide_file(path: Path, *, columns: int = 16, compression: str = "zstd", size: int = ROWS) -> pa.Schema:
    """Row groups of ``size`` rows, with one page for each column: of 2 MB if there is one row group."""
    table = pa.table({f"s{j}": [f"{j:02d}{i:04d}" * 350 for i in range(ROWS)] for j in range(columns)})
    options = {"use_dictionary": False, "data_page_size": 1 << 30, "compression": compression}
    pq.write_table(table, path, row_group_size=size, **options)
    return table.schema


def test_pages_of_all_columns_are_not_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = wide_file(tmp_path / "a.parquet")
    peak, original, before = 0, parquet._as_declared, pa.total_allocated_bytes()

    def noted(*arguments: Any) -> Any:
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - before)
        return original(*arguments)

    monkeypatch.setattr(parquet, "_as_declared", noted)
    monkeypatch.setattr(parquet_pages, "_ROWS", 50)

    def peak_of_reading() -> int:
        nonlocal peak
        peak = 0
        for _ in ParquetFile(str(tmp_path / "a.parquet"), "", "").read(ParquetRows(schema)):
            pass
        return peak

    assert peak_of_reading() > 30_000_000
    monkeypatch.setattr(parquet_pages, "_PAGES_BYTES", 5_000_000)
    assert peak_of_reading() < 12_000_000


def test_texts_of_a_dictionary_count_as_often_as_they_stand_there(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array(["x" * 1000, "y" * 1000]).take(pa.array([0, 1] * 20_000))
    pq.write_table(pa.table(dict.fromkeys("abc", texts)), path)
    assert path.stat().st_size < 100_000
    tables = read(path, pa.schema([(name, pa.string()) for name in "abc"]))
    assert sum(rows.num_rows for rows in tables) == len(texts)
    assert 10_000_000 < max(rows.nbytes for rows in tables) < 20_000_000


@pytest.mark.usefixtures("all_are_wide")
def test_files_have_no_name_and_go_when_reading_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    schema = wide_file(tmp_path / "a.parquet", columns=4)
    mapped = Path("/proc/self/maps")

    def in_use() -> int:
        return mapped.read_text(encoding="utf-8").count(str(folder)) if mapped.exists() else 0

    tables = ParquetFile(str(tmp_path / "a.parquet"), "", "").read(ParquetRows(schema))
    rows = next(tables)
    assert in_use() == 3 or not mapped.exists()
    assert not list(folder.iterdir())
    del rows, tables
    assert in_use() == 0
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("all_are_wide")
def test_a_full_disk_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> IO[bytes]:
        return Path("/dev/full").open("w+b", buffering=0)

    schema = wide_file(tmp_path / "a.parquet", columns=3)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(LimitError, match=r"rows that do not fit in memory cannot be written to .*: No space left"):
        read(tmp_path / "a.parquet", schema)


@pytest.mark.usefixtures("all_are_wide")
def test_a_damaged_page_is_the_fault_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    schema = wide_file(path, columns=3)
    path.write_bytes(path.read_bytes().replace(b"\x28\xb5\x2f\xfd", b"none"))  # what pages in Zstandard begin with
    with pytest.raises(ConnectorError, match=r"a\.parquet cannot be read as Parquet: "):
        read(path, schema)


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_columns_are_divided_by_what_their_pages_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_pages, "_PAGES_BYTES", 100)
    assert parts({name: ColumnSize(held=50) for name in "ab"}) == (("a", "b"),)
    assert parts({}) == ((),)
    sizes = {"a": 10, "b": 300, "c": 60, "d": 50, "e": 30, "f": 10}
    found = parts({name: ColumnSize(held=held) for name, held in sizes.items()})
    assert found == (("b",), ("c",), ("d", "e", "a", "f"))


def first_page(path: Path, **options: Any) -> parquet_pages.Page | None:
    pq.write_table(pa.table({"s": [f"{i % 100:02d}" * 50 for i in range(ROWS)]}), path, **options)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    return page_in(path.read_bytes()[chunk.dictionary_page_offset or chunk.data_page_offset :])


@pytest.mark.parametrize("options", [{}, {"write_page_checksum": True}, {"data_page_version": "2.0"}])
def test_headers_of_pages(tmp_path: Path, options: dict[str, Any]) -> None:
    dictionary = first_page(tmp_path / "a", **options)
    assert dictionary == parquet_pages.Page(104 * 100, is_dictionary=True, values=100)
    page = first_page(tmp_path / "b", use_dictionary=False, **options)
    assert page is not None
    assert not page.is_dictionary
    assert 104 * ROWS <= page.nbytes < 104 * ROWS + 20


@pytest.mark.parametrize("header", [b"", b"\x15", b"PAR1", b"\x15\x00\x15\xff\xff", bytes(48)])
def test_what_is_no_header(header: bytes) -> None:
    assert page_in(header) is None


def test_files_far_away_are_looked_into_only_at_the_first_large_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = wide_file(tmp_path / "a.parquet", columns=4, size=400)
    metadata, looks = pq.read_metadata(tmp_path / "a.parquet"), 0

    class Source:
        def read_at(self, count: int, offset: int) -> bytes:
            nonlocal looks
            looks += 1
            return (tmp_path / "a.parquet").read_bytes()[offset : offset + count]

    (run,) = runs(metadata, schema.names, Source(), is_far=True)
    assert (run.groups, len(run.parts), looks) == ((0, 1, 2), 1, 0)
    monkeypatch.setattr(parquet_pages, "_PAGES_BYTES", 1_000_000)
    monkeypatch.setattr(parquet_pages, "_FEW_BYTES", 0)
    found = runs(metadata, schema.names, Source(), is_far=True)
    assert [(run.groups, len(run.parts)) for run in found] == [((0,), 4), ((1,), 4), ((2,), 4)]
    assert looks == 4
    assert [len(run.parts) for run in runs(metadata, schema.names, Source(), is_far=False)] == [4, 4, 2]


def test_less_is_read_ahead_of_each_of_many_columns() -> None:
    assert [bytes_ahead(columns) for columns in (0, 16, 64, 5000)] == [1 << 20, 1 << 20, 256 << 10, 64 << 10]


def test_decimals_are_counted_as_wide_as_they_become(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    kind = pa.decimal128(4, 2)
    column = pa.array([Decimal(i % 10) for i in range(130_000)], kind)
    pq.write_table(pa.table(dict.fromkeys([f"d{j}" for j in range(16)], column)), path, store_decimal_as_integer=True)
    tables = read(path, pa.schema([(f"d{j}", kind) for j in range(16)]))
    assert sum(rows.num_rows for rows in tables) == 130_000
    assert max(rows.nbytes for rows in tables) < 20_000_000
