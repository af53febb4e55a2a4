"""Which operators run in one task, and by what they are routed there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAMS = """
CREATE STREAM a (id BIGINT, k STRING, x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM b (id BIGINT, k STRING, y INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE MUTABLE STREAM c (id BIGINT, y BIGINT, ts TIMESTAMP) PRIMARY KEY (id);
"""
WINDOW = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECONDS))"
A, B = WINDOW.format("a"), WINDOW.format("b")


def plan_of(query: str) -> PhysicalPlan:
    return Harness(*load_script(STREAMS + query + ";")).plan


def tasks(plan: PhysicalPlan) -> list[list[str]]:
    return [[plan.operators[number].name for number in task] for task in plan.tasks]


def routes(plan: PhysicalPlan) -> list[str]:
    """By operator: the keys that its first input is hashed by."""
    hashes = {name: keys for part in plan.inputs for name, keys in part.hashes.items()}
    return [
        ", ".join(key.this.name for key in hashes[columns[0]]) if columns else ""
        for operator in plan.operators
        for columns in operator.routed_by[:1]
    ]


@pytest.mark.parametrize(
    ("query", "together", "by"),
    [
        pytest.param(
            "SELECT a.id, count(*) FROM a JOIN b ON a.id = b.id GROUP BY a.id",
            [["join_1", "aggregate"]],
            ["a:id", "a:id"],
            id="the key of a join",
        ),
        pytest.param(
            "SELECT b.id, count(*) FROM a JOIN b ON a.id = b.id GROUP BY b.id",
            [["join_1", "aggregate"]],
            ["a:id", "b:id"],
            id="the key of a join, from its other side",
        ),
        pytest.param(
            "SELECT b.id, count(*) FROM a LEFT JOIN b ON a.id = b.id GROUP BY b.id",
            [],
            ["a:id", "b:id"],
            id="the key of a side that may be padded",
        ),
        pytest.param(
            "SELECT q.id FROM a FULL JOIN b ON a.id = b.id WITHIN INTERVAL '1' MINUTE"
            " RIGHT SEMI JOIN a q ON a.id <=> q.id WITHIN INTERVAL '1' MINUTE EMIT CHANGELOG",
            [],
            ["a:id", "q:id"],
            id="the key of a side that may be padded, and that a semi join does not show",
        ),
        pytest.param(
            "SELECT a.k, a.id, count(*) FROM a JOIN b ON a.id = b.id GROUP BY a.k, a.id",
            [],
            ["a:id", "a:k, a:id"],
            id="one query's routes stay as they were",
        ),
        pytest.param(
            "SELECT s.n, b.y FROM (SELECT a.k, a.id, count(*) AS n FROM a JOIN b ON a.id = b.id GROUP BY a.k, a.id) s"
            " JOIN b ON s.n = b.y",
            [["s_join_1", "s_aggregate"]],
            ["a:id", "a:id", "s:n"],
            id="a part of the reader's key",
        ),
        pytest.param(
            f"SELECT p.id FROM (SELECT id, k, window_start, window_end FROM {A}"
            " GROUP BY id, k, window_start, window_end) p"
            f" JOIN (SELECT id, window_start, window_end FROM {B} GROUP BY id, window_start, window_end) q"
            " ON p.id = q.id AND p.window_start = q.window_start AND p.window_end = q.window_end",
            [["p_aggregate", "q_aggregate", "join_1"]],
            [
                "a:id, a:$window_start, a:$window_end",
                "b:id, b:$window_start, b:$window_end",
                "p:id, p:window_start, p:window_end",
            ],
            id="a part of the sender's key",
        ),
        pytest.param(
            f"SELECT window_end, max(n) FROM (SELECT k, count(*) AS n, window_start, window_end FROM {A}"
            " GROUP BY k, window_start, window_end) GROUP BY window_start, window_end",
            [],
            ["a:k, a:$window_start, a:$window_end", "subquery:window_start, subquery:window_end"],
            id="nothing but bounds of windows in common",
        ),
        pytest.param(
            "SELECT k, sum(x) FROM (SELECT k, x FROM a WHERE x > 0 UNION ALL SELECT k, y FROM b) GROUP BY k",
            [["union_1_forward", "union_2_forward", "aggregate"]],
            ["a:k", "b:k", "union:k"],
            id="rows of streams",
        ),
        pytest.param(
            "SELECT k, n FROM (SELECT k, count(*) AS n FROM a GROUP BY k) UNION ALL"
            " SELECT k, n FROM (SELECT k, count(*) AS n FROM b GROUP BY k)",
            [["union_1_aggregate", "union_2_aggregate", "forward"]],
            ["a:k", "b:k", ""],
            id="results that are only passed on",
        ),
        pytest.param(
            "SELECT n, y FROM (SELECT id, count(*) AS n FROM a GROUP BY id) s JOIN c ON s.id = c.id AND s.id = c.y",
            [["s_aggregate", "join_1"]],
            ["a:id", "c:id", "s:id"],
            id="a changing stream beside results",
        ),
        pytest.param(
            "SELECT max(n) FROM (SELECT k, count(*) AS n FROM a GROUP BY k)",
            [],
            ["a:k", ""],
            id="rows that meet in one bucket",
        ),
        pytest.param(
            "WITH c AS (SELECT k, count(*) AS n FROM a GROUP BY k), m AS (SELECT k, max(n) AS top FROM c GROUP BY k)"
            " SELECT c.k, m.top FROM c JOIN m ON c.k = m.k",
            [["m_aggregate", "join_1"]],
            ["a:k", "c':k", "c:k"],
            id="results that two operators read",
        ),
        pytest.param(
            "SELECT s.k, b.y FROM (SELECT k, count(*) AS n FROM a GROUP BY k) s JOIN b ON s.n = b.y AND s.k = b.k",
            [["s_aggregate", "join_1"]],
            ["a:k", "s:k"],
            id="a join of results and a stream is routed by a part of its key",
        ),
        pytest.param(
            "SELECT s.id, b.y FROM (SELECT id + 1 AS id, count(*) AS n FROM a GROUP BY id + 1) s JOIN b ON s.id = b.id",
            [["s_aggregate", "join_1"]],
            [None, "s:id"],
            id="a key that is computed",
        ),
    ],
)
def test_tasks(query: str, together: Sequence[Sequence[str]], by: Sequence[str | None]) -> None:
    plan = plan_of(query)
    assert tasks(plan) == list(together)
    known = [(found, wanted) for found, wanted in zip(routes(plan), by, strict=True) if wanted is not None]
    assert [found for found, _ in known] == [wanted for _, wanted in known]


def test_a_row_for_another_bucket_ends_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is hashed again on its way to the next operator of its task: a wrong plan loses nothing."""
    monkeypatch.setattr("watersmeet.testing.harness.joint_tasks", lambda plan, *_: ((0, 1),))
    query = "SELECT s.k, b.y FROM (SELECT k, count(*) AS n FROM a GROUP BY k) s JOIN b ON s.n = b.id;"
    harness = Harness(*load_script(STREAMS + query))
    rows = [(number, f"key {number}", 1, datetime(2026, 1, 1, tzinfo=UTC)) for number in range(20)]
    with pytest.raises(WatersmeetError, match=r"rows of bucket \d of join_1 belong in bucket \d"):
        harness.step({"a": StepInput(rows)})
