"""The decoder of JSON records without Spark; tests/spark/test_json_records.py compares it with Spark's."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.records.json import json_decoder

COLUMNS = pa.schema([("i", pa.int64()), ("t", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
FIRST = dt.datetime(2022, 1, 1, tzinfo=dt.UTC)


def decode(*records: bytes | None) -> tuple[list[tuple[Any, ...]], list[int], list[int]]:
    decoder = json_decoder(COLUMNS)
    assert decoder is not None
    found = decoder.decode(pa.array(records, pa.binary()))
    assert found.rows.schema == COLUMNS
    return [tuple(row.values()) for row in found.rows.to_pylist()], found.records.tolist(), found.left.tolist()


def test_rows_keep_the_order_and_the_number_of_their_records() -> None:
    rows, records, left = decode(
        b'{"i":1}', None, b'{"i":"x"}', b'{"t":"a"}', b"", b'{"i":2,"ts":"2022-01-01T00:00:00Z"}'
    )
    assert rows == [(1, None, None), (None, "a", None), (2, None, FIRST)]
    assert (records, left) == ([0, 3, 5], [1, 2, 4])


def test_nothing_to_decode() -> None:
    assert decode() == ([], [], [])
    assert decode(None, b"x") == ([], [], [0, 1])


@pytest.mark.parametrize(
    "record",
    [
        b'{"i":1}{"i":2}',
        b'{"i":1}\n{"i":2}',
        b'{"i":1,"i":2}',
        b' {"i":1}',
        b'{"i":1.0}',
        b'{"t":1}',
        b'{"t":"\xff"}',
        b'{"u":NaN}',
        b'{"ts":"2022-01-01"}',
        b'{"i":',
        b'{"t":"}',
        b'{"u":[}',
        b'{"u":{}',
    ],
)
def test_what_is_not_plain_is_left_and_harms_no_neighbour(record: bytes) -> None:
    rows, records, left = decode(b'{"i":1}', record, b'{"i":3}')
    assert (rows, records, left) == ([(1, None, None), (3, None, None)], [0, 2], [1])


def test_objects_may_span_lines_and_have_more_fields() -> None:
    rows, _, left = decode(b'{\n "i" : 1,\n "u": [{"i": 5}], "t": "Inf \\u00e9\\n"}', b"{}")
    assert rows == [(1, "Inf \u00e9\n", None), (None, None, None)]
    assert left == []


def test_times_may_be_seconds_in_some_blocks() -> None:
    decoder = json_decoder(COLUMNS)
    assert decoder is not None
    for text in (b"1640995200", b'"2022-01-01T00:00:00"', b"1640995200"):
        found = decoder.decode(pa.array([b'{"ts":' + text + b"}"] * 3, pa.binary()))
        assert found.rows["ts"].to_pylist() == [FIRST] * 3


def test_types_that_only_spark_decodes() -> None:
    assert json_decoder(pa.schema([("a", pa.list_(pa.int32()))])) is None
    assert json_decoder(pa.schema([("b", pa.binary())])) is None
