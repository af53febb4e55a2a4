"""Whatever the workers decode of Debezium's records is exactly what Spark makes of them."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.connectors.test_deltas import stream_of
from watersmeet.columns import BAD, TP_DELTA
from watersmeet.connectors.formats.debezium import decode_changes
from watersmeet.connectors.formats.record_decoders import decoder_of
from watersmeet.connectors.stream_schema import spark_schema

RECORDS = 1_500
#: Types of event-time columns, their units, and how a record may hold them.
TIMES = {
    "BIGINT": ("ms", ["1640995200123", "0", "-5", '"x"', "1.5"]),
    "INT": ("s", ["1640995200", "7", '"1"', "99999999999"]),
    "TIMESTAMP": (None, ['"2022-01-01T00:00:00.5Z"', '"2022-01-01T00:00:00"', "1640995200", '"x"']),
    "TIMESTAMP_NTZ": (None, ['"2022-01-01T00:00:00.5"', '"2022-01-01 00:00:00"', "5"]),
}
MILLIS = ["1640995200123", "1640995200999", "-1", "0", "null", "9007199254740993", "9223372036854775807", '"5"', "1.5"]


def image(r: random.Random, times: list[str]) -> str:
    if r.random() < 0.15:
        return r.choice(["null", "{}", "[]", '"x"', "5"])
    fields = [f'"id":{r.choice(["1", "2", "null", "x" if r.random() < 0.1 else "3"])}']
    fields += [f'"v":{r.choice(["1.5", "0.1", "-0", "1e3", "null"])}'] if r.random() < 0.8 else []
    fields += [f'"note":{json.dumps(r.choice(["a", "é", chr(34), "NaN"]))}'] if r.random() < 0.8 else []
    chosen = r.choice(times[:2] if r.random() < 0.9 else [*times, "null"])
    fields += [f'"ts":{chosen}'] if r.random() < 0.9 else []
    return "{" + ",".join(fields) + "}"


def record(r: random.Random, times: list[str]) -> str:
    op = json.dumps(r.choices(["c", "r", "u", "d", "t", "x", None], [4, 1, 4, 3, 0.3, 0.3, 0.3])[0])
    before = image(r, times) if op in ('"u"', '"d"') or r.random() < 0.1 else "null"
    after = "null" if op == '"d"' and r.random() < 0.9 else image(r, times)
    millis = [r.choice(MILLIS[:2] if r.random() < 0.8 else MILLIS) for _ in range(2)]
    fields = [f'"op":{op}', f'"before":{before}', f'"after":{after}', f'"ts_ms":{millis[0]}']
    fields += [f'"source":{{"ts_ms":{millis[1]},"table":"t"}}'] if r.random() < 0.9 else []
    r.shuffle(fields)
    text = "{" + ",".join(fields) + "}"
    if r.random() < 0.3:
        text = f'{{"schema":{{"type":"struct"}},"payload":{text}}}'
    return text[:-1] if r.random() < 0.02 else text


def plain(rows: pa.Table) -> pa.Table:
    """Event times as numbers: some are beyond Python's."""
    return rows.set_column(rows.column_names.index("ts"), "ts", rows["ts"].cast(pa.int64()))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["changelog_kv", "versioned_kv"])
def test_what_the_workers_decode_is_what_spark_decodes(spark: SparkSession, mode: str) -> None:
    for seed, (kind, (unit, times)) in enumerate(TIMES.items()):
        r = random.Random(seed)
        texts = [record(r, times) for _ in range(RECORDS // len(TIMES))]
        given = f", event_time_unit = '{unit}'" if unit else ""
        stream = stream_of(
            f"CREATE STREAM t (id INT, v DOUBLE, note STRING, ts {kind}, WATERMARK FOR ts AS ts) PRIMARY KEY (id) "
            f"WITH (connector = 'files', path = 'x', format = 'debezium-json'{given}) SETTINGS mode = '{mode}'"
        )
        columns = spark_schema(stream)
        decoder = decoder_of(spark, "debezium-json", columns, {}, stream)
        assert decoder is not None
        frame = spark.createDataFrame(list(enumerate(texts)), "number INT, value STRING").coalesce(1)
        rows = decode_changes(frame, "value", stream, columns, {}).withColumn("place", F.monotonically_increasing_id())
        by_spark = defaultdict(list)
        for row in plain(rows.orderBy("place").toArrow()).to_pylist():
            of_row = {name: row[name] for name in (*columns.names, TP_DELTA)}
            by_spark[row["number"]].append(repr(of_row) if row[BAD] is None else row[BAD])
        count, wrong = 0, []
        for number, text in enumerate(texts):
            found = decoder.decode(pa.array([text.encode()], pa.binary()))
            if len(found.left):
                continue
            count += 1
            ours = [repr(row) for row in plain(found.rows).to_pylist()]
            if ours != by_spark[number]:
                wrong.append((text, ours, by_spark[number]))
        assert not wrong
        assert count > len(texts) / 4
        whole = decoder.decode(pa.array([text.encode() for text in texts], pa.binary()))
        assert len(set(whole.records)) + len(whole.left) == len(texts)
