"""The Spark types of expressions: what is certain, and what has to be CAST."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.tree import InputColumn

TYPES = {
    "i": "INT",
    "b": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(10, 2)",
    "wide": "DECIMAL(38, 10)",
    "s": "STRING",
    "ts": "TIMESTAMP",
    "day": "DATE",
    "xs": "ARRAY<INT>",
}
COLUMNS = {name: InputColumn(name, 0, name, exp.DataType.build(kind, dialect="spark")) for name, kind in TYPES.items()}


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("i + 1", "INT"),
        ("-i * b", "BIGINT"),
        ("i / 2", "DOUBLE"),
        ("i div 2", "BIGINT"),
        ("f + f", "FLOAT"),
        ("f + i", "DOUBLE"),
        ("floor(d)", "BIGINT"),
        # decimals keep all their digits, and a number that is written out has as many as it shows
        ("m + m", "DECIMAL(11, 2)"),
        ("m * m", "DECIMAL(21, 4)"),
        ("m * 2", "DECIMAL(12, 2)"),
        ("i * 1.5", "DECIMAL(13, 1)"),
        ("m * d", "DOUBLE"),
        ("1", "INT"),
        ("3000000000", "BIGINT"),
        ("0.25", "DECIMAL(2, 2)"),
        ("1e3", "DOUBLE"),
        ("'a'", "STRING"),
        ("coalesce(i, 0)", "INT"),
        ("coalesce(m, 0)", "DECIMAL(12, 2)"),
        ("CASE WHEN i > 1 THEN NULL ELSE s END", "STRING"),
        ("if(i > 1, i, b)", "BIGINT"),
        ("i IN (1, 2) OR s IS NULL", "BOOLEAN"),
        ("year(ts)", "INT"),
        ("date_trunc('hour', ts)", "TIMESTAMP"),
        ("trunc(day, 'MM')", "DATE"),
        ("ts + INTERVAL '1' HOUR", "TIMESTAMP"),
        ("upper(s) || 'a'", "STRING"),
        ("concat(xs, xs)", "ARRAY<INT>"),
        ("CAST(m / 3 AS DECIMAL(20, 4))", "DECIMAL(20, 4)"),
        # Spark has types for these, but not ones that are told here
        ("m / 3", None),
        ("round(m, 1)", None),
        ("wide * wide", None),
        ("ts - ts", None),
        ("coalesce(i, s)", None),
        ("xxhash64(i)", None),
        ("i + xxhash64(i)", None),
    ],
)
def test_certain_type(sql: str, kind: str | None) -> None:
    found = certain_type(parse_one(sql, dialect="spark"), COLUMNS)
    assert (found and found.sql(dialect="spark")) == kind
