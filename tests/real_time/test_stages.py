"""Which operators share a stage, and which task of a stage reads which input."""

from __future__ import annotations

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.lookup.source import LookupSource
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.real_time.stages import first_tasks, sources_of, stages_of
from watersmeet.testing.harness import load_script

KAFKA = "WITH (connector = 'kafka', brokers = 'h:1', topic = 't')"
STREAMS = f"""
CREATE STREAM o (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE STREAM p (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE STREAM q (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE MUTABLE STREAM c (id INT, k INT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM d (id INT, k INT) PRIMARY KEY (id) {KAFKA};
"""
WINDOW = "WITHIN INTERVAL '5' SECONDS"
MAXIMA = f"SELECT o.id, max(p.k) AS m FROM o JOIN p ON o.id = p.id {WINDOW} GROUP BY o.id"


def planned(sql: str) -> tuple[PhysicalPlan, dict[str, StreamDef]]:
    streams, query = load_script(STREAMS + sql)

    def no_table(table: StreamDef, columns: object) -> LookupSource:
        raise AssertionError(table)

    return plan_query(query, streams, no_table), dict(streams)


@pytest.mark.parametrize(
    ("sql", "stages", "sources", "firsts"),
    [
        (f"SELECT o.id FROM o JOIN p ON o.id = p.id {WINDOW}", [[0]], [[0, 1]], {0: 0, 1: 1}),
        (
            f"SELECT o.id FROM o JOIN p ON o.id = p.id {WINDOW} JOIN q ON o.k = q.k {WINDOW}",
            [[0], [1]],
            [[0, 1], [2]],
            {0: 0, 1: 1, 2: 4},  # after the four tasks of the first join
        ),
        ("SELECT c.id FROM c JOIN d ON c.k = d.k", [[0, 1], [2]], [[0, 1], []], {0: 0, 1: 1}),
        # the groups by id are in the buckets of the join by id: one task
        (
            f"SELECT id, count(*) AS n FROM ({MAXIMA}) GROUP BY id",
            [[0], [1, 2]],
            [[0, 1], []],
            {0: 0, 1: 1},
        ),
        # the groups by m are elsewhere: a stage of their own
        (
            f"SELECT m, count(*) AS n FROM ({MAXIMA}) GROUP BY m",
            [[0], [1], [2]],
            [[0, 1], [], []],
            {0: 0, 1: 1},
        ),
    ],
)
def test_operators_equally_far_from_the_sources_share_a_stage(
    sql: str, stages: list[list[int]], sources: list[list[int]], firsts: dict[int, int]
) -> None:
    plan, _ = planned(sql)
    assert stages_of(plan) == stages
    assert [sources_of(plan, stage) for stage in stages] == sources
    assert first_tasks(plan, dict.fromkeys(firsts, 1), buckets=4) == firsts
