"""Cells as values by Spark type, and back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from watersmeet.testing.cells import Value, canonical_row, format_row, format_value, parse_cell, parse_row, same
from watersmeet.testing.notation import NotationError, split_cells


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("cell", "type_name", "value"),
    [
        (None, "INT", None),
        ("1", "INT", 1),
        ("-128", "tinyint", -128),
        ("9223372036854775807", "BIGINT", 2**63 - 1),
        ("1", "DOUBLE", 1.0),
        ("-inf", "DOUBLE", -math.inf),
        ("0.1", "FLOAT", 0.10000000149011612),
        ("1.50", "DECIMAL(10, 2)", Decimal("1.5")),
        ("7", "DECIMAL", Decimal(7)),
        ("NULL", "STRING", "NULL"),
        ("", "STRING", ""),
        ("ab", "VARCHAR(5)", "ab"),
        ("True", "BOOLEAN", True),
        ("2024-02-29", "DATE", date(2024, 2, 29)),
        ("2024-02-29 12:30:00.5", "TIMESTAMP", at(2024, 2, 29, 12, 30, 0, 500000)),
        ("2024-06-01 12:00:00+02:00", "TIMESTAMP", at(2024, 6, 1, 10)),
        ("2024-06-01T10:00:00Z", "TIMESTAMP", at(2024, 6, 1, 10)),
        ("01:02:03.25", "TIMESTAMP", at(1970, 1, 1, 1, 2, 3, 250000)),
        ("02:03", "TIMESTAMP", at(1970, 1, 1, 0, 2, 3)),
        ("00:10.499999", "TIMESTAMP", at(1970, 1, 1, 0, 0, 10, 499999)),
        ("02:03", "TIMESTAMP_NTZ", datetime(1970, 1, 1, 0, 2, 3)),  # noqa: DTZ001
        ("00ff", "BINARY", b"\x00\xff"),
    ],
)
def test_values(cell: str | None, type_name: str, value: Value) -> None:
    found = parse_cell(cell, type_name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("cell", "type_name"),
    [
        ("x", "INT"),
        ("", "INT"),
        ("1.5", "BIGINT"),
        ("128", "TINYINT"),
        ("1.234", "DECIMAL(10, 2)"),
        ("100", "DECIMAL(2)"),
        ("NaN", "DECIMAL(2)"),
        ("1e400x", "DOUBLE"),
        ("1e39", "FLOAT"),
        ("yes", "BOOLEAN"),
        ("2023-02-29", "DATE"),
        ("25:00:00", "TIMESTAMP"),
        ("00:60", "TIMESTAMP"),
        ("noon", "TIMESTAMP"),
        ("0", "BINARY"),
        ("1", "ARRAY<INT>"),
    ],
)
def test_cells_that_do_not_fit(cell: str, type_name: str) -> None:
    with pytest.raises(NotationError, match=type_name.replace("(", r"\(").replace(")", r"\)")):
        parse_cell(cell, type_name)


def test_rows() -> None:
    assert parse_row(("1", None), ["INT", "STRING"]) == (1, None)
    with pytest.raises(NotationError, match="has 1 cells, its stream or query 2 columns"):
        parse_row(("1",), ["INT", "STRING"])


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, "NULL"),
        (True, "true"),
        (1.5, "1.5"),
        (math.nan, "NaN"),
        (Decimal("1.50"), "1.50"),
        ("a b", "a b"),
        ("NULL", "'NULL'"),
        ("", "''"),
        (" a", "' a'"),
        ("it's", "it's"),
        ("it's, so", "'it''s, so'"),
        ('"q"', "'\"q\"'"),
        (date(2024, 2, 29), "2024-02-29"),
        (at(1970, 1, 1, 0, 0, 8), "00:00:08"),
        (at(1970, 1, 1, 0, 0, 8, 500000), "00:00:08.5"),
        (at(2024, 1, 1), "2024-01-01 00:00:00"),
        (datetime(2024, 6, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2024-06-01 10:00:00"),
        (b"\xff", "ff"),
    ],
)
def test_values_as_cells(value: Value, cell: str) -> None:
    assert format_value(value) == cell


def test_a_row_comes_back_from_its_cells() -> None:
    types = ["STRING", "STRING", "INT", "TIMESTAMP", "DOUBLE", "BOOLEAN"]
    row: tuple[Value, ...] = ("a, 'b'", "∅", None, at(2024, 1, 2, 3, 4, 5, 678), 1e300, False)
    assert parse_row(split_cells(format_row(row)), types) == row


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (math.nan, math.nan, True),
        (0.0, -0.0, True),
        (Decimal("1.50"), Decimal("1.5"), True),
        (None, None, True),
        (None, 0, False),
        ("", None, False),
        ("1", 1, False),
        (at(2024, 1, 1), datetime(2024, 1, 1), True),  # noqa: DTZ001
    ],
)
def test_equality(one: Value, other: Value, equal: bool) -> None:
    assert same(one, other) is equal
    assert (hash(canonical_row([one])) == hash(canonical_row([other]))) or not equal
