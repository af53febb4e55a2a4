"""Every Avro record that the decoder decodes is a good row of the same values on Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from tests.support.avro_records import (
    TestField,
    columns_of,
    every_leaf,
    expected_row,
    good_record,
    hostile_record,
    longest_value,
    plain,
    random_fields,
    schema_of,
)
from watersmeet.connectors.formats.binary import _SEAL_BYTES
from watersmeet.connectors.formats.values import decode
from watersmeet.records.avro import avro_decoder

RECORDS = 1_000


def on_spark(
    spark: SparkSession, values: Sequence[bytes | None], schema_json: str, columns: pa.Schema
) -> tuple[pa.Table, list[bool]]:
    """Spark's rows, and whether each is a good one."""
    declared = from_arrow_schema(columns, prefer_timestamp_ntz=True)
    assert to_arrow_schema(declared, timezone="UTC").types == columns.types
    frame = spark.createDataFrame(list(enumerate(values)), "n INT, v BINARY").coalesce(1)
    rows = decode(frame, "v", "avro", declared, {"avro.schema": schema_json})
    found = rows.drop("_raw", "_text").toArrow().sort_by("n")
    good = [reason is None for reason in found["_bad"].to_pylist()]
    return found.drop_columns(["_bad", "n"]), good


def harmless_record(rng: random.Random, fields: Sequence[TestField]) -> bytes:
    """A hostile record without lengths that Avro allocates gigabytes for: an OutOfMemoryError ends Spark's JVM."""
    while True:
        octets = hostile_record(rng, fields)
        if longest_value(fields, octets + _SEAL_BYTES) < 1_000_000:
            return octets


def check(spark: SparkSession, rng: random.Random, fields: Sequence[TestField]) -> int:
    """Compare both on random records; return how many were decoded."""
    values = [good_record(rng, fields) if n % 3 else harmless_record(rng, fields) for n in range(RECORDS)]
    columns, schema_json = columns_of(fields), schema_of(fields)
    decoder = avro_decoder(schema_json, columns)
    assert decoder is not None
    found = decoder.decode(pa.array(values, pa.binary()))
    rows, good = on_spark(spark, values, schema_json, columns)
    records = found.records.tolist()
    assert all(good[number] for number in records)
    assert plain(found.rows) == plain(rows.take(records).cast(columns)), schema_json
    # the slow reader, too, must know what Spark does
    expected = {n: row for n, octets in enumerate(values) if (row := expected_row(fields, octets)) is not None}
    assert all(good[number] for number in expected)
    assert plain(rows.take(list(expected)).cast(columns)) == list(expected.values()), schema_json
    return len(records)


def test_every_type(spark: SparkSession) -> None:
    rng = random.Random(7)
    for null_branch in (None, 0, 1):
        assert check(spark, rng, every_leaf(null_branch)) >= RECORDS // 2


@pytest.mark.slow
def test_each_type_by_itself(spark: SparkSession) -> None:
    rng = random.Random(8)
    for field in every_leaf(1):
        if field.column is not None:
            assert check(spark, rng, [field]) >= RECORDS // 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_schemas(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    assert check(spark, rng, random_fields(rng)) >= RECORDS // 2


def test_a_length_that_is_a_lie_is_a_bad_row(spark: SparkSession) -> None:
    """Not the end of the JVM, which would allocate two gigabytes for it."""
    schema_json = json.dumps({"type": "record", "name": "r", "fields": [{"name": "f", "type": "string"}]})
    values = [b"\xee\xff\xff\xff\x0f", b"\x02a"]
    rows, good = on_spark(spark, values, schema_json, pa.schema([("f", pa.string())]))
    assert (rows.to_pylist(), good) == ([{"f": None}, {"f": "a"}], [False, True])


def test_attributes_that_the_decoder_ignores(spark: SparkSession) -> None:
    leaf = {"type": "string", "avro.java.string": "String", "connect.name": "n", "doc": "d"}
    field = {"name": "f", "type": ["null", leaf], "default": None, "doc": "d", "order": "ignore", "connect.x": 1}
    schema_json = json.dumps({"type": "record", "name": "r", "namespace": "a", "doc": "d", "fields": [field]})
    columns = pa.schema([("F", pa.string())])
    values = [b"\x02\x04\xc3\xa9", b"\x00", b"\x02"]
    decoder = avro_decoder(schema_json, columns)
    assert decoder is not None
    assert decoder.decode(pa.array(values, pa.binary())).rows.to_pylist() == [{"F": "é"}, {"F": None}]
    rows, good = on_spark(spark, values, schema_json, columns)
    assert (rows.to_pylist(), good) == ([{"F": "é"}, {"F": None}, {"F": None}], [True, True, False])
