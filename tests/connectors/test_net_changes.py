"""The net changes of a batch by the primary key of its target."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.connectors.net_changes import net_changes, net_frame
from watersmeet.errors import ConnectorError

Row: TypeAlias = tuple[object, ...]


def target(key: str = "id", mode: StreamMode = StreamMode.VERSIONED) -> StreamDef:
    columns = tuple(StreamColumn(name=name, type="STRING") for name in ("id", "v"))
    return StreamDef(name="t", columns=columns, mode=mode, primary_key=tuple(key.split()))


def changes(*rows: Row, type: pa.DataType | None = None) -> pa.Table:
    """(id, v, _tp_delta)."""
    ids, values, deltas = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": pa.array(values, type or pa.string()),
            "_tp_delta": pa.array(deltas, pa.int8()),
        }
    )


def net(*rows: Row, keep_replaced: bool = False) -> list[Row]:
    """Delta, then id and value."""
    found = net_changes(changes(*rows), target(), keep_replaced=keep_replaced)
    return [(row["_tp_delta"], row["id"], row["v"]) for row in found.to_pylist()]


def test_each_key_has_one_row_or_none() -> None:
    assert net((1, "a", 1)) == [(1, 1, "a")]
    assert net((1, "a", -1), (1, "b", 1)) == [(1, 1, "b")], "an update"
    assert net((1, "b", 1), (1, "a", -1)) == [(1, 1, "b")], "in whatever order it comes"
    assert net((1, "a", -1)) == [(-1, 1, "a")], "a delete has the row that went"
    assert net((1, "a", 1), (1, "a", -1)) == [], "came and went"
    assert net((1, "a", -1), (1, "a", 1)) == [], "went and came back: a delete would lose it"
    assert net((1, "b", 1), (1, "b", -1), (1, "a", -1)) == [(-1, 1, "a")]
    assert net((1, "a", -1), (1, "b", 1), (1, "b", -1), (1, None, 1)) == [(1, 1, None)]
    assert net((1, "a", -1), (1, "b", -1)) == [(-1, 1, "a")], "one delete for a key"
    assert net() == []


def test_deletes_come_first_and_replaced_rows_where_they_are_wanted() -> None:
    batch = ((1, "b", 1), (2, "x", 1), (1, "a", -1), (3, "y", -1))
    assert net(*batch) == [(-1, 3, "y"), (1, 1, "b"), (1, 2, "x")]
    assert net(*batch, keep_replaced=True) == [(-1, 1, "a"), (-1, 3, "y"), (1, 1, "b"), (1, 2, "x")]


def test_keys_of_several_columns() -> None:
    both = net_changes(changes((1, "a", 1), (1, "b", 1), (2, "a", -1)), target("v id"))
    assert both.drop_columns("_tp_delta").to_pylist() == [{"id": 2, "v": "a"}, {"id": 1, "v": "a"}, {"id": 1, "v": "b"}]


@pytest.mark.parametrize("rows", [[(7, "a", 1), (7, "b", 1)], [(7, "a", 1)] * 2, [(7, "a", 1), (7, None, 1)]])
def test_several_rows_of_a_key_are_refused(rows: list[Row]) -> None:
    with pytest.raises(ConnectorError) as raised:
        net((1, "x", 1), *rows, (8, "y", -1))
    assert str(raised.value) == (
        "t has the PRIMARY KEY (id), and the query emits several rows for one key\n"
        "id = 7: 2 rows after one batch\n"
        "hint: choose a PRIMARY KEY that is unique in the results"
    )


def test_a_key_without_a_value_is_refused() -> None:
    with pytest.raises(ConnectorError) as raised:
        net_changes(changes((1, "a", 1), (2, None, 1)), target("id v"))
    assert str(raised.value) == (
        "t: column v of its PRIMARY KEY is NULL in a result\n"
        "hint: leave such rows out (WHERE … IS NOT NULL), or choose a key without v"
    )


@pytest.mark.parametrize(("delta", "shown"), [(3, "3"), (0, "0"), (None, "NULL")])
def test_another_delta_is_refused(delta: int | None, shown: str) -> None:
    with pytest.raises(ConnectorError, match=f"t: _tp_delta is {shown} in a result: a change is"):
        net((1, "a", 1), (1, "a", delta))


def test_rows_that_are_only_appended_are_upserts() -> None:
    rows = changes((1, "a", 1), (2, "b", 1), (1, "a", 1)).drop_columns("_tp_delta")
    found = net_changes(rows, target())
    assert found.schema == rows.schema.append(pa.field("_tp_delta", pa.int8()))
    assert found.to_pylist() == [{"id": 1, "v": "a", "_tp_delta": 1}, {"id": 2, "v": "b", "_tp_delta": 1}]
    with pytest.raises(ConnectorError, match="several rows for one key"):
        net_changes(changes((1, "a", 1), (1, "b", 1)).drop_columns("_tp_delta"), target())


def test_a_declared_delta_keeps_its_place_and_type() -> None:
    given = pa.table({"_tp_delta": pa.array([-1, 1], pa.int64()), "id": [1, 1], "v": ["a", "b"]})
    found = net_changes(given, target())
    assert found.schema == given.schema
    assert found.to_pylist() == [{"_tp_delta": 1, "id": 1, "v": "b"}]


MOMENT = dt.datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=dt.UTC)
VALUES: list[tuple[pa.DataType, object, object]] = [
    (pa.float64(), float("nan"), 1.5),
    (pa.decimal128(38, 9), Decimal("0.000000001"), Decimal("0.000000002")),
    (pa.timestamp("us", "UTC"), MOMENT, MOMENT + dt.timedelta(microseconds=1)),
    (pa.timestamp("us", "Europe/Berlin"), MOMENT, MOMENT + dt.timedelta(microseconds=1)),
    (pa.timestamp("us"), MOMENT.replace(tzinfo=None), None),
    (pa.date32(), dt.date(2026, 1, 1), None),
    (pa.binary(), b"\x00", b"\x00\x00"),
    (pa.bool_(), True, False),
    (pa.list_(pa.int32()), [1, None], [1]),
    (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", 2)]),
    (pa.struct([("a", pa.string()), ("b", pa.list_(pa.float32()))]), {"a": "x", "b": [1.0]}, {"a": "x", "b": []}),
    (pa.null(), None, None),
]


@pytest.mark.parametrize(("kind", "one", "other"), VALUES, ids=[str(kind) for kind, *_ in VALUES])
def test_values_of_every_type_are_told_apart_and_kept(kind: pa.DataType, one: object, other: object) -> None:
    given = changes((1, one, -1), (1, one, 1), (2, one, 1), (3, other, 1), type=kind)
    found = net_changes(given, target())
    assert found.schema == given.schema
    assert found.equals(given.slice(2)) or kind == pa.float64(), "NaN is not equal to itself"
    if one != other:
        with pytest.raises(ConnectorError, match="several rows"):
            net_changes(changes((1, one, 1), (1, other, 1), type=kind), target())


@given(
    before=st.dictionaries(st.integers(0, 4), st.sampled_from("abc")),
    after=st.dictionaries(st.integers(0, 4), st.sampled_from("abc")),
    noise=st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abc"))),
    data=st.data(),
)
def test_a_table_becomes_what_the_changes_add_up_to(
    before: dict[int, str], after: dict[int, str], noise: list[tuple[int, str]], data: st.DataObject
) -> None:
    rows: list[Row] = [(*row, -1) for row in before.items()]
    rows += [(*row, 1) for row in after.items()]
    rows += [(*row, weight) for row in noise for weight in (1, -1)]
    found = net(*data.draw(st.permutations(rows)))
    for _ in range(2):  # the same batch again changes nothing
        table = dict(before)
        for delta, key, value in found:
            assert isinstance(key, int)
            table.pop(key, None) if delta == -1 else table.__setitem__(key, str(value))
        before = after
        assert table == after
    assert max(Counter(key for _, key, _ in found).values(), default=1) == 1


def test_spark_workers_do_the_same(spark: SparkSession) -> None:
    rows = [(key, str(key % 3), weight) for key in range(40) for weight in (1, -1)] + [(1, "x", -1), (1, "y", 1)]
    frame = spark.createDataFrame([*rows, (50, "z", -1)], "id BIGINT, v STRING, _tp_delta TINYINT").repartition(3)
    found = net_frame(frame, target())
    assert found.schema.simpleString() == frame.schema.simpleString()
    assert sorted(tuple(row) for row in found.collect()) == [(1, "y", 1), (50, "z", -1)]
    plain = net_frame(frame.drop("_tp_delta").where("id = 7").distinct(), target())
    assert [tuple(row) for row in plain.collect()] == [(7, "1", 1)]
