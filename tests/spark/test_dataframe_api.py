"""Joins of streaming DataFrames from Python, to any Spark sink."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.runtime import shared_folders
from watersmeet.session.joins import How
from watersmeet.session.results import Stream

pytestmark = pytest.mark.spark

# Frontier of both after the batch: 100 s. All but the last rows are final then.
ORDERS = [(1, "a", 10), (2, "b", 20), (3, "c", 30), (9, "z", 100)]
PAYMENTS = [(1, 12, 5.0), (1, 14, 6.0), (3, 45, 7.0), (4, 50, 8.0), (8, 100, 9.0)]


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, DataFrame]:
    (tmp_path / "o").mkdir()
    (tmp_path / "p").mkdir()
    orders = pa.table(dict(zip(("id", "item", "ts"), map(list, zip(*ORDERS, strict=True)), strict=True)))
    payments = pa.table(dict(zip(("order_id", "ts", "paid"), map(list, zip(*PAYMENTS, strict=True)), strict=True)))
    pq.write_table(orders, tmp_path / "o" / "1.parquet")
    pq.write_table(payments, tmp_path / "p" / "1.parquet")
    return (
        spark.readStream.schema("id BIGINT, item STRING, ts BIGINT").parquet(str(tmp_path / "o")),
        spark.readStream.schema("order_id BIGINT, ts BIGINT, paid DOUBLE").parquet(str(tmp_path / "p")),
    )


def results(frame: DataFrame, folder: Path) -> list[tuple[object, ...]]:
    """All rows that the stream brings, through Spark's own Parquet sink."""
    writer = frame.writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "out"))
    assert query.awaitTermination(120)
    return sorted((tuple(row) for row in frame.sparkSession.read.parquet(str(folder / "out")).collect()), key=repr)


PAIRS = [(1, "a", 10, 1, 12, 5.0), (1, "a", 10, 1, 14, 6.0)]
PADDED_LEFT = [(2, "b", 20, None, None, None), (3, "c", 30, None, None, None)]
PADDED_RIGHT = [(None, None, None, 3, 45, 7.0), (None, None, None, 4, 50, 8.0)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", PAIRS),
        pytest.param("left", [*PAIRS, *PADDED_LEFT], marks=pytest.mark.slow),
        pytest.param("right", [*PAIRS, *PADDED_RIGHT], marks=pytest.mark.slow),
        ("full", [*PAIRS, *PADDED_LEFT, *PADDED_RIGHT]),
        pytest.param("semi", [(1, "a", 10)], marks=pytest.mark.slow),
        ("anti", [(2, "b", 20), (3, "c", 30)]),
        pytest.param("right_semi", [(1, 12, 5.0), (1, 14, 6.0)], marks=pytest.mark.slow),
        ("right_anti", [(3, 45, 7.0), (4, 50, 8.0)]),
    ],
)
def test_interval_join(
    streams: tuple[DataFrame, DataFrame], how: How, expected: list[tuple[object, ...]], tmp_path: Path
) -> None:
    orders, payments = streams
    joined = watersmeet.interval_join(
        orders, payments, on=[("id", "order_id")], within=("0 seconds", "10 seconds"), how=how, unit="s"
    )
    assert results(joined, tmp_path) == sorted(expected, key=repr)


def test_asof_join(streams: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    orders, payments = streams
    joined = watersmeet.asof_join(
        orders,
        payments,
        on=[("id", "order_id")],
        direction="forward",
        tolerance="10 seconds",
        how="left",
        where="`right`.paid > 0",
        unit="s",
    )
    assert results(joined, tmp_path) == sorted([PAIRS[0], *PADDED_LEFT], key=repr)


def test_temporal_join(streams: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    orders, payments = streams
    joined = watersmeet.temporal_join(payments, orders, on=[("order_id", "id")], how="left", unit="s")
    found = [(1, 12, 5.0, 1, "a", 10), (1, 14, 6.0, 1, "a", 10), (3, 45, 7.0, 3, "c", 30)]
    assert results(joined, tmp_path) == sorted([*found, (4, 50, 8.0, None, None, None)], key=repr)


def test_temporal_join_with_a_batch_table(
    spark: SparkSession, streams: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    rows: list[tuple[object, ...]] = [
        (1, "bronze", 5, 1, 1),
        (1, "silver", 11, 3, 1),
        (1, "gold", 11, 4, 1),
        (3, "bronze", 5, 1, 1),
    ]
    rows += [(3, None, 40, -7, 1), (3, None, 40, 2, -1)]  # by the column n the delete comes after
    versions = spark.createDataFrame(rows, "id BIGINT, tier STRING, ts BIGINT, n INT, _tp_delta INT")
    joined = watersmeet.temporal_join(
        streams[1],
        versions,
        on=[("order_id", "id")],
        how="left",
        unit="s",
        emit="changelog",
        mode="versioned_kv",
        primary_key="id",
        order="n",
    )
    assert joined.columns == ["order_id", "ts", "paid", "id", "tier", "right_ts", "n", "_tp_delta"]
    found = results(joined.select("order_id", "paid", "tier", "_tp_delta"), tmp_path)
    expected = [(1, 5.0, "gold", 1), (1, 6.0, "gold", 1), (3, 7.0, None, 1), (4, 8.0, None, 1), (8, 9.0, None, 1)]
    assert found == sorted(expected, key=repr)


def test_temporal_join_as_of_another_time(streams: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    orders, payments = streams
    joined = watersmeet.temporal_join(
        payments, orders, on=[("order_id", "id")], how="left", unit="s", at="`left`.ts - 5", retention="forever"
    )
    found = [
        (order, ts, *padding) for order, ts, *padding in results(joined.select("order_id", "ts", "item"), tmp_path)
    ]
    assert found == [(1, 12, None), (1, 14, None), (3, 45, "c"), (4, 50, None), (8, 100, None)]


@pytest.mark.slow
def test_temporal_join_by_another_column_and_version(
    spark: SparkSession, streams: tuple[DataFrame, DataFrame], tmp_path: Path
) -> None:
    rows = [(1, "a", 5, 100), (2, "a", 10, 100), (3, "a", 11, 100), (4, "b", 0, 100), (4, "c", 19, 100)]
    rows = [(shelf, item, since * 1000, ts) for shelf, item, since, ts in rows]
    stock = spark.createDataFrame(rows, "shelf BIGINT, item STRING, since BIGINT, ts BIGINT")
    joined = watersmeet.temporal_join(
        streams[0],
        stock,
        on="item",
        unit="s",
        emit="changelog",
        mode="versioned_kv",
        primary_key="shelf",
        version="since",
        index=["item"],
        retention="1 day",
    )
    found = results(joined.select("id", "shelf", "_tp_delta"), tmp_path)
    assert found == [(1, 1, 1), (1, 2, 1), (3, 4, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": "`left`.ts", "as_of": "now"}, "at does not go with as_of = 'now'"),
        ({"at": "`left`.paid"}, "is DOUBLE, and right.ts, the time of versions, is a whole number"),
        ({"index": "item"}, "right has no PRIMARY KEY: its rows are looked up only by join keys"),
        ({"version": "since"}, "VERSIONED ON since: right has no such column"),
        ({"retention": "1 day"}, "EMIT FINAL: with table_retention a change of the table may take back"),
        ({"retention": "o'clock", "emit": "changelog"}, "write a number and a unit, such as '30 seconds'"),
        ({"as_of": "yesterday"}, "as_of = 'yesterday' is not known"),
        ({"emit": "late"}, "emit = 'late' is not known"),
        ({"mode": "versioned_kv"}, "has no PRIMARY KEY"),
        ({"primary_key": "id"}, "its rows are only appended: none replaces another\nhint: give a mode too"),
        ({"order": "seq"}, "right has no column seq"),
        ({"order": "item"}, "item is string: rows are ordered by a whole number or a timestamp"),
    ],
)
def test_a_temporal_join_that_cannot_be(
    streams: tuple[DataFrame, DataFrame], options: dict[str, object], message: str
) -> None:
    with pytest.raises(WatersmeetError, match=message):
        watersmeet.temporal_join(streams[1], streams[0], on=[("order_id", "id")], unit="s", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "sideways"}, "direction = 'sideways' is not known"),
        ({"direction": "nearest", "strict": True}, "strict does not go with"),
        ({"how": "full"}, "is not supported by joins as of a time"),
        ({"tolerance": "soon"}, "is not a duration"),
        ({"tolerance": "5 parsecs"}, "'5 parsecs' has no unit of time\nhint: units are microsecond, "),
    ],
)
def test_an_asof_join_that_cannot_be(
    streams: tuple[DataFrame, DataFrame], options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        watersmeet.asof_join(*streams, on=[("id", "order_id")], unit="s", **options)  # type: ignore[arg-type]


def test_a_lookup_without_columns(streams: tuple[DataFrame, DataFrame]) -> None:
    with pytest.raises(ConfigError, match="right: its columns are missing"):
        watersmeet.lookup_join(streams[0], {"connector": "files", "path": "data"}, on="id")


def test_an_unknown_kind_of_join(streams: tuple[DataFrame, DataFrame]) -> None:
    with pytest.raises(ConfigError, match="is not a kind of join"):
        watersmeet.interval_join(*streams, on="id", within="10 seconds", how="outer")  # type: ignore[arg-type]


def test_a_registered_frame_in_sql(spark: SparkSession, streams: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.register("o", streams[0], time="ts", unit="s", delay="5 seconds")
    session.register("p", streams[1], time="ts", unit="s")
    found = session.sql(
        "SELECT o.item, upper(o.item) || p.order_id AS tag FROM o JOIN p ON o.id = p.order_id WITHIN INTERVAL 5 SECONDS"
    )
    assert isinstance(found, Stream)
    assert found.frame.isStreaming
    assert found.frame.columns == ["item", "tag"]
    assert results(found.frame, tmp_path) == [("a", "A1"), ("a", "A1")]


def test_bad_rows_that_no_folder_would_keep_are_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a cluster whose executors do not see the workspace."""

    def not_shared(spark: SparkSession, folder: str, what: str, hint: str) -> None:
        raise ConfigError(f"{what} {folder} is on the disk of the driver")

    monkeypatch.setattr(shared_folders, "require_shared", not_shared)
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "1.json").write_text('{"id": 1, "ts": 7}\nno record\n')
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(
        f"CREATE STREAM o (id BIGINT, ts BIGINT) WITH (connector = 'files', path = '{tmp_path}/o', format = 'json')"
    )
    frame = session.sql("SELECT id, ts FROM o")
    assert isinstance(frame, Stream)
    assert results(frame.frame, tmp_path) == [(1, 7)]
    assert "bad rows of select_" in caplog.text
    assert not list(tmp_path.rglob("*.jsonl"))
    with pytest.raises(ConfigError, match="the workspace"):
        session.sql("SELECT id, ts FROM o SETTINGS skew = 'spread'")
