"""Expressions on which DuckDB and Spark differ, as documented in docs/testing.md."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from watersmeet.bind.planning import plan_query
from watersmeet.errors import BindError
from watersmeet.testing.harness import Harness, StepInput, load_script

COLUMNS = "i INT, z INT, x DOUBLE, d DECIMAL(4, 1), s STRING, n STRING, dt DATE, t TIMESTAMP"
ROW = (7, 0, 3.5, Decimal("2.5"), "abc", "12", date(2026, 1, 31), datetime(2026, 1, 31, 10, 20, 30, 500000, tzinfo=UTC))
FAILS = "fails"

DIFFERENCES: list[tuple[str, object, object]] = [
    ("CAST(s AS INT)", None, FAILS),
    ("CAST(300 AS TINYINT)", None, FAILS),
    ("i / z", None, FAILS),
    ("CAST(t AS BIGINT)", None, 1769854830),
    ("CAST(i AS TIMESTAMP)", None, datetime(1970, 1, 1, 0, 0, 7)),  # noqa: DTZ001
    ("d / 3", 0.8333333333333334, Decimal("0.833333")),
    ("CAST(1e10 AS STRING)", "10000000000.0", "1.0E10"),
    ("CAST(t AS STRING)", "2026-01-31 10:20:30.5+00", "2026-01-31 10:20:30.5"),
    ("date_add(dt, 1)", datetime(2026, 2, 1), date(2026, 2, 1)),  # noqa: DTZ001
    ("dt + INTERVAL '1' MONTH", datetime(2026, 2, 28), date(2026, 2, 28)),  # noqa: DTZ001
    ("dt - DATE '2026-01-01'", 30, timedelta(days=30)),
    ("EXTRACT(SECOND FROM t)", 30, Decimal("30.500000")),
    ("dayofweek(dt)", 6, 7),
    ("weekday(dt)", 6, 5),
    ("substring(s, 0, 2)", "a", "ab"),
    ("format_string('%d', i)", "%d", "7"),
    ("typeof(i)", "INTEGER", "int"),
    ("n + 1", FAILS, 13),
    ("n > 5", FAILS, True),
    ("pmod(i, 2)", FAILS, 1),
    ("bround(2.5)", FAILS, Decimal(2)),
    ("unix_timestamp(t)", FAILS, 1769854830),
    ("format_number(i, 1)", FAILS, "7.0"),
]


def script(expression: str) -> str:
    return f"CREATE STREAM a ({COLUMNS}); SELECT {expression} AS found FROM a"


@pytest.mark.parametrize(("expression", "wanted"), [(each, here) for each, here, _ in DIFFERENCES if here != FAILS])
def test_results_of_duckdb(expression: str, wanted: object) -> None:
    outcome = Harness(*load_script(script(expression))).step({"a": StepInput([ROW])})
    ((_, (found,)),) = outcome.changes
    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize("expression", [each for each, here, _ in DIFFERENCES if here == FAILS])
def test_functions_unknown_to_duckdb_are_reported(expression: str) -> None:
    with pytest.raises(BindError, match="run the case with --spark"):
        Harness(*load_script(script(expression)))


@pytest.mark.sample(2)
@pytest.mark.spark
def test_results_of_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([ROW], COLUMNS.replace("TIMESTAMP", "TIMESTAMP_NTZ"))
    frame = frame.withColumn("t", frame["t"].cast("timestamp"))
    for expression, _, wanted in DIFFERENCES:
        streams, query = load_script(script(expression))
        (column,) = plan_query(query, streams).outputs
        try:
            ((found,),) = frame.selectExpr(column.expression.sql(dialect="spark").replace("a:", "")).collect()
        except PySparkException:
            found = FAILS
        assert (expression, found, type(found)) == (expression, wanted, type(wanted))
