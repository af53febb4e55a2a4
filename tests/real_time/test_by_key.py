"""Targets with a PRIMARY KEY: whether the changes of a key have an order, and the operator that gives them one."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.real_time.epoch_harness import EpochHarness
from watersmeet.bind.by_key import in_order_of_keys, plan_insert
from watersmeet.bind.planning import plan_query
from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.frames import Frame, FrameKind, decode_table
from watersmeet.engine.settle import settled
from watersmeet.errors import UnsupportedError
from watersmeet.plan.key_order import keeps_order
from watersmeet.plan.operators.over import OverOperator
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.runtime.real_time.checks import check_real_time
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import InsertSelect
from watersmeet.testing.expressions import select
from watersmeet.testing.harness import load_script
from watersmeet.testing.rig import StepInput, StepOutcome

KAFKA = "WITH (connector = 'kafka', brokers = 'h:1', topic = 't')"
STREAMS = f"""
CREATE STREAM o (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE STREAM p (id INT, k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) {KAFKA};
CREATE MUTABLE STREAM c (id INT, k INT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM d (id INT, k INT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM by_id (id INT, k INT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM by_k (k INT, n BIGINT) PRIMARY KEY (k) {KAFKA};
CREATE MUTABLE STREAM by_text (t STRING, n BIGINT) PRIMARY KEY (t) {KAFKA};
CREATE MUTABLE STREAM with_delta (id INT, _tp_delta TINYINT) PRIMARY KEY (id) {KAFKA};
CREATE MUTABLE STREAM by_both (k INT, id INT) PRIMARY KEY (k, id) {KAFKA};
"""
RANKED = "SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS r FROM c"
MOVING = "SELECT id, k FROM c WHERE k < 5 UNION ALL SELECT id, k FROM c WHERE k >= 5"
WINDOW = "WITHIN INTERVAL '5' SECONDS"


def insert(target: str, sql: str, mode: str = "real_time") -> tuple[InsertSelect, Mapping[str, StreamDef]]:
    streams, _ = load_script(f"{STREAMS} SELECT * FROM o")
    (found,) = parse(f"INSERT INTO {target} {sql} SETTINGS mode = '{mode}'")
    assert isinstance(found, InsertSelect)
    return found, streams


def planned(target: str, sql: str, mode: str = "real_time") -> tuple[PhysicalPlan, StreamDef, tuple[str, ...]]:
    statement, streams = insert(target, sql, mode)
    to = streams[statement.stream]
    return plan_insert(statement, to, streams), to, statement.columns


@pytest.mark.parametrize(
    ("target", "sql", "has_order"),
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
def test_changes_of_a_key_have_an_order_or_get_one(target: str, sql: str, has_order: bool) -> None:
    statement, streams = insert(target, sql)
    alone, to = plan_query(statement.query, streams), streams[target]
    assert keeps_order(alone, to, ()) is has_order
    plan = plan_insert(statement, to, streams)
    assert [each.name for each in plan.outputs] == [each.name for each in alone.outputs]
    if has_order:
        assert len(plan.operators) == len(alone.operators)
    else:
        assert len(plan.operators) == len(alone.operators) + 1
        assert isinstance(plan.operators[-1], OverOperator)
    check_real_time(plan, to, (), is_continuous=True)


def test_micro_batches_need_no_further_operator() -> None:
    sql = "SELECT c.id, d.k FROM c JOIN d ON c.k = d.k"
    assert len(planned("by_id", sql, "micro_batch")[0].operators) < len(planned("by_id", sql)[0].operators)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT c.k, d.k FROM c JOIN d ON c.k = d.k",  # two columns of one name
        "SELECT count(*), max(o.id) FROM o GROUP BY o.k",  # columns without names
        "WITH w AS (SELECT c.id, d.k FROM c JOIN d ON c.k = d.k) SELECT w.id, w.k FROM w",
        "SELECT DISTINCT c.id, d.k FROM c JOIN d ON c.k = d.k",
        "SELECT c.id, d.k FROM c LEFT JOIN d ON c.k = d.k WHERE c.id > 3 EMIT CHANGELOG",
        "SELECT * FROM (SELECT c.id, d.k FROM c JOIN d ON c.k = d.k) q",
        "SELECT c.id, max(d.k) AS m FROM c JOIN d ON c.k = d.k GROUP BY c.id, c.k HAVING max(d.k) > 1",
        "SELECT m, k FROM (SELECT k, max(id) AS m FROM c GROUP BY k) ORDER BY k LIMIT 3",
        "SELECT c.id, c.k FROM c WHERE c.k IN (SELECT k FROM d)",
        "SELECT c.id, d.k FROM c JOIN d ON c.k = d.k UNION ALL SELECT id, k FROM o",
    ],
)
def test_any_query_gets_an_order(sql: str) -> None:
    plan, to, columns = planned("by_id", sql)
    check_real_time(plan, to, columns, is_continuous=True)


def test_named_columns_are_those_of_the_key() -> None:
    plan, to, _ = planned("by_id (k, id)", "SELECT d.k, c.id FROM c JOIN d ON c.k = d.k")
    check_real_time(plan, to, ("k", "id"), is_continuous=True)
    last = plan.operators[-1]
    assert isinstance(last, OverOperator)


def test_a_key_by_which_results_cannot_be_divided_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedError, match=r"cannot be divided by the PRIMARY KEY \(id\)") as raised:
        planned("by_id", "SELECT bit_count(c.id + d.id) AS id, d.k FROM c JOIN d ON c.k = d.k")
    assert raised.value.detail is not None
    assert "micro-batches take it" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("target", "sql", "why"),
    [
        ("by_id (k)", "SELECT d.k FROM c JOIN d ON c.k = d.k", r"INSERT INTO names no column of \(id\)"),
        ("with_delta", "SELECT c.id, 1 FROM c JOIN d ON c.k = d.k", "with_delta has a column _tp_delta"),
    ],
)
def test_a_target_whose_key_is_not_given_alone_is_refused(target: str, sql: str, why: str) -> None:
    plan, to, columns = planned(target, sql)
    with pytest.raises(UnsupportedError, match="takes the changes of a key in their order") as raised:
        check_real_time(plan, to, columns, is_continuous=True)
    assert re.fullmatch(why, raised.value.detail or "")


#: Rows move between buckets; the second key is c.id too, but only Spark computes it.
MOVED = (
    "SELECT c.id, d.k FROM c JOIN d ON c.k = d.id",
    "SELECT c.id + d.id % 1 AS id, d.k FROM c JOIN d ON c.k = d.id",
)
CHANGES = st.lists(st.tuples(st.sampled_from("cd"), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=24)


class AsWritten(EpochHarness):
    """Buckets take each step in any ``order``; ``written`` is what a target of the results holds then."""

    def __init__(self, order: Callable[[Sequence[int]], Sequence[int]], *args: Any) -> None:
        self._any_order = order
        self.written: dict[Any, Any] = {}
        super().__init__(*args, steps=10**6, buckets=3)

    def _order(self, buckets: Sequence[int]) -> Sequence[int]:
        return self._any_order(sorted(buckets))

    def _outcome(self, results: Iterable[Frame], plan: PhysicalPlan, schema: pa.Schema) -> StepOutcome:
        frames = list(results)
        for frame in frames:
            if frame.kind is FrameKind.ROWS:
                for row in select(plan, settled(decode_table(frame.payload))).to_pylist():
                    *key, value, weight = row.values()
                    self.written[tuple(key)] = value if weight > 0 else None
        return super()._outcome(frames, plan, schema)


def check_moves(
    sql: str, steps: Iterable[tuple[list[tuple[str, int, int]], bool]], order: Callable[[Sequence[int]], Sequence[int]]
) -> None:
    """Feed steps of changes of c and d, some of them after a restart; after each one every key has its row."""
    statement, streams = insert("by_id", sql)
    query = in_order_of_keys(statement, streams["by_id"], plan_query(statement.query, streams))
    assert query is not None
    with tempfile.TemporaryDirectory() as folder:
        harness = AsWritten(order, streams, query, Path(folder))
        rows: dict[str, dict[int, int]] = {"c": {}, "d": {}}
        for changes, restarts in steps:
            for name, key, value in changes:
                rows[name][key] = value
            if restarts:
                harness.restart()
            harness.step(
                {name: StepInput([(key, value) for stream, key, value in changes if stream == name]) for name in rows}
            )
            held = {key: value for key, value in harness.written.items() if value is not None}
            assert held == {(key,): rows["d"][k] for key, k in rows["c"].items() if k in rows["d"]}


@pytest.mark.sample(2)
@pytest.mark.parametrize("sql", MOVED)
def test_a_new_row_that_comes_before_the_old_one_has_gone_stays(sql: str) -> None:
    first = [("c", 1, 1), *(("d", key, 10 * key) for key in range(1, 5))]
    moves = [[("c", 1, k)] for k in (2, 3, 4, 1, 3, 2)]
    for order in (sorted, partial(sorted, reverse=True)):
        check_moves(sql, ((step, False) for step in [first, *moves]), order)


@pytest.mark.parametrize("sql", [MOVED[0], pytest.param(MOVED[1], marks=pytest.mark.slow)])
@given(changes=CHANGES, data=st.data())
def test_a_key_has_its_row_whichever_buckets_it_moves_through(
    sql: str, changes: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    def steps() -> Iterator[tuple[list[tuple[str, int, int]], bool]]:
        rest = changes
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            yield rest[:size], data.draw(st.booleans())
            rest = rest[size:]

    check_moves(sql, steps(), lambda buckets: data.draw(st.permutations(buckets)))
