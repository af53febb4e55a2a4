"""Windows that follow from the conditions of a whole group of inner joins."""

from __future__ import annotations

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement import bind
from watersmeet.errors import PlanError
from watersmeet.plan.explain import explain
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Join, JoinCondition, joins_of
from watersmeet.plan.passes import optimize
from watersmeet.plan.passes.close_windows import close_windows
from watersmeet.plan.passes.push_filters import push_filters
from watersmeet.testing.harness import load_script

SECOND = 1_000_000
BOTH = "c.ts BETWEEN a.ts AND a.ts + 10 AND c.ts BETWEEN b.ts AND b.ts + 10"


def streams(units: str = "ssss") -> str:
    names = {"s": "s", "r": "row", "u": "us"}
    return "".join(
        f"CREATE STREAM {name} (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = '{names[unit]}');"
        for name, unit in zip("abcd", units, strict=True)
    )


def joins(sql: str, units: str = "ssss") -> list[Join]:
    known, query = load_script(f"{streams(units)}SELECT 1 AS x FROM {sql} SETTINGS multi_join = 'off'")
    return list(joins_of(optimize(bind(query, known)).root))


def windows(sql: str, units: str = "ssss") -> list[tuple[int | None, int | None]]:
    return [bounds(join.condition) for join in joins(sql, units)]


def bounds(found: JoinCondition) -> tuple[int | None, int | None]:
    lower, upper = found.bounds.lower, found.bounds.upper
    return lower if lower is None else lower // SECOND, upper if upper is None else upper // SECOND


@pytest.mark.parametrize(
    ("sql", "first"),
    [
        (f"a JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND {BOTH}", (-10, 10)),
        (f"a JOIN b ON a.k = b.k JOIN c ON a.k = c.k WHERE {BOTH}", (-10, 10)),
        (f"a, b, c WHERE a.k = b.k AND a.k = c.k AND {BOTH}", (-10, 10)),
        (f"a JOIN b ON a.k = b.k LEFT SEMI JOIN c ON a.k = c.k AND {BOTH}", (-10, 10)),
        (f"a JOIN b ON a.k = b.k WHERE EXISTS (SELECT 1 FROM c WHERE a.k = c.k AND {BOTH})", (-10, 10)),
        # one of the two sides is written
        (f"a JOIN b ON a.k = b.k AND b.ts >= a.ts JOIN c ON a.k = c.k AND {BOTH}", (0, 10)),
        # nothing is gained
        (f"a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 3 JOIN c ON a.k = c.k AND {BOTH}", (0, 3)),
        ("a JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND c.ts BETWEEN a.ts AND a.ts + 10", (None, None)),
        # over four inputs, and from WITHIN
        (
            (
                "a JOIN b ON a.k = b.k JOIN c ON b.k = c.k AND c.ts = b.ts JOIN d ON c.k = d.k AND d.ts = c.ts + 1"
                " AND d.ts = a.ts"
            ),
            (-1, -1),
        ),
        (
            (
                "a JOIN b ON a.k = b.k JOIN c ON b.k = c.k AND a.k = c.k WITHIN INTERVAL '4' SECONDS"
                " JOIN d ON c.k = d.k AND d.ts = c.ts"
            ),
            (-8, 8),
        ),
        # conditions of outer and anti joins say nothing of the rows that they preserve
        (f"a JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k AND {BOTH}", (None, None)),
        (f"a JOIN b ON a.k = b.k FULL JOIN c ON a.k = c.k AND {BOTH}", (None, None)),
        (f"a JOIN b ON a.k = b.k LEFT ANTI JOIN c ON a.k = c.k AND {BOTH}", (None, None)),
        (f"a LEFT JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND {BOTH}", (None, None)),
        (f"a JOIN b ON a.k = b.k WHERE NOT EXISTS (SELECT 1 FROM c WHERE a.k = c.k AND {BOTH})", (None, None)),
        # nor does a group beneath an outer join learn of one above it
        (
            f"a JOIN b ON a.k = b.k LEFT JOIN d ON a.k = d.k AND d.ts = a.ts JOIN c ON a.k = c.k AND {BOTH}",
            (None, None),
        ),
    ],
)
def test_the_window_of_the_first_join(sql: str, first: tuple[int | None, int | None]) -> None:
    assert windows(sql)[0] == first


def test_each_join_of_a_group_below_an_outer_join_has_the_windows_of_that_group() -> None:
    sql = f"d LEFT JOIN (SELECT a.k, a.ts FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND {BOTH}) x ON d.k = x.k"
    assert windows(f"{sql} AND x.ts = d.ts")[0] == (-10, 10)


def test_a_join_as_of_a_time_ends_a_group() -> None:
    sql = (
        f"a JOIN b ON a.k = b.k ASOF JOIN d MATCH_CONDITION (a.ts >= d.ts) ON a.k = d.k JOIN c ON a.k = c.k AND {BOTH}"
    )
    assert windows(sql)[0] == (None, None)


def test_a_changing_stream_ends_a_group() -> None:
    changing = (
        "CREATE STREAM e (k INT, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (k)"
        " WITH (event_time_unit = 's') SETTINGS mode = 'versioned_kv';"
    )
    sql = f"SELECT 1 AS x FROM a JOIN b ON a.k = b.k JOIN e c ON a.k = c.k AND {BOTH}"
    known, query = load_script(streams() + changing + sql)
    first, _ = joins_of(optimize(bind(query, known)).root)
    assert bounds(first.condition) == (None, None)


def test_row_numbers_and_times_are_not_combined() -> None:
    """b counts rows, a and c have microseconds: their numbers would compare."""
    sql = "a JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND c.ts = a.ts AND c.ts = b.ts"
    known, query = load_script(f"{streams('uruu')}SELECT 1 AS x FROM {sql}")
    first, second = joins_of(close_windows(push_filters(bind(query, known))).root)
    assert first.condition.implied == ()
    assert second.condition.implied == ((0, 2, Interval(0, 0)),)


def test_a_derived_window_leads_with_inputs_that_are_there() -> None:
    """b may be padded, but no result lacks it: rows without it match nothing."""
    _, second, _ = joins(
        "a LEFT JOIN b ON a.k = b.k AND b.ts = a.ts JOIN c ON a.k = c.k"
        " JOIN d ON a.k = d.k AND d.ts = c.ts AND d.ts = b.ts"
    )
    assert (bounds(second.condition), second.condition.leaders) == ((0, 0), ((1,), (2,)))


def test_a_within_says_nothing_of_an_input_that_a_result_may_lack() -> None:
    """d is near c, and near b where there is one: no window between b and c may drop a row that has no b."""
    chain = joins(
        "a LEFT JOIN b ON a.k = b.k AND b.ts = a.ts JOIN c ON a.k = c.k"
        " JOIN d ON COALESCE(b.k, c.k) = d.k WITHIN INTERVAL '5' SECONDS JOIN a e ON e.k = d.k AND e.ts = d.ts"
    )
    assert [bounds(join.condition) for join in chain] == [(0, 0), (None, None), (-5, 5), (0, 0)]
    assert chain[2].condition.loose == ((1, 3, Interval(-5 * SECOND, 5 * SECOND)),)


def test_results_of_a_derived_window_lie_no_further_behind() -> None:
    """The first join tests that a is 1 after b, so the second knows how far a lies behind its b, which it compares."""
    _, second, _ = joins(
        "a JOIN b ON a.k = b.k JOIN c ON b.k = c.k AND c.ts = b.ts"
        " JOIN d ON c.k = d.k AND d.ts = c.ts + 1 AND d.ts = a.ts"
    )
    assert second.condition.lags == {0: 0, 1: 0, 2: 0}


def test_conditions_that_contradict_each_other_are_refused_where_they_meet() -> None:
    with pytest.raises(PlanError, match=r"the window of this join is empty") as raised:
        joins(f"a JOIN b ON a.k = b.k AND b.ts >= a.ts + 20\nJOIN c ON a.k = c.k AND {BOTH}")
    assert raised.value.position is not None
    assert raised.value.position.line == 2


def test_a_padded_row_need_not_meet_the_condition_of_its_join() -> None:
    """A pair of a and b lies up to 100 apart, also behind a LEFT JOIN that compares both with c."""
    chain = joins(
        f"a JOIN b ON a.k = b.k WITHIN INTERVAL '100' SECONDS LEFT JOIN c ON a.k = c.k AND {BOTH}"
        " JOIN d ON a.k = d.k AND d.ts BETWEEN a.ts AND a.ts + 5"
    )
    second, third = chain[1].condition, chain[2].condition
    assert (second.lags[0], second.lags[1]) == (10 * SECOND, 110 * SECOND)
    assert (third.lags[0], third.lags[1]) == (5 * SECOND, 105 * SECOND)


def test_explain_shows_the_window() -> None:
    known, query = load_script(f"{streams()}SELECT 1 AS x FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND {BOTH}")
    lines = explain(plan_query(query, known)).splitlines()
    assert lines[0] == "EMIT FINAL: every join has a window"
    assert "  window -10 s <= b.ts - a.ts <= 10 s" in lines
