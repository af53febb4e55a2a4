"""Delta tables as changing streams: what a version of the change data feed says, in both modes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.support.delta_tables import (
    FEED,
    ROWS,
    Stream,
    append,
    changes_of,
    commit,
    make,
    rows,
)
from watersmeet.engine.delta import Ending
from watersmeet.errors import ConnectorError

TIMED = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def keyed_table(table: Path, **options: Any) -> None:
    make(table, ROWS, feed=True, **options)
    append(table, rows((1, "a"), (2, "b"), (3, "c")), ROWS)


def merge(table: Path, *given: tuple[int, str | None]) -> None:
    """Update the rows of these keys, and insert those that are new."""
    source = pa.Table.from_pylist(rows(*given), schema=ROWS)
    merging = Table(table).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def test_the_feed_is_a_changelog(tmp_path: Path) -> None:
    table = tmp_path / "t"
    keyed_table(table)
    stream = Stream(table, ROWS, key=["id"])
    assert changes_of(stream.batch()) == [(1, 1, "a"), (1, 2, "b"), (1, 3, "c")]
    merge(table, (2, "z"), (4, "d"))
    assert sorted(changes_of(stream.batch())) == [(-1, 2, "b"), (1, 2, "z"), (1, 4, "d")]
    Table(table).delete("id = 1")
    assert changes_of(stream.batch()) == [(-1, 1, "a")]
    Table(table).optimize.compact()
    assert stream.batch() == []
    Table(table).delete()
    assert sorted(changes_of(stream.batch())) == [(-1, 2, "z"), (-1, 3, "c"), (-1, 4, "d")], (
        "files that are removed whole"
    )
    write_deltalake(table, pa.Table.from_pylist(rows((9, "i")), schema=ROWS), mode="overwrite")
    append(table, rows((5, "e")), ROWS)
    assert changes_of(stream.batch()) == [(1, 9, "i"), (1, 5, "e")]


def test_within_a_version_all_that_goes_comes_first(tmp_path: Path) -> None:
    """deltalake writes the old rows of all keys before the new ones, other writers as they like."""
    table = tmp_path / "t"
    keyed_table(table)
    stream = Stream(table, ROWS, key=["id"])
    stream.batch()
    Table(table).update(updates={"v": "concat(v, v)"})
    read = stream.batch()
    assert [row["_tp_delta"] for row in read] == [-1, -1, -1, 1, 1, 1]
    assert len({row["_seq"] for row in read}) == 6
    assert {row["_tp_time"] for row in read} == {read[0]["_tp_time"]}


def test_a_feed_may_have_new_rows_before_old_ones(tmp_path: Path) -> None:
    keyed_table(tmp_path)
    stream = Stream(tmp_path, ROWS, key=["id"])
    stream.batch()
    for name, (id, v, what) in {
        "new": ([1, 2], ["z", "z"], ["update_postimage", "insert"]),
        "both": ([3, 3], ["z", "c"], ["update_postimage", "update_preimage"]),
        "old": ([1, 2], ["a", "b"], ["update_preimage", "delete"]),
    }.items():
        pq.write_table(pa.table({"id": id, "v": v, "_change_type": what}), tmp_path / f"{name}.parquet")
    files = [{"path": f"{name}.parquet", "partitionValues": {}, "size": 1} for name in ("new", "both", "old")]
    commit(tmp_path, *({"cdc": {**file, "dataChange": False}} for file in files))
    assert changes_of(stream.batch()) == [
        (-1, 3, "c"),
        (-1, 1, "a"),
        (-1, 2, "b"),
        (1, 1, "z"),
        (1, 2, "z"),
        (1, 3, "z"),
    ]


def test_a_version_that_changes_rows_is_one_batch_whatever_its_limit(tmp_path: Path) -> None:
    table, schema = tmp_path / "t", pa.schema([*ROWS, ("part", pa.int32())])
    make(table, schema, feed=True, by=["part"])
    append(table, [{"id": number, "v": "a", "part": number} for number in range(3)], schema)
    stream = Stream(table, schema, key=["id"])
    assert [len(stream.batch(1)) for _ in range(3)] == [1, 1, 1]
    Table(table).update(updates={"v": "'b'"})
    assert len(stream.batch(1)) == 6
    append(table, [{"id": 10 + number, "v": "a", "part": number} for number in range(3)], schema)
    assert [len(stream.batch(1)) for _ in range(4)] == [1, 1, 1, 0]


def test_a_table_without_the_feed_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, rows((1, "a")), ROWS)
    with pytest.raises(ConnectorError) as raised:
        Stream(table, ROWS, key=["id"])
    assert raised.value.message == "the Delta table T has no change data feed at version 0, which s needs"
    assert "delta.enableChangeDataFeed = true" in str(raised.value.hint)
    Table(table).alter.set_table_properties(FEED)
    stream = Stream(table, ROWS, key=["id"])
    assert changes_of(stream.batch()) == [(1, 1, "a")]
    Table(table).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    append(table, rows((2, "b")), ROWS)
    with pytest.raises(ConnectorError, match="no change data feed at version 2"):
        stream.batch()


def timed(*given: tuple[int, str, int]) -> pa.Table:
    moments = [dt.datetime(2026, 1, 1, 10, 0, second, tzinfo=dt.UTC) for _, _, second in given]
    return pa.table([[id for id, _, _ in given], [v for _, v, _ in given], moments], schema=TIMED)


VERSIONED = Ending("ts", 1)


def versioned(table: Path, by: tuple[str, ...] = ()) -> Stream:
    make(table, TIMED, feed=True, by=by)
    write_deltalake(table, timed((1, "a", 1), (2, "b", 2), (3, "c", 3)), mode="append")
    stream = Stream(table, TIMED, key=["id"], ending=VERSIONED)
    assert [row["_tp_delta"] for row in stream.batch()] == [1, 1, 1]
    return stream


def test_in_versioned_kv_an_update_is_the_new_row_alone(tmp_path: Path) -> None:
    stream = versioned(tmp_path / "t")
    Table(tmp_path / "t").update(updates={"v": "'z'", "ts": "ts + interval '9 seconds'"}, predicate="id = 1")
    (row,) = stream.batch()
    assert (row["_tp_delta"], row["id"], row["v"], row["ts"].second) == (1, 1, "z", 10)


def test_in_versioned_kv_a_delete_ends_the_key_at_the_time_of_the_version(tmp_path: Path) -> None:
    stream = versioned(tmp_path / "t")
    Table(tmp_path / "t").delete("id = 2")
    (row,) = stream.batch()
    assert (row["_tp_delta"], row["id"], row["ts"]) == (-1, 2, row["_tp_time"])


def test_in_versioned_kv_an_update_of_the_key_ends_the_old_one(tmp_path: Path) -> None:
    stream = versioned(tmp_path / "t")
    Table(tmp_path / "t").update(updates={"id": "id + 1"}, predicate="id > 1")
    first, *others = stream.batch()
    assert (first["_tp_delta"], first["id"], first["ts"]) == (-1, 2, first["_tp_time"])
    assert [(row["_tp_delta"], row["id"], row["v"]) for row in others] == [(1, 3, "b"), (1, 4, "c")]


def test_in_versioned_kv_each_version_of_a_batch_counts_by_itself(tmp_path: Path) -> None:
    stream = versioned(tmp_path / "t")
    Table(tmp_path / "t").update(updates={"v": "'z'"}, predicate="id = 3")
    Table(tmp_path / "t").delete("id = 3")
    assert [(row["_tp_delta"], row["id"], row["v"]) for row in stream.batch()] == [(1, 3, "z"), (-1, 3, "z")]


def test_the_key_is_read_where_only_the_pairs_need_it(tmp_path: Path) -> None:
    stream = versioned(tmp_path / "t")
    Table(tmp_path / "t").update(updates={"v": "'z'"}, predicate="id = 1")
    stream.schema = pa.schema([field for field in stream.schema if field.name not in ("id", "ts")])
    assert [(row["_tp_delta"], row["v"]) for row in stream.batch()] == [(1, "z")]


def test_in_versioned_kv_a_row_that_moves_to_another_file_goes_on(tmp_path: Path) -> None:
    """The old row of an update is in the file of its old partition, the new one in that of its new partition."""
    stream = versioned(tmp_path / "t", by=("v",))
    Table(tmp_path / "t").update(updates={"v": "'z'"}, predicate="id = 1")
    assert [(row["_tp_delta"], row["id"], row["v"], row["ts"].second) for row in stream.batch()] == [(1, 1, "z", 1)]


def test_in_versioned_kv_a_table_that_is_replaced_ends_only_what_has_gone(tmp_path: Path) -> None:
    stream = versioned(tmp_path / "t")
    write_deltalake(tmp_path / "t", timed((1, "a", 1), (3, "z", 3)), mode="overwrite")
    read = [(row["_tp_delta"], row["id"], row["v"]) for row in stream.batch()]
    assert read == [(-1, 2, "b"), (1, 1, "a"), (1, 3, "z")]


@pytest.mark.parametrize(("scale", "kind", "expected"), [(1000, pa.int64(), "ms"), (None, pa.int64(), None)])
def test_in_versioned_kv_the_time_of_a_delete_is_in_the_column_s_unit(
    tmp_path: Path, scale: int | None, kind: pa.DataType, expected: str | None
) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", kind)])
    make(tmp_path / "t", schema, feed=True)
    append(tmp_path / "t", [{"id": 1, "n": 7}, {"id": 2, "n": 8}], schema)
    stream = Stream(tmp_path / "t", schema, key=["id"], ending=Ending("n", scale))
    stream.batch()
    Table(tmp_path / "t").delete("id = 1")
    (row,) = stream.batch()
    assert row["n"] == (7 if expected is None else int(row["_tp_time"].timestamp() * 1000))


def test_a_feed_with_changes_that_are_none_is_refused(tmp_path: Path) -> None:
    keyed_table(tmp_path)
    stream = Stream(tmp_path, ROWS, key=["id"])
    stream.batch()
    pq.write_table(pa.table({"id": [1], "v": ["a"], "_change_type": ["upsert"]}), tmp_path / "c.parquet")
    commit(tmp_path, {"cdc": {"path": "c.parquet", "partitionValues": {}, "size": 1, "dataChange": False}})
    with pytest.raises(
        ConnectorError, match=r"c\.parquet: _change_type is upsert\nhint: a change data feed has insert"
    ):
        stream.batch()
