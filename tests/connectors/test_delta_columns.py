"""The columns and rows of a Delta table's files: partitions, schemas that change, mapped names, deletion vectors."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.support.delta_tables import (
    IDS,
    ROWS,
    Stream,
    added,
    append,
    commit,
    found,
    ids,
    log_of,
    make,
    roaring_array,
    rows,
    stored,
    sum_of,
    write_vector,
)
from watersmeet.connectors.delta.changes import Begin
from watersmeet.connectors.delta.log import DeltaLog
from watersmeet.engine.deletion_vectors import _B85, _Z85, deleted_rows
from watersmeet.errors import ConnectorError


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


def test_an_empty_partition_value_is_null(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.string())])
    write_deltalake(tmp_path, pa.table({"id": [1], "part": ["a"]}, schema=schema), partition_by=["part"])
    stream = Stream(tmp_path, schema)
    pq.write_table(pa.table({"id": [2]}), tmp_path / "x.parquet")
    commit(tmp_path, {"add": added(tmp_path / "x.parquet", {"part": ""})})
    assert sum_of(stream.drain()) == Counter([(1, "a"), (2, None)])


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


def test_nested_columns_of_files_that_a_change_has_written_anew(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("tags", pa.list_(pa.string())),
            ("names", pa.map_(pa.string(), pa.string())),
            ("deep", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
        ]
    )
    table = make(tmp_path, schema, feed=True)
    stream = Stream(tmp_path, schema, key=["id"])
    full = {"tags": ["x", None], "names": [("k", "v")], "deep": {"a": 1, "b": [{"c": "y"}, None]}}
    append(tmp_path, [{"id": 1, **full}, {"id": 2}], schema)
    table.update_incremental()
    table.update(updates={"id": "id + 10"}, predicate="id = 1")

    read = {(row["_tp_delta"], row["id"]): row for row in stream.drain()}
    assert set(read) == {(1, 1), (1, 2), (-1, 1), (1, 11)}
    anew = {row["id"]: row for row in Stream(tmp_path, schema).drain()}
    for row in (read[-1, 1], read[1, 11], anew[11]):
        assert {name: row[name] for name in full} == full
    assert anew[2]["tags"] is anew[2]["deep"] is None


def test_a_field_of_a_struct_that_came_later_is_null_before(tmp_path: Path) -> None:
    before = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32())]))])
    after = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())]))])
    make(tmp_path, before)
    append(tmp_path, [{"id": 1, "s": {"a": 1}}], before)
    with pytest.raises(ConnectorError, match="column s of the Delta table"):
        Stream(tmp_path, after)
    append(tmp_path, [{"id": 2, "s": {"a": 2, "b": "x"}}], after, schema_mode="merge")
    read = {row["id"]: row["s"] for row in Stream(tmp_path, after).drain()}
    assert read == {1: {"a": 1, "b": None}, 2: {"a": 2, "b": "x"}}


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
