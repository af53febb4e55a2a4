"""Reports: what a query's counters add up to, for the whole query and for each operator."""

from __future__ import annotations

import pytest

from watersmeet.engine.step_times import bin_of, percentile
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.api import FOREVER, NEVER
from watersmeet.runtime.report import OperatorReport, Report, report_of
from watersmeet.testing.harness import Harness, StepInput, load_script

COUNTERS = {
    "join_1.in.o": 12,
    "join_1.used.o": 8,
    "join_1.used.p": 2,
    "join_1.late.o": 3,
    "join_1.reopened.o": 1,
    "join_1.filtered.o": 1,
    "join_1.held.o": 4,
    "join_1.held_bytes.o": 200,
    "join_1.evicted.o.lru": 2,
    "join_1.expired.p": 1,
    "join_1.newest.o": 90_000_000,
    "join_1.newest.p": 80_000_000,
    "join_1.frontier": 75_000_000,
    "join_1.input_frontier.o": 85_000_000,
    "join_1.input_frontier.p": 75_000_000,
    "join_1.matched": 5,
    "join_1.results": 7,
    "join_1.state_rows": 4,
    "join_1.state_bytes": 300,
    "join_1.disk_bytes": 200,
    "join_1.worker_bytes": 5_000,
    "join_1.step_time.40": 19,
    "join_1.step_time.60": 1,
    "join_2.used.q": 9,
    "join_2.state_rows": 6,
    "join_2.state_bytes": 100,
    "join_2.frontier": NEVER,
    "join_2.hot_keys": 2,
}


def report(units: dict[str, TimeUnit] | None = None) -> Report:
    return report_of(COUNTERS, batches=3, rows_out=7, last_batch_ms=40, streams="opq", units=units)


def test_a_query_is_the_sum_of_its_operators() -> None:
    whole = report()
    assert (whole.batches, whole.rows_out, whole.state_rows, whole.state_bytes) == (3, 7, 10, 400)
    assert whole.used == {"o": 8, "p": 2, "q": 9}
    assert (whole.rows_in, whole.late, whole.reopened) == ({"o": 12}, {"o": 3}, {"o": 1})
    assert (whole.evicted, whole.expired) == ({"o.lru": 2}, {"p": 1})
    assert whole.counters == {
        "join_1.reopened.o": 1,
        "join_1.evicted.o.lru": 2,
        "join_1.expired.p": 1,
        "join_2.hot_keys": 2,
    }


def test_results_that_are_packed_again_are_rows_in_of_their_operator_alone() -> None:
    counters = {"join_1.in.o": 5, "join_1.in.p": 4, "aggregate.in.subquery": 3, "aggregate.used.subquery": 2}
    counters |= {"join_1.used.o": 5, "aggregate.late.subquery": 1}
    whole = report_of(counters, batches=1, rows_out=0, last_batch_ms=1, streams="op")
    assert (whole.rows_in, whole.used) == ({"o": 5, "p": 4}, {"o": 5})
    assert whole.operators["aggregate"].rows_in == {"subquery": 3}
    assert whole.late == {"subquery": 1}  # lost all the same


def test_an_operator_tells_what_it_holds_and_how_far_it_is() -> None:
    join = report().operators["join_1"]
    assert (join.held, join.held_bytes) == ({"o": 4}, {"o": 200})
    assert (join.results, join.matched, join.match_rate) == (7, 5, 0.5)
    assert (join.frontier, join.newest, join.lag, join.lag_text) == (75_000_000, 90_000_000, 15_000_000, "15 s")
    assert join.input_frontiers == {"o": 85_000_000, "p": 75_000_000}
    assert (join.hot_keys, report().operators["join_2"].hot_keys) == (None, 2)
    assert join.steps == 20
    assert join.step_p50 == pytest.approx(0.001, rel=0.2)
    assert join.step_p95 == pytest.approx(0.001, rel=0.2)
    assert join.worker_bytes == 5_000
    assert join.disk_bytes == 200


@pytest.mark.parametrize(
    ("lag", "unit", "text"),
    [
        (2_742_808, TimeUnit.TIMESTAMP, "2.742 s"),
        (2_742_808, TimeUnit.ROWS, "2742808 rows"),
        (808, TimeUnit.TIMESTAMP, "808 µs"),
    ],
)
def test_a_lag_is_told_in_whole_milliseconds(lag: int, unit: TimeUnit, text: str) -> None:
    assert OperatorReport(frontier=5, newest=5 + lag, unit=unit).lag_text == text


def test_what_is_not_known_is_not_made_up() -> None:
    other = report().operators["join_2"]
    assert (other.frontier, other.lag, other.lag_text) == (None, None, "")
    assert (other.matched, other.match_rate, other.step_p50) == (None, None, None)
    ended = report_of(
        {"join_1.frontier": FOREVER, "join_1.newest.o": 5}, batches=1, rows_out=0, last_batch_ms=1, streams="o"
    )
    assert ended.operators["join_1"].lag is None
    assert OperatorReport().match_rate is None


def test_streams_that_count_rows_lag_by_rows() -> None:
    rows = report_of(
        {"join_1.newest.o": 50, "join_1.frontier": 20},
        batches=1,
        rows_out=0,
        last_batch_ms=1,
        streams="o",
        units={"join_1": TimeUnit.ROWS},
    )
    assert rows.operators["join_1"].lag_text == "30 rows"


@pytest.mark.parametrize("seconds", [0.0, 0.000_001, 0.004, 0.1, 3.0])
def test_a_length_is_known_to_a_fifth(seconds: float) -> None:
    found = percentile({bin_of(seconds): 1}, 0.5)
    assert found == pytest.approx(max(seconds, 0.000_001), rel=0.2)


def test_a_running_join_reports_both_sides() -> None:
    harness = Harness(
        *load_script(
            """
            CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts - 5) WITH (event_time_unit = 's');
            CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts - 5) WITH (event_time_unit = 's');
            SELECT o.id, p.ts FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS;
            """
        )
    )
    outcome = harness.step({"o": StepInput([(1, 10), (2, 11)]), "p": StepInput([(1, 12), (1, 13), (3, 40)])})
    join = report_of(outcome.counters, batches=1, rows_out=2, last_batch_ms=1, streams="op").operators["join_1"]
    assert (join.results, join.matched, join.match_rate) == (2, 2, 0.4)
    assert join.held == {"o": 2, "p": 3}
    assert sum(join.held_bytes.values()) == join.state_bytes
    assert (join.newest, join.lag) == (40_000_000, 34_000_000)
    assert join.input_frontiers == {"o": 6_000_000, "p": 35_000_000}
    assert join.steps == 2  # one for each bucket
    assert join.worker_bytes > 10_000_000
