"""Delta tables as sinks: merged by key, or appended to; each batch once."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.connectors.delta.connector import DeltaBatch, check_table, write_batch
from watersmeet.connectors.net_changes import collected
from watersmeet.connectors.task_writes import Handed
from watersmeet.errors import ConnectorError
from watersmeet.lookup.tables import table_schema

ORDERS = "id BIGINT, status STRING"


def stream(path: Path, columns: str = ORDERS, key: str = "id") -> StreamDef:
    """A stream with that primary key, or with none."""
    given = [column.strip().rpartition(" ") for column in columns.split(",")]
    plain = StreamDef(
        name="results",
        columns=tuple(StreamColumn(name=name, type=kind.replace(":", ",")) for name, _, kind in given),
        connector="delta",
        options={"path": str(path)},
    )
    keyed = {"mode": StreamMode.VERSIONED, "primary_key": tuple(name.strip() for name in key.split(","))}
    return plain.model_copy(update=keyed) if key else plain


def batch(target: StreamDef, *rows: tuple[Any, ...]) -> pa.Table:
    """Rows, with their delta last where the stream has a key."""
    schema = table_schema(target, [column.name for column in target.columns])
    if target.changes:
        schema = schema.append(pa.field("_tp_delta", pa.int8()))
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def write(target: StreamDef, number: int, *rows: tuple[Any, ...], query: str = "into_results_from_orders-1a2b") -> None:
    """A batch of a query, and once more, as after a failure: that changes nothing."""
    for _ in range(2):
        write_rows(batch(target, *rows), number, f"{query}-{number:012d}", target)


def write_rows(rows: pa.Table, number: int, key: str, target: StreamDef) -> None:
    """A batch of which the tasks handed all rows over."""
    if target.changes:
        return write_batch(rows, number, key, target)
    appended = DeltaBatch(target, number, key)
    return None if appended.open(rows.schema) is None else appended.commit(Handed(rows))


def found(path: Path) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist()), key=repr)


def test_rows_are_inserted_replaced_and_deleted_by_key(tmp_path: Path) -> None:
    target = stream(tmp_path / "made" / "here")
    path = tmp_path / "made" / "here"
    check_table(target)
    write(target, 0)
    assert found(path) == [], "the table is made by the first batch, whatever is in it"
    write(target, 1, (1, "open", 1), (2, None, 1), (3, "open", 1), (4, "x", 1), (4, "x", -1))
    check_table(target)
    assert found(path) == [(1, "open"), (2, None), (3, "open")]
    write(target, 2, (1, "open", -1), (1, "paid", 1), (3, "open", -1), (5, "x", -1))
    assert found(path) == [(1, "paid"), (2, None)]
    write(target, 3)
    assert DeltaTable(path).version() == 2, "one commit a batch, and none for a batch that is empty or was there"


def test_a_batch_that_was_committed_is_passed_over_whatever_came_since(tmp_path: Path) -> None:
    target = stream(tmp_path / "t")
    write(target, 5, (1, "a", 1))
    write(target, 6, (1, "a", -1))
    write(target, 5, (1, "a", 1))
    assert found(tmp_path / "t") == []
    write(target, 0, (1, "a", 1), query="another_query-1a2b")
    assert found(tmp_path / "t") == [(1, "a")]


def test_a_merge_that_is_not_known_to_be_committed_changes_nothing_either(tmp_path: Path) -> None:
    target = stream(tmp_path / "t")
    write(target, 0, (1, "a", 1), (2, "b", 1))
    for query in "one", "two":
        write(target, 1, (1, "a", -1), (2, "b", -1), (2, "c", 1), (3, "d", 1), query=query)
        assert found(tmp_path / "t") == [(2, "c"), (3, "d")]


def test_rows_are_appended_once_without_a_key(tmp_path: Path) -> None:
    target = stream(tmp_path / "t", key="")
    write(target, 0, (1, "a"), (1, "a"))
    write(target, 2, (2, "b"))
    write(target, 1, (9, "late"))
    for once in "0123456789abcdef", "fedcba9876543210":
        write_rows(batch(target, (3, "c")), 0, f"into_results_5e6f-{once}", target)
    assert found(tmp_path / "t") == [(1, "a"), (1, "a"), (2, "b"), (3, "c"), (3, "c")]


@pytest.mark.parametrize("columns", ["a b STRING, v INT, from STRING", "from STRING, a b STRING, v INT"])
def test_keys_of_several_columns_are_values_and_nothing_else(tmp_path: Path, columns: str) -> None:
    target = stream(tmp_path / "t", columns, "a b, from")
    hostile = ["'; DELETE FROM t; --", '"', "", "x" * 200, "x" * 199 + "y", "\U0010ffff" * 70, "a\0b", "%s", "\\"]
    names = [column.name for column in target.columns]

    def rows(value: int, weight: int, texts: list[str]) -> list[tuple[Any, ...]]:
        given = [{"a b": text, "from": text[:1], "v": value} for text in texts]
        return [(*(row[name] for name in names), weight) for row in given]

    write(target, 0, *rows(1, 1, hostile))
    write(target, 1, *rows(1, -1, hostile[::2]), *rows(1, -1, hostile[1::2]), *rows(2, 1, hostile[1::2]))
    stored = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert sorted(row["a b"] for row in stored) == sorted(hostile[1::2])
    assert {row["v"] for row in stored} == {2}


MOMENT = dt.datetime(2026, 2, 28, 10, 0, 0, 123456, tzinfo=dt.UTC)
VALUES: list[tuple[str, Any, Any]] = [
    ("TINYINT", 1, -128),
    ("SMALLINT", 1, 2),
    ("BIGINT", 9007199254740993, 9007199254740992),
    ("FLOAT", 1.5, 0.25),
    ("DOUBLE", 0.1, float("nan")),
    ("DECIMAL(38:9)", Decimal("0.000000001"), Decimal("99999999999999999999999999999.999999999")),
    ("STRING", "é'", ""),
    ("BINARY", b"\x00\xff", b""),
    ("BOOLEAN", True, False),
    ("DATE", dt.date(2026, 2, 28), dt.date(1, 1, 1)),
    ("TIMESTAMP", MOMENT, MOMENT + dt.timedelta(microseconds=1)),
    ("TIMESTAMP_NTZ", MOMENT.replace(tzinfo=None), dt.datetime(1900, 1, 1)),  # noqa: DTZ001
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "one", "other"), VALUES, ids=[kind for kind, *_ in VALUES])
def test_values_of_every_type_as_values_and_in_the_key(tmp_path: Path, kind: str, one: Any, other: Any) -> None:
    target = stream(tmp_path / "t", f"k {kind}, v {kind}", "k")
    write(target, 0, (one, other, 1), (other, None, 1))
    given = batch(target, (one, other, 1), (other, None, 1)).drop_columns("_tp_delta")
    stored = DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert stored.schema.equals(given.schema)
    assert sorted(map(repr, stored.to_pylist())) == sorted(map(repr, given.to_pylist()))
    # a key that is deleted beside one that is replaced
    write(target, 1, (one, other, -1), (one, one, 1), (other, None, -1))
    expected = batch(target, (one, one, 1)).drop_columns("_tp_delta")
    assert list(map(repr, DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist())) == [repr(expected.to_pylist()[0])]
    write(target, 2, (other, one, 1))
    check_table(target)
    assert len(found(tmp_path / "t")) == 2


def test_what_spark_hands_over_fits_the_declared_types(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "id INT NOT NULL, at TIMESTAMP, l ARRAY<TIMESTAMP>, m MAP<STRING, INT>, s STRUCT<a: TIMESTAMP, b: STRING>,"
        " _tp_delta TINYINT NOT NULL"
    )
    row = (1, MOMENT, [MOMENT, None], {"x": 1}, (MOMENT, "y"), 1)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = collected(spark.createDataFrame([row], columns))
        assert rows.schema.field("at").type == pa.timestamp("us", "UTC")
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    plain = stream(tmp_path / "t")
    kinds = {
        "at": "TIMESTAMP",
        "l": "ARRAY<TIMESTAMP>",
        "m": "MAP<STRING, INT>",
        "s": "STRUCT<a: TIMESTAMP, b: STRING>",
    }
    declared = [StreamColumn(name=name, type=kind) for name, kind in {"id": "INT", **kinds}.items()]
    target = plain.model_copy(update={"columns": tuple(declared)})
    write_batch(rows, 0, "q-000000000000", target)
    check_table(target)
    write_batch(rows, 1, "q-000000000001", target)
    assert all(field.nullable for field in DeltaTable(tmp_path / "t").schema().fields)
    assert found(tmp_path / "t") == [(1, MOMENT, [MOMENT, None], [("x", 1)], {"a": MOMENT, "b": "y"})]


def test_a_table_that_is_there_keeps_its_other_columns(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"note": ["mine"], "status": ["old"], "id": pa.array([1], pa.int64())}))
    target = stream(tmp_path / "t")
    check_table(target)
    write(target, 0, (1, "new", 1), (2, "new", 1))
    assert found(tmp_path / "t") == [("mine", "new", 1), (None, "new", 2)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id BIGINT, state STRING", "has no column state\nhint: did you mean status?"),
        ("id INT, status STRING", "is int64, not int32\nhint: declare the type that the table has"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_the_query_starts(
    tmp_path: Path, columns: str, message: str
) -> None:
    write(stream(tmp_path / "t"), 0, (1, "a", 1))
    with pytest.raises(ConnectorError) as raised:
        check_table(stream(tmp_path / "t", columns))
    assert message in str(raised.value)


def test_what_goes_wrong_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConnectorError) as raised:
        check_table(stream(tmp_path / "file"))
    assert str(raised.value).startswith(f"the Delta table {tmp_path / 'file'} cannot be written to: ")
    assert str(raised.value).splitlines()[0].endswith("Not a directory (os error 20)")
    with pytest.raises(ConnectorError) as raised:
        write(stream(tmp_path / "file"), 3, (1, "a", 1))
    assert str(raised.value).startswith(f"batch 3 could not be written to the Delta table {tmp_path / 'file'}: ")
    assert "\n" not in raised.value.message
    with pytest.raises(ConnectorError, match="the query emits several rows for one key"):
        write(stream(tmp_path / "t"), 0, (1, "a", 1), (1, "b", 1))
    assert not (tmp_path / "t").exists()


def test_a_path_with_a_secret_that_a_catalogue_kept_is_not_printed(tmp_path: Path) -> None:
    path = tmp_path / "t;password=geheim"
    write_deltalake(path, pa.table({"id": pa.array([1], pa.int64())}))
    with pytest.raises(ConnectorError, match=r"the Delta table \*\*\* has no column status") as raised:
        check_table(stream(path))
    assert "geheim" not in str(raised.value)
