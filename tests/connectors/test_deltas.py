"""Changing streams as Spark reads them: rows that hold, retractions, and rows that are no changes."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from watersmeet.bind.define import define_stream
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, RAW, TP_DELTA
from watersmeet.connectors.deltas import with_deltas
from watersmeet.connectors.embedded.connector import embedded_log
from watersmeet.connectors.formats.debezium import decode_changes
from watersmeet.connectors.insert import insert_values
from watersmeet.connectors.kafka.source import decode_records
from watersmeet.connectors.stream_schema import spark_schema, stored_schema
from watersmeet.errors import BindError
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream, InsertValues
from watersmeet.testing.rig import StepInput
from watersmeet.testing.source import source_table

TS = 1_600_000_000_000


def stream_of(sql: str) -> StreamDef:
    (statement,) = parse(sql)
    assert isinstance(statement, CreateStream)
    return define_stream(statement)


def changes(frame: DataFrame, stream: StreamDef, *names: str) -> list[tuple[object, ...]]:
    """Return each row's delta and some columns, or why it is bad and its text."""
    rows: list[Row] = with_deltas(frame, stream).collect()
    assert all((row[BAD] is None) == (row[TP_DELTA] is not None) for row in rows)
    return [(row[BAD], row[RAW]) if row[BAD] else (row[TP_DELTA], *(row[name] for name in names)) for row in rows]


def records(spark: SparkSession, given: list[tuple[str | None, str | None]]) -> DataFrame:
    """(key, value) as the Kafka connector has them before they are decoded."""
    frame = spark.createDataFrame(given, "_key STRING, _value STRING").coalesce(1)
    return frame.withColumn("_tp_time", F.timestamp_millis(F.lit(TS)))


def test_a_record_without_a_value_deletes_its_key(spark: SparkSession) -> None:
    rates = stream_of("CREATE MUTABLE STREAM r (c STRING, v INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) PRIMARY KEY (c)")
    given: list[tuple[str | None, str | None]]
    given = [(None, '{"c": "EUR", "v": 1}'), ("EUR", None), ('{"c": "USD", "ts": "2020-01-01T00:00:00Z"}', None)]
    given += [(None, None), ('{"v": 1}', None), ('{"c"', None), (None, "oops"), ('say "hi"', None)]
    found = changes(
        decode_records(records(spark, given), "json", spark_schema(rates), {}, rates), rates, "c", "v", "ts"
    )
    instants = [row[-1].astimezone(dt.UTC) for row in found if isinstance(row[-1], dt.datetime)]
    assert [row[:3] for row in found] == [
        (1, "EUR", 1),
        (-1, "EUR", None),
        (-1, "USD", None),
        ("the record has neither a value nor a key", ""),
        ("primary key column c is NULL", '{"v": 1}'),
        ("the record's key: not valid JSON", '{"c"'),
        ("not a JSON object", "oops"),
        (-1, 'say "hi"', None),
    ]
    happened = dt.datetime.fromtimestamp(TS / 1000, dt.UTC)
    assert instants == [happened, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), happened]

    numbered = stream_of(
        "CREATE STREAM n (a INT, b STRING, sec INT, _tp_delta INT, WATERMARK FOR sec AS sec) PRIMARY KEY (a) "
        "WITH (event_time_unit = 's') SETTINGS mode = 'changelog_kv'"
    )
    given = [("7", None), ("x", None), (None, '{"a": 1, "sec": 5, "_tp_delta": -1}'), (None, '{"a": 1, "sec": 5}')]
    frame = decode_records(records(spark, given), "json", spark_schema(numbered), {}, numbered)
    assert changes(frame, numbered, "a", "sec") == [
        (-1, 7, TS // 1000),
        ("the record's key: a: x does not fit INT", "x"),
        (-1, 1, 5),
        ("_tp_delta is NULL: a change is +1 or -1", '{"a": 1, "sec": 5}'),
    ]


def envelope(op: str | None, before: object = None, after: object = None, **more: object) -> str:
    return json.dumps({"op": op, "before": before, "after": after, "source": {"ts_ms": TS + 5}, "ts_ms": TS, **more})


ENVELOPES = [
    envelope("c", None, {"id": 1, "v": "x", "ts": 10}),
    json.dumps({"schema": {"type": "struct"}, "payload": json.loads(envelope("r", None, {"id": 2, "ts": 11}))}),
    envelope("u", {"id": 1, "v": "x", "ts": 10}, {"id": 1, "v": "y", "ts": 20}),
    envelope("u", {"id": 1, "v": "y"}, {"id": 1, "v": "z"}),
    envelope("u", {"id": 1, "v": "y", "ts": 20}, {"id": "many", "v": "z"}),
    envelope("d", {"id": 2, "ts": 11}),
    envelope("d", {"id": 2, "ts": None}, source=None),
    envelope("d", None),
    envelope("u", None, {"id": 3, "ts": 30}),
    envelope("c"),
    envelope("t"),
    envelope("m"),
    envelope(None),
    envelope("c", None, {"v": "no key", "ts": 1}),
    '{"op": "c"',
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["versioned_kv", "changelog_kv"])
def test_debezium_is_read_as_in_the_harness(spark: SparkSession, mode: str) -> None:
    stream = stream_of(
        "CREATE STREAM t (id INT, v STRING, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (id) "
        f"WITH (connector = 'files', path = 'x', format = 'debezium-json') SETTINGS mode = '{mode}'"
    )
    frame = spark.createDataFrame([(each,) for each in ENVELOPES], "value STRING").coalesce(1)
    found = changes(decode_changes(frame, "value", stream, spark_schema(stream), {}), stream, "id", "v", "ts")
    expected = [
        (row[BAD].replace('"', ""), row[RAW]) if row[BAD] else (row[TP_DELTA], row["id"], row["v"], row["ts"])
        for row in source_table(stream, StepInput(raw=ENVELOPES), 0).to_pylist()
    ]
    assert sorted(found, key=lambda row: isinstance(row[0], str)) == expected
    good = [row for row in found if len(row) == 4]
    if mode == "versioned_kv":
        assert good == [
            (1, 1, "x", 10),
            (1, 2, None, 11),
            (1, 1, "y", 20),
            (1, 1, "z", TS + 5),
            (-1, 2, None, TS + 5),
            (-1, 2, None, TS),
            (1, 3, None, 30),
        ]
        keyed = [('{"schema": {}, "payload": {"id": 9}}', envelope("d")), ("9", None), (None, envelope("d"))]
        of_kafka = decode_records(records(spark, keyed), "debezium-json", spark_schema(stream), {}, stream)
        assert changes(of_kafka, stream, "id", "ts") == [
            (-1, 9, TS + 5),
            ("op d without before, and the record has no key", envelope("d")),
        ]
    else:
        assert good == [
            (1, 1, "x", 10),
            (1, 2, None, 11),
            (-1, 1, "x", 10),
            (1, 1, "y", 20),
            (-1, 1, "y", TS + 5),
            (1, 1, "z", TS + 5),
            (-1, 1, "y", 20),
            (-1, 2, None, 11),
        ]


@pytest.mark.slow
def test_insert_may_name_the_delta(spark: SparkSession, tmp_path: Path) -> None:
    stream = stream_of("CREATE MUTABLE STREAM r (c STRING, ts BIGINT, v DECIMAL(30, 9), PRIMARY KEY (c))")

    def insert(text: str) -> None:
        (statement,) = parse(f"INSERT INTO r {text}")
        assert isinstance(statement, InsertValues)
        insert_values(spark, stream, statement, tmp_path)

    insert("VALUES ('EUR', 1, 2)")
    insert("(c, ts, _tp_delta) VALUES ('EUR', 2, -1), ('USD', 3, +1)")
    refused = [
        ("(c, _tp_delta) VALUES ('EUR', 1), ('EUR', 300)", "_tp_delta is 300: a change is .*line 1, column 50"),
        ("(c, _tp_delta) VALUES ('EUR', NULL)", "_tp_delta is NULL"),
        ("(ts) VALUES (5)", "primary key column c is NULL"),
    ]
    for values, reason in refused:
        with pytest.raises(BindError, match=reason):
            insert(values)
    stored = spark.read.schema(stored_schema(stream)).parquet(str(embedded_log(stream, tmp_path).folder))
    assert changes(stored.orderBy("ts"), stream, "c", "ts") == [(1, "EUR", 1), (-1, "EUR", 2), (1, "USD", 3)]
