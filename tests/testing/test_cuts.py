"""Steps in parts: the ways to cut one, and which way a case leaves."""

from __future__ import annotations

import pytest

from watersmeet.testing import cuts
from watersmeet.testing.cuts import Cut, way_to_feed
from watersmeet.testing.notation import parse_cases
from watersmeet.testing.rig import StepInput

STREAMS = """
CREATE STREAM a (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM b (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""
JOIN = "SELECT a.id, b.ts FROM a LEFT JOIN b ON a.id = b.id WITHIN INTERVAL '10' SECONDS;"
VERSIONS = """
CREATE STREAM a (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM v (id INT, name STRING, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (id)
  WITH (event_time_unit = 's') SETTINGS mode = 'versioned_kv';
SELECT a.id, v.name FROM a LEFT JOIN v FOR SYSTEM_TIME AS OF PROCTIME() ON a.id = v.id;
"""


@pytest.mark.parametrize(
    ("cut", "parts"),
    [
        (cuts.whole, ["a1 a2 b3"]),
        (cuts.by_stream, ["a1 a2", "b3"]),
        (cuts.by_row, ["a1", "a2", "b3"]),
        (cuts.in_turn, ["a1", "b3", "a2"]),
        (cuts.by_stream_backwards, ["b3", "a1 a2"]),
        (cuts.by_row_backwards, ["b3", "a1", "a2"]),
        (cuts.in_turn_backwards, ["b3", "a1", "a2"]),
    ],
)
def test_the_parts_of_a_step(cut: Cut, parts: list[str]) -> None:
    step = {"a": StepInput(rows=[(1,)], raw=["2"]), "b": StepInput(rows=[(3,)])}
    found = [
        " ".join(
            f"{name}{row[0] if isinstance(row, tuple) else row}" for name, rows in part.items() for row in _all(rows)
        )
        for part in cut(step)
    ]
    assert found == parts


def _all(rows: StepInput) -> list[object]:
    return [*rows.rows, *rows.raw]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("case", "way"),
    [
        (f"{STREAMS}{JOIN}\n>>> a\n1, 100\n2, 130\n>>> b\n1, 105\n>>> end\n<<<\n+ 1, 105\n+ 2, NULL", cuts.whole),
        # an event has the version that is there when it comes
        (f"{VERSIONS}\n>>> v\n1, x, 1\n>>> a\n1, 2\n<<<\n+ 1, x", cuts.by_stream),
        (f"{VERSIONS}\n>>> a\n1, 2\n>>> v\n1, x, 1\n<<<\n+ 1, x", cuts.by_stream_backwards),
        # the second row of either stream would be late if it came for itself
        (f"{STREAMS}{JOIN}\n>>> a\n1, 200\n2, 150\n>>> b\n1, 200\n2, 150\n<<<\n+ 1, 200\n+ 2, 150", None),
    ],
)
def test_how_to_feed_a_case(case: str, way: Cut | None) -> None:
    (parsed,) = parse_cases(f"=== a case\n{case}\n")
    assert way_to_feed(parsed) is way
