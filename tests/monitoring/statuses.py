"""A query's status, made of real plans and made-up reports, for tests without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.bind.planning import plan_query
from watersmeet.plan.explain import explain, headlines
from watersmeet.plan.operator_tree import operator_tree
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.plan.worker_specs import time_units
from watersmeet.runtime.history import Batch, Failure, History
from watersmeet.runtime.report import Report, report_of
from watersmeet.runtime.run_progress import InputProgress, RunProgress, Unit
from watersmeet.runtime.status import QueryState, QueryStatus, operator_statuses
from watersmeet.sql.statements import Query
from watersmeet.testing.harness import load_script

STARTED = 1_795_000_000.0
CHAIN = """
CREATE STREAM o (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM p (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM s (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
SELECT o.id FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS
LEFT JOIN s ON o.id = s.id WITHIN INTERVAL '10' SECONDS SETTINGS multi_join = 'off';
"""
OVER_A_JOIN = """
CREATE STREAM o (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM p (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
SELECT window_start, count(*) AS n FROM TUMBLE(
  (SELECT o.id, o.ts FROM o JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS), ts, INTERVAL '1' MINUTE)
GROUP BY window_start, window_end;
"""


#: Two inputs of a bounded run, of which the second is behind.
HALF = RunProgress(
    inputs=(InputProgress("o", Unit.BYTES, 2_500_000_000, 2_000_000_000), InputProgress("p", Unit.RECORDS, 4000, 2100)),
    remaining=125.0,
)


def plan_of(script: str) -> PhysicalPlan:
    streams, query = load_script(script)
    assert isinstance(query, Query)
    return plan_query(query, streams)


def counters_of_chain(rows: int) -> dict[str, int]:
    """What a chain has counted after so many rows of each stream."""
    second = round(STARTED) * 1_000_000
    return {
        "join_1.in.o": rows,
        "join_1.used.o": rows - 3,
        "join_1.late.o": 2,
        "join_1.quarantined.o": 1,
        "join_1.in.p": rows,
        "join_1.used.p": rows,
        "join_1.results": rows // 2,
        "join_1.held.o": 7,
        "join_1.held_bytes.o": 700,
        "join_1.evicted.o.lru": 4,
        "join_1.state_rows": 7,
        "join_1.state_bytes": 700,
        "join_1.disk_bytes": 300,
        "join_1.frontier": second,
        "join_1.input_frontier.o": second,
        "join_1.input_frontier.p": second + 4_000_000,
        "join_1.newest.o": second + 5_000_000,
        "join_1.hot_keys": 1,
        "join_1.step_time.40": 3,
        "join_1.worker_bytes": 90_000_000,
        "join_2.in.s": rows,
        "join_2.used.s": rows,
        "join_2.results": rows // 2,
        "join_2.state_rows": 1,
        "join_2.state_bytes": 80,
    }


def status_after(
    plan: PhysicalPlan,
    batches: Sequence[tuple[float, Mapping[str, int]]],
    *,
    now: float,
    name: str = "q",
    state: QueryState = QueryState.RUNNING,
    waiting: str = "",
    failures: tuple[Failure, ...] = (),
    checkpoint: str = "/data/queries/q",
    progress: RunProgress | None = None,
) -> QueryStatus:
    """The status of a query after batches, each with the seconds from its start and its counters."""

    def report(history: History) -> Report:
        return report_of(
            history.counters,
            batches=history.batches,
            rows_out=history.rows_out,
            last_batch_ms=history.last_batch_ms,
            waiting=waiting,
            streams=[part.input.alias for part in plan.streams],
            units=time_units(plan),
            progress=progress,
        )

    history = History(started=STARTED, counters={})
    for number, (after, counters) in enumerate(batches):
        batch = Batch(number=number, ended=STARTED + after, counters=counters, rows_out=10, milliseconds=1500)
        history = history.after(batch, report)
    for failure in failures:
        history = history.failed(failure)
    tree = operator_tree(plan)
    return QueryStatus(
        time=STARTED + now,
        name=name,
        state=state,
        mode="continuous",
        is_real_time=False,
        checkpoint=checkpoint,
        targets=("results",),
        tree=tree,
        operators=operator_statuses(tree, headlines(plan), report(history), history, STARTED + now),
        report=report(history),
        history=history,
        ended=STARTED + now if state in (QueryState.ENDED, QueryState.FAILED, QueryState.STOPPED) else None,
        write_plan=lambda: explain(plan, history.counters),
    )
