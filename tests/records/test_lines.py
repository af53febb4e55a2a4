"""Lines as records: each has a place of its own, in the order in which they came."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

from watersmeet.columns import SEQUENCE, TP_TIME
from watersmeet.records.lines import LINE, LINE_SCHEMA, LineReader

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def batch(*lines: str, place: bytes = b"f") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            LINE: pa.array(lines, pa.string()),
            SEQUENCE: pa.array([place] * len(lines), pa.binary()),
            TP_TIME: pa.array([NOW] * len(lines), pa.timestamp("us", "Europe/Paris")),
        }
    )


def test_places_rise_over_the_batches_of_a_task() -> None:
    reader = LineReader()
    found = [lines for each in (batch("a", "b"), batch(), batch("c")) for lines in reader(each)]
    assert [value for lines in found for value in lines.values.to_pylist()] == [b"a", b"b", b"c"]
    places = [
        place for lines in found for place in lines.raw(np.arange(len(lines.values))).column(SEQUENCE).to_pylist()
    ]
    assert places == [b"f" + number.to_bytes(8) for number in range(3)]


def test_hidden_columns_and_raw_lines_are_those_of_the_numbers_asked_for() -> None:
    (lines,) = LineReader()(batch("a", "b", "c"))
    hidden = lines.hidden((SEQUENCE, TP_TIME), np.array([2, 0]))
    assert hidden.to_pydict() == {SEQUENCE: [b"f" + bytes(7) + b"\2", b"f" + bytes(8)], TP_TIME: [NOW, NOW]}
    raw = lines.raw(np.array([1]))
    assert raw.schema == LINE_SCHEMA
    assert raw.column(LINE).to_pylist() == [b"b"]
