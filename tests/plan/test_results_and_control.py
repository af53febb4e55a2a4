"""A frontier that is set by hand is that of streams: results of a subquery come later, by their own event time."""

from __future__ import annotations

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.testing.harness import Harness, StepInput, load_script

SCRIPT = """
CREATE STREAM a (x INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT s, n
FROM (SELECT window_start AS s, count(*) AS n FROM TUMBLE(a, ts, INTERVAL '10' SECONDS) GROUP BY window_start)
ORDER BY s;
"""


def test_a_result_behind_a_frontier_set_by_hand_is_not_late() -> None:
    harness = Harness(*load_script(SCRIPT))
    harness.step({"a": StepInput([(1, 1), (1, 21)])}, [Event(EventKind.ADVANCE, frontier=25_000_000)])
    outcome = harness.step({"a": StepInput([(1, 27)])}, [Event(EventKind.END)])
    assert [row for _, row in outcome.changes] == [(20, 2)]
    assert outcome.count("late") == 0


def test_results_are_not_watched_for_silence() -> None:
    harness = Harness(*load_script(SCRIPT))
    outcome = harness.step({"a": StepInput([(1, 1)])})
    assert {name.split(".")[2] for name in outcome.counters if ".heard." in name} == {"a"}
