"""The types that the planner tells of functions over arrays, maps and structs, against Spark's own."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from sqlglot import parse_one

from tests.plan.test_collection_types import COLUMNS, TYPES

pytestmark = pytest.mark.spark


def test_types_are_those_of_spark(spark: SparkSession) -> None:
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    items = [f"{parse_one(sql, dialect='spark').sql(dialect='spark')} AS `{place}`" for place, sql in enumerate(TYPES)]
    expected = ", ".join(f"`{place}` {kind}" for place, kind in enumerate(TYPES.values()))
    by_spark = spark.createDataFrame([], schema).selectExpr(*items).schema
    told = spark.createDataFrame([], expected).schema
    differ = {
        sql: (own.dataType.simpleString(), other.dataType.simpleString())
        for sql, own, other in zip(TYPES, told, by_spark, strict=True)
        if own.dataType.simpleString() != other.dataType.simpleString()
    }
    assert not differ
