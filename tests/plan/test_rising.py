"""Functions that rise with a time, against Spark: they never fall, and exceed each value where they are said to."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pytest
import sqlglot
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

from watersmeet.plan.logical.tree import InputColumn
from watersmeet.plan.rising import Rising, rising_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = {
    name: InputColumn(name, 0, name, exp.DataType.build(kind, dialect="spark"))
    for name, kind in (("n", "BIGINT"), ("ts", "TIMESTAMP"), ("nt", "TIMESTAMP_NTZ"))
}
_CUTS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "month", "QUARTER", "YYYY")
RISING = {
    "n": [
        *(
            "n",
            "n + 3",
            "3 + n - 10",
            "n * 6",
            "n DIV 7",
            "n - n % 10",
            "(n + 4) DIV 3 * 2",
            "CAST(n AS BIGINT) DIV 60",
        ),
        *("n DIV 10L", "n DIV (5 * 2)", "n + -5", "-5 + n"),
        *("timestamp_millis(n)", "date_trunc('MINUTE', timestamp_seconds(n))", "CAST(timestamp_micros(n) AS DATE)"),
    ],
    "ts": [
        *(
            "ts",
            "ts + INTERVAL '90' MINUTES",
            "ts - INTERVAL '2' DAYS",
            "CAST(ts AS BIGINT)",
            "unix_millis(ts) DIV 500",
        ),
        *("CAST(ts AS DATE)", "to_date(ts)", "date(ts)", "year(ts)", "unix_timestamp(ts)", "unix_micros(ts)"),
        *(f"date_trunc('{unit}', ts)" for unit in _CUTS),
        *(f"trunc(CAST(ts AS DATE), '{unit}')" for unit in ("WEEK", "MM", "QUARTER", "year")),
        *("date_trunc('MONTH', date_trunc('HOUR', ts - INTERVAL '36' HOURS))", "unix_seconds(ts - INTERVAL '1' HOUR)"),
    ],
    "nt": ["nt", "date_trunc('DAY', nt)", "CAST(nt AS DATE)", "year(nt)", "nt + INTERVAL '1' SECOND"],
}
OTHERS = ["-n", "n % 10", "n * -2", "n DIV 0", "n DIV -3", "n / 10", "n + n", "hour(ts)", "month(ts)", "dayofweek(ts)"]
OTHERS += [
    "date_trunc('nonsense', ts)",
    "trunc(CAST(ts AS DATE), 'DAY')",
    "date_format(ts, 'yyyy')",
    "CAST(ts AS STRING)",
]
OTHERS += ["ts + INTERVAL '1' MONTH", "n - n % 10 % 3", "5 - n", "CAST(n AS INT)", "n * 10000000000000", "abs(n)"]
OTHERS += ["n + 1" + " DIV 2 * 3" * 4, "n DIV 1099511627776 DIV 1099511627776"]


def rising(text: str) -> Rising | None:
    return rising_of(sqlglot.parse_one(text, dialect="spark"), COLUMNS)


def values(column: str) -> list[int]:
    """Whole numbers, or times in microseconds, many of them beside a border."""
    draw = random.Random(1)
    if column == "n":
        near = [draw.randint(-200, 200) for _ in range(60)] + [draw.randint(-(10**10), 10**10) for _ in range(60)]
        return [0, 1, -1, *near]
    borders = [datetime(year, month, day, tzinfo=UTC) for year in (1969, 1970, 2024, 2025) for month in (1, 3, 4, 12)
               for day in (1, 28)]  # fmt: skip
    micros = [(each - EPOCH) // timedelta(microseconds=1) for each in borders]
    more = [draw.randint(-(10**15), 4 * 10**15) for _ in range(24)]
    return [each + by for each in (*micros, *more) for by in (-1, 0, 1, 999_999)]


def of_spark(spark: SparkSession, column: str, numbers: dict[str, list[int]]) -> dict[str, list[Any]]:
    """What Spark computes of each text at each of its numbers, as many for each."""
    value = {"n": "n{}", "ts": "timestamp_micros(n{})", "nt": "CAST(timestamp_micros(n{}) AS TIMESTAMP_NTZ)"}[column]
    names = ", ".join(f"n{place} BIGINT" for place in range(len(numbers)))
    rows = spark.createDataFrame(list(enumerate_rows(numbers)), f"i INT, {names}")
    texts = [re.sub(rf"\b{column}\b", value.format(place), text) for place, text in enumerate(numbers)]
    found = rows.select("i", *(F.expr(text).alias(str(place)) for place, text in enumerate(texts))).toArrow()
    found = found.sort_by("i")
    return {text: found[str(place)].to_pylist() for place, text in enumerate(numbers)}


def enumerate_rows(numbers: dict[str, list[int]]) -> Iterator[tuple[int, ...]]:
    for i, row in enumerate(zip(*numbers.values(), strict=True)):
        yield i, *row


@pytest.mark.parametrize("column", RISING)
def test_a_function_exceeds_a_value_exactly_where_it_is_said_to(spark: SparkSession, column: str) -> None:
    functions = {text: function for text in RISING[column] if (function := rising(text)) is not None}
    assert list(functions) == RISING[column]
    numbers = sorted(set(values(column)))
    found = of_spark(spark, column, dict.fromkeys(functions, numbers))
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    ends = {text: ends_of(con, function, found[text]) for text, function in functions.items()}
    before = of_spark(spark, column, {text: [end - 1 for end in each] for text, each in ends.items()})
    after = of_spark(spark, column, ends)
    for text, function in functions.items():
        assert found[text] == sorted(found[text]), text
        assert before[text] == found[text], text
        assert all(first > value for first, value in zip(after[text], found[text], strict=True)), text
        assert all(end - number <= function.width for end, number in zip(ends[text], numbers, strict=True)), text


def ends_of(con: duckdb.DuckDBPyConnection, function: Rising, values: list[Any]) -> list[int]:
    kind = "DATE" if isinstance(values[0], date) and not isinstance(values[0], datetime) else "BIGINT"
    if isinstance(values[0], datetime):
        kind = "TIMESTAMPTZ" if values[0].tzinfo is not None else "TIMESTAMP"
    sql = f"SELECT {function.above(f'CAST($1 AS {kind})')}"
    return [int(con.execute(sql, [value]).fetchall()[0][0]) for value in values]


@pytest.mark.parametrize("text", OTHERS)
def test_what_may_fall_or_is_not_known_is_none(text: str) -> None:
    assert rising(text) is None


@pytest.mark.parametrize(
    ("text", "zoned"),
    [
        ("date_trunc('HOUR', ts)", True),
        ("CAST(ts AS DATE)", True),
        ("year(ts)", True),
        ("ts - INTERVAL '1' DAY", True),
        ("date_trunc('DAY', nt)", True),
        ("unix_seconds(ts + INTERVAL '36' HOURS)", True),
        ("ts - INTERVAL '1' HOUR", False),
        ("CAST(nt AS DATE)", False),
        ("year(nt)", False),
        ("unix_seconds(ts) DIV 60", False),
        ("n DIV 60", False),
    ],
)
def test_days_and_hours_of_an_instant_are_those_of_a_time_zone(text: str, zoned: bool) -> None:
    function = rising(text)
    assert function is not None
    assert (function.zoned is not None) is zoned
