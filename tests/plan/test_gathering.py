"""Rows of a window's group that are packed as one: which aggregates get them, and that each of them counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from watersmeet.engine.frames import FrameKind
from watersmeet.engine.gathering import Gathering, gathered
from watersmeet.errors import WatersmeetError
from watersmeet.testing.cells import Row
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAM = "CREATE STREAM a (k STRING, x INT, f DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts);\n"
WINDOW = "TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECONDS))"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def query(calls: str, more: str = "") -> str:
    return f"SELECT k, window_start, {calls} FROM {WINDOW} {more} GROUP BY k, window_start, window_end"


def at(second: float, k: str | None = "a", x: int | None = 1, f: float | None = 1.0) -> Row:
    return (k, x, f, BEGIN + timedelta(seconds=second))


@pytest.mark.parametrize(
    ("sql", "is_gathered"),
    [
        (query("count(*), count(x), sum(x), avg(x), min(x), max(f)"), True),
        (query("sum(CAST(x AS DECIMAL(9, 2))) FILTER (WHERE x > 1)"), True),
        (query("max(x), min(x)"), False),  # both ends of the same values
        (query("sum(f)"), False),  # depends on the order
        (query("count(DISTINCT x)"), False),
        (query("last(x)"), False),
        (query("count(*)") + " SETTINGS late_rows = 'keep'", False),
        ("SELECT k, count(*) FROM a GROUP BY k", False),
        ("SELECT ts, count(*) FROM a GROUP BY ts EMIT FINAL", False),
    ],
)
def test_which_are_gathered(sql: str, is_gathered: bool) -> None:
    plan = Harness(*load_script(f"{STREAM}{sql};")).plan
    assert (plan.inputs[0].gathering is not None) == is_gathered


def test_one_row_travels_for_each_group() -> None:
    harness = Harness(*load_script(STREAM + query("count(*) AS n, max(x) AS most") + ";"), buckets=1)
    rows = StepInput([at(1, x=5), at(2, x=None), at(3, x=7), at(11)])
    frames = harness._pack(harness.plan.inputs[0], rows, harness._tasks.packs[0])
    assert [frame.frontier for frame in frames if frame.kind is FrameKind.ROWS] == [2]


def test_rows_are_counted_one_by_one() -> None:
    harness = Harness(*load_script(STREAM + query("count(*) AS n, sum(x) AS s", "WHERE x IS NULL OR x > 0") + ";"))
    found = harness.step({"a": StepInput([at(1), at(2, x=None), at(2, x=-1), at(25), at(26)])})
    assert found.changes == [(1, ("a", BEGIN, 2, 1))]
    found = harness.step({"a": StepInput([at(3), at(4), at(5, k="b"), at(27, x=None), at(41)])})
    assert found.changes == [(1, ("a", BEGIN + timedelta(seconds=20), 3, 2))]
    counters = {name.split(".")[1]: value for name, value in found.counters.items() if name.endswith(".a")}
    assert {name: counters[name] for name in ("in", "late", "used")} == {"in": 10, "late": 3, "used": 6}
    assert counters["filtered"] == 1


def test_a_value_that_cannot_be_computed_is_one_sentence() -> None:
    """What a worker computes of a column; the harness computes other expressions before rows are packed."""
    gathering = Gathering((("g", '"k"', pa.string()),), (("s", 'sum(CAST("x" AS TINYINT))', pa.int64()),), ())
    rows = pa.table({"$t": [1], "k": ["a"], "x": [300]})
    with pytest.raises(WatersmeetError, match=r"an expression of aggregate cannot be evaluated: .*300"):
        gathered(rows, gathering, (), "aggregate")
