"""Lookups in Parquet files and Delta tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lookup.tables import SCHEMA, keys, rows
from watersmeet.errors import ConnectorError
from watersmeet.lookup.file_tables import FilesSource
from watersmeet.lookup.source import UnavailableError


def write(path: Path, *content: tuple[int, str]) -> None:
    path.parent.mkdir(exist_ok=True)
    table = pa.table(
        {"id": [row[0] for row in content], "name": [row[1] for row in content], "more": [0.5] * len(content)}
    )
    pq.write_table(table, path)


def test_rows_of_the_keys_from_a_folder_that_grows(tmp_path: Path) -> None:
    source = FilesSource(str(tmp_path), SCHEMA)
    write(tmp_path / "a.parquet", (1, "one"), (2, "two"))
    assert rows(source.fetch(keys(1, 3))) == [(1, "one")]
    write(tmp_path / "b.parquet", (1, "uno"), (3, "three"))
    assert rows(source.fetch(keys(1, 3))) == [(1, "one"), (1, "uno"), (3, "three")]


def test_one_file_and_two_keys(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", (1, "one"), (2, "two"))
    source = FilesSource(str(tmp_path / "a.parquet"), SCHEMA)
    assert rows(source.fetch(pa.table({"id": [1, 2], "name": ["one", "zwei"]}))) == [(1, "one")]


def test_folders_named_by_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["one"]}), tmp_path / "x.parquet")
    (tmp_path / "t" / "id=7").mkdir(parents=True)
    pq.write_table(pa.table({"name": ["seven"]}), tmp_path / "t" / "id=7" / "a.parquet")
    assert rows(FilesSource(str(tmp_path / "t"), SCHEMA).fetch(keys(7, 8))) == [(7, "seven")]


def test_types_are_cast_and_keys_out_of_range_are_not_found(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int16()), "name": ["one", "two"]}), tmp_path / "a.parquet")
    assert rows(FilesSource(str(tmp_path), SCHEMA).fetch(keys(1, 1 << 40))) == [(1, "one")]


def test_the_names_of_partition_folders_are_text_where_that_is_declared(tmp_path: Path) -> None:
    (tmp_path / "id=7").mkdir()
    pq.write_table(pa.table({"name": ["seven"]}), tmp_path / "id=7" / "a.parquet")
    source = FilesSource(str(tmp_path), pa.schema([("id", pa.string()), ("name", pa.string())]))
    assert rows(source.fetch(pa.table({"id": ["7", "x"]}))) == [("7", "seven")]


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", (1, "one"))
    source = FilesSource(str(tmp_path), pa.schema([("id", pa.int64()), ("nam", pa.string())]))
    with pytest.raises(ConnectorError, match=r"has no column nam\nhint: did you mean name"):
        source.fetch(keys(1))


def test_values_that_do_not_fit(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", (1, "one"))
    source = FilesSource(str(tmp_path), pa.schema([("id", pa.int64()), ("name", pa.int32())]))
    with pytest.raises(ConnectorError, match=r"column name of .* is STRING: it cannot be declared as INT"):
        source.fetch(keys(1))


def test_a_folder_that_is_gone_may_come_back(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot be read"):
        FilesSource(str(tmp_path / "gone"), SCHEMA).fetch(keys(1))


def test_what_is_wrong_before_a_query_starts(tmp_path: Path) -> None:
    gone = FilesSource(str(tmp_path / "gone"), SCHEMA)
    with pytest.raises(ConnectorError, match=r"there is no file or folder .*gone\nhint: correct the option path"):
        gone.check()
    (tmp_path / "gone").mkdir()
    with pytest.raises(ConnectorError, match="holds no Parquet file"):
        gone.check()
    write(tmp_path / "gone" / "a.parquet", (1, "one"))
    gone.check()
    with pytest.raises(ConnectorError, match=r"has no column nam\nhint: did you mean name"):
        FilesSource(str(tmp_path / "gone"), pa.schema([("nam", pa.string())])).check()


def test_a_folder_of_parquet_files_is_no_delta_table(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the extra delta is not installed")
    write(tmp_path / "a.parquet", (1, "one"))
    with pytest.raises(ConnectorError, match=r"is no Delta table\nhint: connector = 'files'"):
        FilesSource(str(tmp_path), SCHEMA, delta=True).check()


def test_delta_tables_are_read_as_they_are_now(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    path = str(tmp_path / "t")
    source = FilesSource(path, SCHEMA, delta=True)
    with pytest.raises(UnavailableError):
        source.fetch(keys(1))
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "name": ["one", "two"]}))
    assert rows(source.fetch(keys(1, 3))) == [(1, "one")]
    deltalake.write_deltalake(path, pa.table({"id": [1], "name": ["uno"]}), mode="overwrite")
    assert rows(source.fetch(keys(1, 3))) == [(1, "uno")]
