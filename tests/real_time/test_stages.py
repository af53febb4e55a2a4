"""Which operators share a stage, and which task of a stage reads which input."""

from __future__ import annotations

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import UnsupportedError
from watersmeet.lookup.source import LookupSource
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.real_time.checks import check_real_time
from watersmeet.runtime.real_time.stages import first_tasks, sources_of, stages_of
from watersmeet.testing.harness import load_script

KAFKA = "WITH (connector = 'kafka', brokers = 'h:1', topic = 't')"
STREAMS = f"""
CREATE STREAM o (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE STREAM p (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE STREAM q (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE MUTABLE STREAM c (id INT, k INT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM d (id INT, k INT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM by_id (id INT, k INT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM by_k (k INT, n BIGINT) PRIMARY KEY (k) {KAFKA};
CREATE MUTABLE STREAM by_text (t STRING, n BIGINT) PRIMARY KEY (t) {KAFKA};
CREATE MUTABLE STREAM by_both (k INT, id INT) PRIMARY KEY (k, id) {KAFKA};
"""
RANKED = "SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS r FROM c"
MOVING = "SELECT id, k FROM c WHERE k < 5 UNION ALL SELECT id, k FROM c WHERE k >= 5"
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


@pytest.mark.parametrize(
    ("target", "sql", "is_taken"),
    [
        # one operator over append-only streams: a row stays where it came first
        ("by_id", f"SELECT o.id, p.k FROM o LEFT JOIN p ON o.k = p.k {WINDOW} EMIT CHANGELOG", True),
        ("by_k", f"SELECT o.k, count(*) AS n FROM o JOIN p ON o.id = p.id {WINDOW} GROUP BY o.k", True),
        # two groups may have the same count, one after the other
        ("by_k", "SELECT count(*) AS k, max(o.id) AS n FROM o GROUP BY o.k", False),
        ("by_k", "SELECT o.k, count(*) AS n FROM o GROUP BY o.k", True),
        ("by_k", "SELECT count(*) AS k, max(o.id) AS n FROM o", True),
        ("by_id", "SELECT c.id, d.k FROM c JOIN d ON c.id = d.id", True),
        # a changed c.k moves a row to another bucket, where it may overtake its retraction
        ("by_id", "SELECT c.id, d.k FROM c JOIN d ON c.k = d.k", False),
        ("by_both", "SELECT c.k, c.id FROM c JOIN d ON c.k = d.k", True),
        ("by_k", "SELECT max(c.id) AS k, count(*) AS n FROM c GROUP BY c.k", False),
        ("by_k", "SELECT id AS k, count(*) AS n FROM (SELECT max(c.id) AS id FROM c GROUP BY c.k) GROUP BY id", True),
        # the groups by k have one bucket each; of those by id, several may give a row of one key in turn
        ("by_k", "SELECT g.k, d.k AS n FROM (SELECT k, max(id) AS id FROM c GROUP BY k) g JOIN d ON g.k = d.id", True),
        (
            "by_k",
            "SELECT g.m AS k, d.k AS n FROM (SELECT id, max(k) AS m FROM c GROUP BY id) g JOIN d ON g.m = d.id",
            False,
        ),
        (
            "by_both",
            "SELECT g.m AS k, g.id FROM (SELECT id, max(k) AS m FROM c GROUP BY id) g JOIN d ON g.m = d.id",
            True,
        ),
        # a row moves between the branches, which do not wait for each other
        ("by_id", f"SELECT u.id, d.k FROM ({MOVING}) u JOIN d ON u.id = d.id", False),
        ("by_k", f"SELECT u.k, count(*) AS n FROM ({MOVING}) u GROUP BY u.k", True),
        ("by_k", f"SELECT k, id AS n FROM ({RANKED}) WHERE r = 1", True),
        ("by_id", f"SELECT id, k FROM ({RANKED}) WHERE r <= 2", False),
        ("by_both", f"SELECT k, CAST(r AS INT) AS id FROM ({RANKED}) WHERE r <= 2", True),
        ("by_id", "SELECT id, k FROM c ORDER BY k LIMIT 3", True),
        # casts that make one key of several groups, which have a bucket each
        ("by_k", "SELECT CAST(h AS INT) AS k, count(*) AS n FROM (SELECT k / 2 AS h FROM o) GROUP BY h", False),
        ("by_k", "SELECT h AS k, count(*) AS n FROM (SELECT k / 2 AS h FROM o) GROUP BY h", False),
        ("by_k", "SELECT k, count(*) AS n FROM (SELECT CAST(k / 2 AS INT) AS k FROM o) GROUP BY k", True),
        ("by_k", "SELECT CAST(k AS BIGINT) AS k, count(*) AS n FROM o GROUP BY k", True),
        ("by_text", "SELECT CAST(k AS STRING) AS t, count(*) AS n FROM o GROUP BY k", True),
        ("by_text", "SELECT CAST(k / 2 AS STRING) AS t, count(*) AS n FROM o GROUP BY k", False),
        ("by_id", "SELECT m AS id, k FROM (SELECT k, max(id) AS m FROM c GROUP BY k) ORDER BY k LIMIT 3", False),
    ],
)
def test_changes_of_a_key_come_from_one_bucket_or_are_refused(target: str, sql: str, is_taken: bool) -> None:
    plan, streams = planned(sql)
    if is_taken:
        check_real_time(plan, streams[target], (), is_continuous=True)
    else:
        with pytest.raises(UnsupportedError, match="takes the changes of a key in their order"):
            check_real_time(plan, streams[target], (), is_continuous=True)
