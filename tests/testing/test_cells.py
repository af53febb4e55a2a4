"""Conversion of cells to values by Spark type, and back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from watersmeet.testing.case import NotationError
from watersmeet.testing.cells import (
    Value,
    canonical_row,
    consolidate,
    format_row,
    format_value,
    parse_cell,
    parse_row,
    split_cells,
)
from watersmeet.testing.nested_cells import Entries


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
        ("[1, NULL]", "ARRAY<INT>", [1, None]),
        ("[ ]", "array<string>", []),
        ("['a, b', c]", "ARRAY<STRING>", ["a, b", "c"]),
        ("['[1]']", "ARRAY<ARRAY<INT>>", [[1]]),
        ("[[1, NULL], [], NULL]", "ARRAY<ARRAY<INT>>", [[1, None], [], None]),
        ("(a, 2)", "STRUCT<name: STRING, n: INT>", {"name": "a", "n": 2}),
        ("('a, (b', NULL)", "struct<name:string,n:int>", {"name": "a, (b", "n": None}),
        ("('it''s', 1)", "STRUCT<name: STRING, n: INT>", {"name": "it's", "n": 1}),
        ("{a: 1, 'b:': NULL}", "MAP<STRING, INT>", Entries([("a", 1), ("b:", None)])),
        (
            "[(a, {x: [1]})]",
            "ARRAY<STRUCT<s: STRING, m: MAP<STRING, ARRAY<INT>>>>",
            [{"s": "a", "m": Entries([("x", [1])])}],
        ),
        ("{}", "MAP<STRING, INT>", Entries()),
    ],
)
def test_values(cell: str | None, type_name: str, value: Value) -> None:
    found = parse_cell(cell, type_name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("cell", "type_name", "reason"),
    [
        ("x", "INT", "a whole number is expected"),
        ("", "INT", "a whole number is expected"),
        ("1.5", "BIGINT", "a whole number is expected"),
        ("128", "TINYINT", "it does not fit in 8 bits"),
        ("x", "DECIMAL(10, 2)", "a number is expected"),
        ("1.234", "DECIMAL(10, 2)", "it does not fit in 10 digits, 2 of them after the point"),
        ("100", "DECIMAL(2)", "it does not fit in 2 digits, 0 of them after the point"),
        ("NaN", "DECIMAL(2)", "a DECIMAL is finite"),
        ("1e400x", "DOUBLE", "a number is expected"),
        ("1e39", "FLOAT", "it is out of range"),
        ("yes", "BOOLEAN", "true or false is expected"),
        ("2023-02-29", "DATE", "YYYY-MM-DD is expected"),
        ("25:00:00", "TIMESTAMP", "hours go to 23, minutes and seconds to 59"),
        ("00:60", "TIMESTAMP", "hours go to 23, minutes and seconds to 59"),
        ("noon", "TIMESTAMP", "YYYY-MM-DD HH:MM:SS, HH:MM:SS or MM:SS is expected"),
        ("0", "BINARY", "an even number of hexadecimal digits is expected"),
    ],
)
def test_cells_that_do_not_fit(cell: str, type_name: str, reason: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_cell(cell, type_name)
    assert str(caught.value) == f"{cell!r} is not a value of type {type_name}\n{reason}"


def test_types_without_cells() -> None:
    with pytest.raises(NotationError, match="cells of type VARIANT cannot be written"):
        parse_cell("1", "VARIANT")


def test_an_array_stands_in_brackets() -> None:
    with pytest.raises(NotationError, match="'1' is not an array") as caught:
        parse_cell("1", "ARRAY<INT>")
    assert "'[1, 2]'" in str(caught.value)


def test_a_struct_has_all_of_its_fields() -> None:
    with pytest.raises(NotationError, match="has 1 fields, STRUCT<a: INT, b: INT> 2"):
        parse_cell("(1)", "STRUCT<a: INT, b: INT>")


@pytest.mark.parametrize(
    ("cell", "type_name"),
    [
        ("'(a, 2)'", "STRUCT<name: STRING, n: INT>"),
        ("'[(''a, b'', {x: NULL})]'", "ARRAY<STRUCT<s: STRING, m: MAP<STRING, INT>>>"),
        ("'{a: [1, 2], b: []}'", "MAP<STRING, ARRAY<INT>>"),
    ],
)
def test_nested_values_are_written_as_they_are_read(cell: str, type_name: str) -> None:
    (text,) = split_cells(cell)
    assert format_value(parse_cell(text, type_name)) == cell


def test_rows() -> None:
    assert parse_row(("1", None), ["INT", "STRING"]) == (1, None)
    with pytest.raises(NotationError, match="has 1 cell, its stream or query 2 columns"):
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
        ([1, None], "'[1, NULL]'"),
        (["a, b"], "'[''a, b'']'"),
        ([], "[]"),
    ],
)
def test_values_as_cells(value: Value, cell: str) -> None:
    assert format_value(value) == cell


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("1, 2", ("1", "2")),
        ("  1 ,2  ", ("1", "2")),
        ("-1", ("-1",)),
        ("NULL, ∅, 'NULL', \"∅\"", (None, None, "NULL", "∅")),
        ("a b, ''", ("a b", "")),
        ("1,,2", ("1", "", "2")),
        ("'it''s', \"a, b\"", ("it's", "a, b")),
        ("it's bare", ("it's bare",)),
        ("1,", ("1", "")),
    ],
)
def test_cells(line: str, cells: tuple[str | None, ...]) -> None:
    assert split_cells(line) == cells


def test_cells_of_a_row_parse_to_the_same_row() -> None:
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
    assert (canonical_row([one]) == canonical_row([other])) is equal
    assert (hash(canonical_row([one])) == hash(canonical_row([other]))) or not equal


def test_consolidation() -> None:
    changes: list[tuple[int, tuple[Value, ...]]] = [(1, ("a",)), (1, (1.0,)), (-1, ("a",)), (1, (1,)), (-1, (None,))]
    assert consolidate(changes) == [(2, (1.0,)), (-1, (None,))]
