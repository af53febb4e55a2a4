"""Records as rows, in the harness: what is read and what is set aside, as connectors/formats.py does it on Spark."""

from __future__ import annotations

import pytest

from watersmeet.columns import BAD, RAW
from watersmeet.testing.bench import StepInput
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


def test_bad_records_come_last_with_their_text() -> None:
    rows = source_table(STREAMS["a"], StepInput([(1, None, None, None)], ["oops", '{"i": 2}']), 5).to_pylist()
    assert [(row["i"], row[RAW]) for row in rows] == [(1, None), (2, None), (None, "oops")]
