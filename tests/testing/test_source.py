"""Records as rows in the harness, good and quarantined, with the results of connectors/formats/values.py on Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from watersmeet.bind.define import define_stream
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import BAD, RAW, SEQUENCE, TP_DELTA
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import CreateStream
from watersmeet.testing.rig import StepInput
from watersmeet.testing.script import load_script
from watersmeet.testing.source import source_table

STREAMS, _ = load_script("CREATE STREAM a (i INT, d DECIMAL(4, 2), s STRING, b BOOLEAN); SELECT i FROM a")


def decoded(record: str) -> tuple[object, ...]:
    (row,) = source_table(STREAMS["a"], StepInput(raw=[record]), 0).to_pylist()
    assert (row[BAD] is None) == (row[RAW] is None)
    return row[BAD] or (row["i"], str(row["d"]), row["s"], row["b"])


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ('{"i": 1, "d": 2.50, "s": "x", "b": true}', (1, "2.50", "x", True)),
        ('{"I": null, "D": 2}', (None, "2.00", None, None)),
        ('{"i": 1, "s": 2.50}', (1, "None", "2.50", None)),
        ('{"s": {"a": [1.5, null]}}', (None, "None", '{"a":[1.5,null]}', None)),
        ('{"i": 1', "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('{"i": 1.5}', "i: 1.5 does not fit INT"),
        ('{"i": true}', "i: true does not fit INT"),
        ('{"i": 3000000000}', "'3000000000' is not a value of type INT\nit does not fit in 32 bits"),
        ('{"b": "true"}', 'b: "true" does not fit BOOLEAN'),
    ],
)
def test_json(record: str, found: object) -> None:
    assert decoded(record) == found


def changing(columns: str, mode: str = "versioned_kv", **options: str) -> StreamDef:
    given = "".join(f", {name} = '{value}'" for name, value in options.items())
    (statement,) = parse(
        f"CREATE STREAM c ({columns}) PRIMARY KEY (k) WITH (connector = 'files'{given}) SETTINGS mode = '{mode}'"
    )
    assert isinstance(statement, CreateStream)
    return define_stream(statement)


def test_rows_of_a_changing_stream() -> None:
    stream = changing("k STRING, v INT")
    given = StepInput([("a", 1), ("a", 2, -1), (None, 3), ("b", 4, 1)], ['{"k": "c"}', '{"v": 5}'])
    rows = source_table(stream, given, 0).to_pylist()
    assert [(row["k"], row["v"], row[TP_DELTA]) for row in rows] == [
        ("a", 1, 1), ("a", 2, -1), ("b", 4, 1), ("c", None, 1), (None, 3, None), (None, 5, None),
    ]  # fmt: skip
    assert [(row[BAD], row[RAW]) for row in rows[4:]] == [
        ("primary key column k is NULL", None),
        ("primary key column k is NULL", '{"v": 5}'),
    ]
    assert source_table(stream, StepInput(), 0).schema.field(TP_DELTA).type == "int8"


def test_a_declared_delta() -> None:
    stream = changing("k STRING, _tp_delta INT", "changelog_kv")
    rows = source_table(stream, StepInput([("a", -1), ("a", 3), ("b", None)], ['{"k": "c"}']), 0).to_pylist()
    assert [row[TP_DELTA] for row in rows] == [-1, None, None, None]
    said = ["_tp_delta is 3: a change is +1 or -1", *["_tp_delta is NULL: a change is +1 or -1"] * 2]
    assert [row[BAD] for row in rows[1:]] == said


@pytest.mark.parametrize(
    ("unit", "kind", "time"),
    [
        ("event_time_unit = 's'", "INT", 7),
        ("event_time_unit = 'us'", "BIGINT", 7_999_000),
        ("event_time_unit = 'row'", "BIGINT", None),
        ("x = 'y'", "TIMESTAMP", datetime(1970, 1, 1, 0, 0, 7, 999_000, UTC)),
        ("x = 'y'", "TIMESTAMP_NTZ", datetime(1970, 1, 1, 0, 0, 7, 999_000, UTC).replace(tzinfo=None)),
    ],
)
def test_a_debezium_delete_has_its_time_in_the_unit_of_the_column(unit: str, kind: str, time: object) -> None:
    name, value = (part.strip(" '") for part in unit.split("="))
    stream = changing(f"k STRING, ts {kind}", format="debezium-json", **{name: value})
    rows = source_table(stream, StepInput(raw=['{"op": "d", "before": {"k": "a"}, "ts_ms": 7999}']), 0).to_pylist()
    assert [(row["k"], row["ts"], row[TP_DELTA]) for row in rows] == [("a", time, -1)]


def test_both_rows_of_a_debezium_record_share_its_place() -> None:
    stream = changing("k STRING, v INT", "changelog_kv", format="debezium-json")
    update = '{"op": "u", "before": {"k": "a", "v": 1}, "after": {"k": "a", "v": 2}}'
    rows = source_table(stream, StepInput(raw=[update, update]), 5).to_pylist()
    assert [(row["v"], row[TP_DELTA], row[SEQUENCE][-1]) for row in rows] == [
        (1, -1, 5), (2, 1, 5), (1, -1, 6), (2, 1, 6),
    ]  # fmt: skip


def test_bad_records_come_last_with_their_text() -> None:
    rows = source_table(STREAMS["a"], StepInput([(1, None, None, None)], ["oops", '{"i": 2}']), 5).to_pylist()
    assert [(row["i"], row[RAW]) for row in rows] == [(1, None), (2, None), (None, "oops")]
