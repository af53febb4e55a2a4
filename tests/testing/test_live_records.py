"""Rows of cases as records of a topic."""

from __future__ import annotations

import json
from decimal import Decimal

from watersmeet.testing.cells import parse_row
from watersmeet.testing.harness import load_script
from watersmeet.testing.live_records import in_topic, records
from watersmeet.testing.rig import StepInput

SCRIPT = "CREATE STREAM s ({}, ts BIGINT, WATERMARK FOR ts AS ts) {} WITH (event_time_unit = 's'); SELECT ts FROM s;"


def test_every_type_as_the_json_format_reads_it() -> None:
    cells = {
        "TINYINT": ("-1", -1),
        "DOUBLE": ("0.1", 0.1),
        "FLOAT": ("-inf", "-Infinity"),
        "DECIMAL(20, 3)": ("12345678901234567.890", 12345678901234567.890),
        "STRING": ('a "quoted" ü', 'a "quoted" ü'),
        "BOOLEAN": ("true", True),
        "DATE": ("2026-01-31", "2026-01-31"),
        "TIMESTAMP": ("2026-01-31 10:00:00.000001", "2026-01-31T10:00:00.000001+00:00"),
        "TIMESTAMP_NTZ": ("2026-01-31 10:00:00", "2026-01-31T10:00:00"),
        "BINARY": ("00ff", "AP8="),
        "ARRAY<DECIMAL(3, 1)>": ("[1.5, NULL]", [1.5, None]),
        "MAP<DATE, STRUCT<a: STRING>>": ("{2026-01-31: '(x)'}", {"2026-01-31": {"a": "x"}}),
        "INT": (None, None),
    }
    streams, _ = load_script(SCRIPT.format(", ".join(f"c{i} {kind}" for i, kind in enumerate(cells)), ""))
    stream = in_topic(streams["s"], "b:1", "t")
    row = parse_row((*(cell for cell, _ in cells.values()), "5"), [column.type for column in stream.columns])
    (record,) = records(stream, StepInput([row]))
    assert list(json.loads(record).values()) == [*(value for _, value in cells.values()), 5]


def test_a_decimal_keeps_all_its_digits() -> None:
    streams, _ = load_script(SCRIPT.format("d DECIMAL(38, 10)", ""))
    stream = in_topic(streams["s"], "b:1", "t")
    number = Decimal("1234567890123456789012345678.0000000001")
    assert list(records(stream, StepInput([(number, 5)]))) == [
        b'{"d": 1234567890123456789012345678.0000000001, "ts": 5}'
    ]


def test_not_a_number_is_text() -> None:
    streams, _ = load_script(SCRIPT.format("d DOUBLE", ""))
    stream = in_topic(streams["s"], "b:1", "t")
    assert list(records(stream, StepInput([(float("nan"), 5)]))) == [b'{"d": "NaN", "ts": 5}']


def test_the_topic_of_a_stream_that_changes_declares_its_delta() -> None:
    streams, _ = load_script(
        SCRIPT.format("id INT", "PRIMARY KEY (id)").replace("); SELECT", ") SETTINGS mode = 'versioned_kv'; SELECT")
    )
    stream = in_topic(streams["s"], "b:1", "t")
    assert stream.column("_tp_delta") is not None
    found = [
        json.loads(record) for record in records(stream, StepInput([(1, 5), (1, 6, -1)], ["raw"])) if record != b"raw"
    ]
    assert found == [{"id": 1, "ts": 5, "_tp_delta": 1}, {"id": 1, "ts": 6, "_tp_delta": -1}]
