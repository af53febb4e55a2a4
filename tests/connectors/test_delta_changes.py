"""Delta tables as sequences of changes: what each version gives, in any batches, and what is refused in words."""

from __future__ import annotations

import base64
import datetime as dt
import json
import shutil
import uuid
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.support.delta_tables import (
    FEED,
    Stream,
    append,
    changes_of,
    commit,
    make,
    roaring_array,
    stored,
    sum_of,
    write_vector,
)
from watersmeet.connectors.delta_changes import Begin, Place
from watersmeet.connectors.delta_listing import partitions_of
from watersmeet.connectors.delta_log import DeltaLog
from watersmeet.engine.deletion_vectors import _B85, _Z85, deleted_rows
from watersmeet.engine.delta import Ending, FileKind, ListedFile, Stored
from watersmeet.errors import ConnectorError, OutageError

IDS = pa.schema([("id", pa.int64())])
ROWS = pa.schema([("id", pa.int64()), ("v", pa.string())])
TIMED = pa.schema([("id", pa.int64()), ("v", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def ids(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number} for number in numbers]


def rows(*given: tuple[int, str | None]) -> list[dict[str, Any]]:
    return [{"id": number, "v": text} for number, text in given]


def found(read: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in read]


# -- streams that only append ------------------------------------------------------------------------------------------


def test_the_rows_that_there_are_and_then_those_of_each_version(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, ids(1, 2), IDS)
    append(table, ids(3), IDS)
    stream = Stream(table, IDS)
    assert sorted(found(stream.batch())) == [1, 2, 3]
    assert stream.batch() == []
    append(table, ids(4), IDS)
    Table(table).optimize.compact()
    append(table, ids(5, 6), IDS)
    assert found(stream.batch()) == [4, 5, 6], "compaction adds nothing"
    assert stream.batch() == []
    assert stream.place.version == Table(table).version() + 1


def test_a_batch_may_end_within_a_snapshot_and_within_a_version(tmp_path: Path) -> None:
    table, schema = tmp_path / "t", pa.schema([("id", pa.int64()), ("part", pa.int32())])
    several = [{"id": number, "part": number} for number in range(3)]
    write_deltalake(table, pa.Table.from_pylist(several, schema=schema), partition_by=["part"])
    stream = Stream(table, schema)
    append(table, [{"id": 10 + number, "part": number} for number in range(3)], schema)
    batches = [sorted(found(stream.batch(2))) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 2, 0]
    assert sorted(sum(batches, [])) == [0, 1, 2, 10, 11, 12]


def test_the_first_batch_is_read_again_as_it_was(tmp_path: Path) -> None:
    """Spark does not keep where a query began, so a run that begins anew may find a newer table."""
    table = tmp_path / "t"
    append(table, ids(1), IDS)
    stream = Stream(table, IDS)
    end = stream.changes().latest(stream.place, None)
    append(table, ids(2), IDS)
    later = Stream(table, IDS)
    assert later.place != stream.place
    assert found(later.between(later.place, end)) == [1]
    later.place = end
    assert found(later.batch()) == [2]


def test_versions_that_change_rows_stop_a_stream_that_only_appends(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, rows((1, "a"), (2, "b")), ROWS)
    stream, skipping = Stream(table, ROWS), Stream(table, ROWS, skips=True)
    append(table, rows((3, "c")), ROWS)
    Table(table).update(updates={"v": "'z'"}, predicate="id = 1")
    append(table, rows((4, "d")), ROWS)
    assert found(stream.batch(2)) == [1, 2, 3]
    with pytest.raises(ConnectorError) as raised:
        stream.batch()
    assert raised.value.message == (
        "s only appends, but version 2 removed or changed rows (UPDATE) in the Delta table T"
    )
    assert "skip_change_commits = 'true'" in str(raised.value.hint)
    assert "mode = 'changelog_kv'" in str(raised.value.hint)
    assert found(skipping.batch()) == [1, 2, 3, 4]
    assert skipping.place.skipped == 1
    Table(table).delete("id = 4")
    assert skipping.batch() == []
    assert skipping.place.skipped == 2


@pytest.mark.parametrize("how", ["delete", "overwrite"])
def test_whatever_takes_rows_away_stops_it(tmp_path: Path, how: str) -> None:
    table = tmp_path / "t"
    append(table, ids(1), IDS)
    stream = Stream(table, IDS)
    if how == "delete":
        Table(table).delete()
    else:
        write_deltalake(table, pa.Table.from_pylist(ids(2), schema=IDS), mode="overwrite")
    with pytest.raises(ConnectorError, match=r"version 1 removed or changed rows \((DELETE|WRITE)\)"):
        stream.drain()


def test_where_a_stream_begins(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(4):
        append(table, ids(number), IDS)
    for version, expected in ((0, [0, 1, 2, 3]), (2, [2, 3]), (4, [])):
        assert found(Stream(table, IDS, begin=Begin(version, snapshot=False)).drain()) == expected
    log = DeltaLog(str(table), "T")
    times = [log.commit(version).time for version in range(4)]  # type: ignore[union-attr]
    assert log.since(times[0] - 5, 3) == 0
    assert log.since(times[3] + 1, 3) == 4
    for version in range(4):
        first = next(at for at, time in enumerate(times) if time >= times[version])
        assert log.since(times[version], 3) == first
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(
        ConnectorError, match="no version 0: the log begins with version 1, and what was committed since"
    ):
        log.since(times[0] - 5, 3)


def test_times_never_fall_and_are_those_of_the_versions(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, ids(1), IDS)
    stream = Stream(table, IDS)
    for number, time in ((2, 5_000), (3, 4_000), (4, 4_000), (5, 9_000)):
        append(table, ids(number), IDS)
        of_version = sorted((table / "_delta_log").glob("*.json"))[-1]
        lines = [json.loads(line) for line in of_version.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"] |= {"timestamp": 4_102_444_800_000 + time}  # in the year 2100
        of_version.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, *others = stream.drain(iter([1] * 20))
    epoch = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    assert first["_tp_time"] < epoch
    passed = [(row["_tp_time"] - epoch) // dt.timedelta(milliseconds=1) for row in others]
    assert passed == [5_000, 5_001, 5_002, 9_000]


# -- columns -----------------------------------------------------------------------------------------------------------


def test_values_of_partition_columns_are_in_the_log(tmp_path: Path) -> None:
    table = tmp_path / "a table=x"
    moment = dt.datetime(2026, 1, 1, 10, 0, 0, 5, tzinfo=dt.UTC)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("text", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("yes", pa.bool_()),
            ("part", pa.float64()),
            ("price", pa.decimal128(9, 2)),
            ("day", pa.date32()),
            ("n", pa.int16()),
        ]
    )
    given = [
        (1, "a b", moment, moment.replace(tzinfo=None), True, 1.5, Decimal("2.50"), moment.date(), 7),
        (2, "x%20=y/ü", moment, moment.replace(tzinfo=None), False, -0.25, Decimal("-1.00"), moment.date(), -7),
        (3, *[None] * 8),
    ]
    listed = [dict(zip(schema.names, row, strict=True)) for row in given]
    write_deltalake(table, pa.Table.from_pylist(listed, schema=schema), partition_by=schema.names[1:])
    stream = Stream(table, schema)
    append(table, listed, schema)
    assert sum_of(stream.drain()) == Counter(given + given)
    assert sum_of(Stream(table, schema).drain()) == Counter(given + given)


def test_a_binary_partition_column_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("key", pa.binary())])
    write_deltalake(tmp_path, pa.table({"id": [1], "key": [b"\xff"]}, schema=schema), partition_by=["key"])
    assert found(Stream(tmp_path, IDS).drain()) == [1]
    with pytest.raises(ConnectorError, match="partitioned by a BINARY column"):
        Stream(tmp_path, schema).drain()


def test_a_column_that_came_later_is_null_before(tmp_path: Path) -> None:
    table, wider = tmp_path / "t", pa.schema([*ROWS, ("tags", pa.list_(pa.string()))])
    append(table, rows((1, "a")), ROWS)
    append(table, [{"id": 2, "v": "b", "tags": ["x"]}], wider, schema_mode="merge")
    for begin in None, Begin(0, snapshot=False):
        read = Stream(table, wider, begin=begin).drain()
        assert [(row["id"], row["tags"]) for row in sorted(read, key=lambda row: row["id"])] == [(1, None), (2, ["x"])]
    assert sum_of(Stream(table, ROWS).drain()) == Counter([(1, "a"), (2, "b")])


def test_a_type_that_was_widened_is_read_if_it_is_declared_so(tmp_path: Path) -> None:
    table, narrow = tmp_path / "t", pa.schema([("id", pa.int32())])
    append(table, ids(1), narrow)
    assert found(Stream(table, IDS).drain()) == [1]
    stream = Stream(table, narrow)
    stream.batch()
    (metadata,) = (each for each in log_of(table, 0) if "metaData" in each)
    schema = json.loads(metadata["metaData"]["schemaString"])
    schema["fields"][0]["type"] = "long"
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    commit(table, metadata)
    with pytest.raises(ConnectorError) as raised:
        stream.batch()
    assert str(raised.value) == (
        "column id of the Delta table T is BIGINT at version 1, but s declares INT\n"
        "hint: declare the type that the table has, and CAST it in the query"
    )
    assert found(Stream(table, IDS, begin=Begin(0, snapshot=False)).drain()) == [1]


def log_of(table: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (table / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]


def test_a_column_that_goes_while_the_stream_is_read(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, rows((1, "a")), ROWS)
    stream = Stream(table, ROWS)
    stream.batch()
    write_deltalake(table, pa.table({"id": [1], "w": ["a"]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(
        ConnectorError, match="the Delta table T has no column v at version 1: s declares one"
    ) as raised:
        stream.batch()
    assert raised.value.hint == "known here: id, w"
    with pytest.raises(ConnectorError, match="has no column v at version 1"):
        Stream(table, ROWS)


MAPPED = {
    "type": "struct",
    "fields": [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical},
        }
        for number, (name, kind, physical) in enumerate(
            [("id", "long", "col-1"), ("label", "string", "col-2"), ("part", "string", "col-3")], 1
        )
    ],
}


def mapped_table(table: Path, mode: str = "name") -> None:
    """A table whose column v was renamed to label."""
    table.mkdir()
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"col-1": [1, 2], "col-2": ["a", "b"]}), table / "x.parquet")
    commit(
        table,
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        {
            "metaData": {
                "id": "4a6b0c52-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(MAPPED),
                "partitionColumns": ["part"],
                "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "3"},
                "createdTime": 0,
            }
        },
        {"add": added(table / "x.parquet", {"col-3": "p"})},
    )


def added(file: Path, partitions: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "path": file.name,
        "size": file.stat().st_size,
        "partitionValues": partitions or {},
        "modificationTime": 1,
        "dataChange": True,
        **more,
    }


def test_columns_that_are_mapped_by_name(tmp_path: Path) -> None:
    table, schema = tmp_path / "t", pa.schema([("id", pa.int64()), ("Label", pa.string()), ("part", pa.string())])
    mapped_table(table)
    for begin in None, Begin(0, snapshot=False):
        assert sum_of(Stream(table, schema, begin=begin).drain()) == Counter([(1, "a", "p"), (2, "b", "p")])
    with pytest.raises(ConnectorError, match="has no column v"):
        Stream(table, ROWS)


def test_columns_that_are_mapped_by_id_are_refused(tmp_path: Path) -> None:
    mapped_table(tmp_path / "t", "id")
    with pytest.raises(ConnectorError, match="the Delta table T maps its columns by id"):
        Stream(tmp_path / "t", IDS)


# -- changing streams --------------------------------------------------------------------------------------------------


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
    """deltalake writes the old rows of all keys before the new ones, other writers as they like; files have any order."""
    table = tmp_path / "t"
    keyed_table(table)
    stream = Stream(table, ROWS, key=["id"])
    stream.batch()
    Table(table).update(updates={"v": "concat(v, v)"})
    read = stream.batch()
    assert [row["_tp_delta"] for row in read] == [-1, -1, -1, 1, 1, 1]
    assert len({row["_seq"] for row in read}) == 6
    assert {row["_tp_time"] for row in read} == {read[0]["_tp_time"]}


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


# -- deletion vectors --------------------------------------------------------------------------------------------------


WITH_VECTORS = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed"],
    }
}


#: Arrays, bitmaps and runs: 3 are too few for a table of places, 5 are enough.
VECTORS = [
    [],
    [0, 7, *range(70_000, 71_000), *range(131_072, 190_000, 3)],
    [*range(100), 65_600, 70_000, *range(140_000, 200_000, 2), *range(200_000, 200_010), 300_000],
]


@pytest.mark.parametrize("rows", VECTORS, ids=len)
def test_a_vector_says_which_rows_are_deleted(tmp_path: Path, rows: list[int]) -> None:
    """deltalake reads the same vector."""
    assert deleted_rows(write_vector(tmp_path / "v.bin", [*rows, 2**32 + 5], b"xx")).tolist() == [*rows, 2**32 + 5]
    inline = base64.b85encode(roaring_array(rows)).decode().translate(str.maketrans(_B85, _Z85))
    assert deleted_rows({"storageType": "i", "pathOrInlineDv": inline}).tolist() == rows
    table = tmp_path / "t"
    write_deltalake(table, pa.table({"id": range(400_000)}, schema=IDS))
    (file,) = table.glob("*.parquet")
    name = f"deletion_vector_{uuid.UUID(int=7)}.bin"
    (table / "ab").mkdir()
    encoded = base64.b85encode(uuid.UUID(int=7).bytes).decode().translate(str.maketrans(_B85, _Z85))
    vector = {**write_vector(table / "ab" / name, rows), "storageType": "u", "pathOrInlineDv": f"ab{encoded}"}
    commit(table, WITH_VECTORS, {"add": added(file, stats=json.dumps({"numRecords": 400_000}), deletionVector=vector)})
    ((logged,), snapshot) = DeltaLog(str(table), "T").commit(1).added, DeltaLog(str(table), "T").files(1)  # type: ignore[union-attr]
    assert logged.stored.deletions is not None
    assert deleted_rows(logged.stored.deletions).tolist() == rows
    (found,) = {each.stored.path: each.stored for each in snapshot}.values()
    assert found.deletions is not None
    assert deleted_rows(found.deletions).tolist() == rows


def test_rows_that_a_vector_deletes(tmp_path: Path) -> None:
    """As Delta's own writers do: the same file goes without, and comes with a vector, and then with a longer one."""
    table = tmp_path / "t"
    make(table, IDS, feed=True)
    commit(table, WITH_VECTORS)
    append(table, ids(*range(100)), IDS)
    stream = Stream(table, IDS, key=["id"])
    assert len(stream.batch()) == 100
    (file,) = table.glob("*.parquet")
    before: dict[str, Any] = {}
    for number, gone in enumerate(({0, 7}, {0, 7, 8, 99})):
        vector = write_vector(table / f"v{number}.bin", sorted(gone), before=b"x" * number)
        remove = {"path": file.name, "dataChange": True, "deletionTimestamp": 1, "partitionValues": {}, **before}
        add = added(file, stats=json.dumps({"numRecords": 100}), deletionVector=vector)
        commit(table, {"remove": remove}, {"add": add})
        before = {"deletionVector": vector}
        left = Counter((number,) for number in range(100) if number not in gone)
        assert sum_of(Stream(table, IDS).drain()) == left == stored(table)
        assert sum_of(Stream(table, IDS, key=["id"], begin=Begin(2, snapshot=False)).drain()) == left
    assert Counter(row["_tp_delta"] for row in stream.drain()) == {-1: 100 + 98, 1: 98 + 96}


def test_a_vector_that_is_damaged(tmp_path: Path) -> None:
    append(tmp_path, ids(1, 2), IDS)
    (file,) = tmp_path.glob("*.parquet")
    vector = write_vector(tmp_path / "v.bin", [0])
    commit(tmp_path, WITH_VECTORS, {"add": {**added(file), "deletionVector": vector}})
    stream = Stream(tmp_path, IDS, begin=Begin(1, snapshot=False))
    place = stream.place
    assert found(stream.batch()) == [2]
    content = bytearray((tmp_path / "v.bin").read_bytes())
    content[-5] ^= 1
    (tmp_path / "v.bin").write_bytes(content)
    stream.place = place
    with pytest.raises(
        ConnectorError, match=r"the deletion vector file:.*v\.bin cannot be read: its checksum is wrong"
    ):
        stream.batch()


def test_a_feed_with_changes_that_are_none_is_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    keyed_table(tmp_path)
    stream = Stream(tmp_path, ROWS, key=["id"])
    stream.batch()
    pq.write_table(pa.table({"id": [1], "v": ["a"], "_change_type": ["upsert"]}), tmp_path / "c.parquet")
    commit(tmp_path, {"cdc": {"path": "c.parquet", "partitionValues": {}, "size": 1, "dataChange": False}})
    with pytest.raises(
        ConnectorError, match=r"c\.parquet: _change_type is upsert\nhint: a change data feed has insert"
    ):
        stream.batch()


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_a_folder_that_is_missing_or_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="there is no folder T"):
        DeltaLog(str(tmp_path / "none"), "T").about()
    with pytest.raises(ConnectorError, match="T is no Delta table\nhint: connector = 'files'"):
        DeltaLog(str(tmp_path), "T").about()


def test_a_file_that_vacuum_has_removed(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    (file,) = tmp_path.glob("*.parquet")
    file.unlink()
    with pytest.raises(ConnectorError) as raised:
        stream.batch()
    assert raised.value.message == f"version 0 of the Delta table T names a file that is not there: {file}"
    assert "VACUUM has removed it" in str(raised.value.hint)


def test_a_log_that_was_cleaned_up_is_not_taken_for_its_end(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    stream.batch()
    for number in (2, 3, 4):
        append(tmp_path, ids(number), IDS)
    Table(tmp_path).create_checkpoint()
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(ConnectorError) as raised:
        stream.batch()
    assert raised.value.message == (
        "the log of the Delta table T has no version 1: the log begins later: it was cleaned up before version 3"
    )
    assert "delta.logRetentionDuration" in str(raised.value.hint)
    assert sorted(found(Stream(tmp_path, IDS).drain())) == [1, 2, 3, 4], "a new query begins with the checkpoint"


def test_a_snapshot_that_is_gone_while_it_is_read(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    for number in (2, 3):
        append(tmp_path, ids(number), IDS)
    Table(tmp_path).create_checkpoint()
    for version in range(2):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(ConnectorError, match="version 0 of the Delta table T cannot be read: .*") as raised:
        stream.batch()
    assert "start the query anew" in str(raised.value.hint)


def test_a_table_that_was_deleted_or_made_anew(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(3):
        append(table, ids(number), IDS)
    stream = Stream(table, IDS)
    stream.batch()
    shutil.rmtree(table)
    append(table, ids(9), IDS)
    with pytest.raises(ConnectorError, match="no version 3: nor the one before it: the table was deleted or made anew"):
        stream.batch()
    stream = Stream(table, IDS)
    (metadata,) = (each for each in log_of(table, 0) if "metaData" in each)
    metadata["metaData"]["id"] = "4a6b0c52-0000-4000-8000-000000000000"
    commit(table, metadata)
    with pytest.raises(ConnectorError, match="is not the one that the query has read"):
        stream.batch()


def test_a_version_that_is_cut_off(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    stream.batch()
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text('{"add": {"path"')
    with pytest.raises(ConnectorError, match="version 1 of the Delta table T cannot be read: ") as raised:
        stream.batch()
    assert not isinstance(raised.value, OutageError)


def test_features_that_are_not_known(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    stream.batch()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged", "timestampNtz"]}
    commit(tmp_path, {"protocol": {**protocol, "writerFeatures": []}})
    with pytest.raises(ConnectorError, match="T needs a reader that knows catalogManaged from version 1 on"):
        stream.batch()


# -- how files are shared out ------------------------------------------------------------------------------------------


def test_small_files_share_a_task_and_large_ones_do_not(tmp_path: Path) -> None:
    def file(number: int) -> ListedFile:
        return ListedFile(Stored(f"{number}", {}), FileKind.ADDED, 0, number, 0)

    small = partitions_of([(file(number), 1000) for number in range(100)], cores=2)
    assert [len(each.value) for each in small] == [31, 31, 31, 7]
    large = partitions_of([(file(number), 200 << 20) for number in range(3)], cores=2)
    assert [len(each.value) for each in large] == [1, 1, 1]
    assert partitions_of([], cores=2) == []


def test_a_place_is_kept_whole(tmp_path: Path) -> None:
    place = Place("id", "s", Begin(3, snapshot=True), 5, False, 2, 17, 1)
    assert Place.decoded(json.loads(json.dumps(place.encoded()))) == place
    assert not place.is_begin
    assert Place.first("id", "s", Begin(3, snapshot=True)).is_begin
    assert not replace(Place.first("id", "s", Begin(3, snapshot=True)), file=1).is_begin
