"""Hashes of Arrow columns are those of Spark, so that a stream may be read by either."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from watersmeet.engine.hashing import can_hash, xxhash64

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "BOOLEAN": (pa.bool_(), [True, False, None]),
    "TINYINT": (pa.int8(), [0, -128, 127, None]),
    "SMALLINT": (pa.int16(), [1, -32768, None]),
    "INT": (pa.int32(), [0, -1, 2**31 - 1, -(2**31), None]),
    "BIGINT": (pa.int64(), [0, -1, 42, 2**63 - 1, -(2**63), None]),
    "FLOAT": (pa.float32(), [0.0, 1.5, -2.25, math.inf, math.nan, None]),
    "DOUBLE": (pa.float64(), [0.0, 1.5, -2.25, -math.inf, math.nan, None]),
    "DATE": (pa.date32(), [date(1970, 1, 1), date(1815, 6, 18), date(2026, 11, 21), None]),
    "TIMESTAMP": (pa.timestamp("us", tz="UTC"), [datetime(2026, 11, 21, 1, 2, 3, 4, UTC), None]),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), [datetime.fromisoformat("1900-01-01T01:02:03.000004"), None]),
    "DECIMAL(18, 4)": (pa.decimal128(18, 4), [Decimal("1.0001"), Decimal("-99999999999999.9999"), None]),
    "DECIMAL(38, 2)": (
        pa.decimal128(38, 2),
        [
            *(Decimal(sign) * each for sign in (1, -1) for each in (Decimal("1.27"), Decimal("1.28"), Decimal(10**35))),
            *(Decimal(2**bits - by).scaleb(-2) for bits in (7, 63, 64, 100) for by in (0, 1)),
            Decimal(0),
            None,
        ],
    ),
    "STRING": (pa.string(), ["", "a", "four", "seven77", "eightate", "ü" * 40, "0" * 36, "x" * 1001, None]),
    "BINARY": (pa.binary(), [b"", b"\x00\xff" * 19, None]),
}


def by_spark(spark: SparkSession, columns: Sequence[tuple[str, pa.ChunkedArray]]) -> list[int]:
    table = pa.table({f"c{i}": column for i, (_, column) in enumerate(columns)})
    rows = spark.createDataFrame(table.append_column("n", pa.array(range(table.num_rows))))
    hashed = F.xxhash64(*(F.col(f"c{i}").cast(kind) for i, (kind, _) in enumerate(columns)))
    return [row.h for row in rows.select("n", hashed.alias("h")).orderBy("n").collect()]


@pytest.mark.parametrize("kind", COLUMNS)
def test_one_column(spark: SparkSession, kind: str) -> None:
    arrow, values = COLUMNS[kind]
    column = pa.chunked_array([values[:2], values[2:]], arrow)
    assert can_hash(arrow, slowly=True)
    assert xxhash64([column]).tolist() == by_spark(spark, [(kind, column)])


def test_several_columns_with_nulls(spark: SparkSession) -> None:
    columns = [
        ("BIGINT", pa.chunked_array([[1, None, 3, None]], pa.int64())),
        ("STRING", pa.chunked_array([["a", "b", None, None]], pa.string())),
        ("INT", pa.chunked_array([[None, 7, 8, None]], pa.int32())),
    ]
    assert xxhash64([column for _, column in columns]).tolist() == by_spark(spark, columns)


def test_a_slice_and_negative_zero() -> None:
    decimals = pa.chunked_array([pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(9, 1))])
    assert xxhash64([decimals])[1:].tolist() == xxhash64([decimals.slice(1)]).tolist()
    zeros = pa.chunked_array([[0.0, -0.0]], pa.float64())
    first, second = xxhash64([zeros])
    assert first == second


@pytest.mark.parametrize("kind", [pa.decimal128(19, 0), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_types_that_only_spark_hashes_quickly(kind: pa.DataType) -> None:
    assert not can_hash(kind)
    assert can_hash(kind, slowly=True) == pa.types.is_decimal(kind)
