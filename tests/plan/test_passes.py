"""The contract of all passes: a whole query in, a whole query out, and the first one left as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement import bind
from watersmeet.errors import WatersmeetError
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import joins_of, leaves_of
from watersmeet.plan.passes import PASSES, optimize
from watersmeet.testing.notation import parse_cases
from watersmeet.testing.script import load_script

CASES = Path(__file__).parents[1] / "cases"
FILES = ("chains", "left", "semi_anti", "temporal_tables", "changing", "windows", "aggregates")
STREAMS = """
CREATE STREAM a (k INT, x INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 'row');
CREATE STREAM b (k INT, y INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 'row');
CREATE STREAM c (k INT, z INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 'row');
"""


def bound(sql: str) -> LogicalQuery:
    streams, query = load_script(STREAMS + sql)
    return bind(query, streams)


@pytest.mark.parametrize("file", FILES)
def test_a_pass_leaves_its_argument_unchanged(file: str) -> None:
    checked = 0
    for case in parse_cases((CASES / f"{file}.wmt").read_text(encoding="utf-8"), file):
        try:
            streams, script = load_script(case.script)
            query = bind(script, streams)
            for each in PASSES:
                before = repr(query)
                after = each(query)
                assert repr(query) == before, f"{case.title}: {each.__name__}"
                assert isinstance(after, LogicalQuery)
                query = after
        except WatersmeetError:
            continue  # a case that must fail
        checked += 1
    assert checked


def test_conditions_sink_to_the_inputs_that_they_read() -> None:
    query = optimize(
        bound("SELECT a.k FROM a JOIN b ON a.k = b.k AND b.y > 1 AND a.ts = b.ts WHERE a.x > 2 AND a.x + b.y > 3;")
    )
    assert [[str(each) for each in leaf.input.filters] for leaf in leaves_of(query.root)] == [
        ['"a:x" > 2'],
        ['"b:y" > 1'],
    ]
    (join,) = joins_of(query.root)
    assert [str(each) for each in join.condition.residual] == ['"a:x" + "b:y" > 3']
    assert query.filters == ()


def test_the_padded_side_is_filtered_after_the_join() -> None:
    query = optimize(bound("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND a.ts = b.ts WHERE b.y IS NULL;"))
    assert [str(each) for each in query.filters] == ['"b:y" IS NULL']
    assert all(not leaf.input.filters for leaf in leaves_of(query.root))


def test_right_semi_is_left_semi_with_its_sides_swapped() -> None:
    streams, query = load_script(
        STREAMS + "SELECT * FROM a RIGHT SEMI JOIN b ON a.k = b.k AND b.ts - a.ts BETWEEN 0 AND 5;"
    )
    plan = plan_query(query, streams)
    (join,) = joins_of(plan.query.root)
    assert [leaf.input.alias for leaf in leaves_of(join)] == ["b", "a"]
    assert (join.condition.bounds.lower, join.condition.bounds.upper) == (-5, 0)
    assert [column.name for column in plan.outputs] == ["k", "y", "ts"]
