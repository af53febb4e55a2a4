"""Windows that several conditions set together, against all small whole numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from tests.plan.test_expiries import optimized
from watersmeet.bind.statement import bind
from watersmeet.plan.logical.conditions import conjuncts
from watersmeet.plan.logical.implied_bounds import implied_bounds
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import InputColumn, Join
from watersmeet.plan.passes import optimize
from watersmeet.testing.harness import load_script

#: Physical names: the time and a column of each of two inputs.
INPUTS = {"at": 0, "ax": 0, "bt": 1, "bx": 1}
COLUMNS = {name: InputColumn(name, input, name, exp.DataType.build("BIGINT")) for name, input in INPUTS.items()}
RANGE = range(-3, 4)


def implied(sql: str, scale: int = 1, *, is_integer: bool = True) -> dict[tuple[int, int], Interval]:
    def times(column: exp.Column) -> tuple[int, int, bool] | None:
        return (INPUTS[column.name], scale, is_integer) if column.name in ("at", "bt") else None

    return implied_bounds(conjuncts(parse_one(sql, dialect="spark")), times, COLUMNS)


@st.composite
def sums(draw: st.DrawFn) -> str:
    terms = draw(st.lists(st.sampled_from(["at", "bt", "ax", "bx", "1", "2"]), min_size=1, max_size=3))
    factors = (draw(st.sampled_from(["", "2 * ", "-1 * "])) for _ in terms)
    return " + ".join(f"({factor}{term})" for factor, term in zip(factors, terms, strict=True))


@given(
    conditions=st.lists(st.tuples(sums(), st.sampled_from(["<", "<=", ">", ">=", "="]), sums()), min_size=1, max_size=4)
)
def test_no_row_that_meets_all_conditions_lies_outside(conditions: list[tuple[str, str, str]]) -> None:
    found = implied(" AND ".join(" ".join(each) for each in conditions))
    assert set(found) <= {(0, 1)}
    interval = found.get((0, 1), Interval())
    python = " and ".join(f"({one}) {'==' if sign == '=' else sign} ({other})" for one, sign, other in conditions)
    meets = eval(f"lambda at, bt, ax, bx: {python}")
    for at, bt, ax, bx in itertools.product(RANGE, repeat=4):
        if meets(at, bt, ax, bx):
            assert interval.lower is None or bt - at >= interval.lower
            assert interval.upper is None or bt - at <= interval.upper


@pytest.mark.parametrize(
    ("sql", "lower", "upper"),
    [
        ("at + bx > bt AND bx BETWEEN 0 AND 5", None, 4),
        ("at + bx > bt AND bx BETWEEN 0 AND 5 AND bt > at - 3", -2, 4),
        ("at + bx > bt AND bx <= 2 * ax AND ax < 10", None, 17),
        ("at + ax > bt AND ax = bx AND bx <= 7", None, 6),
        ("bt - at >= bx - ax AND bx > 3 AND ax <= 2", 2, None),
        ("bt - at >= bx AND bx + ax >= 10 AND ax + 1 <= 4", 7, None),
        ("CAST(bt AS BIGINT) <= at + CAST(bx AS INT) AND CAST(bx AS BIGINT) <= 1", None, 1),
        ("3 * bt - 3 * at < 2 * bx AND bx < 10", None, 5),
        ("bt - at < 1.5 * bx AND bx <= 3", None, None),
        ("bt <= at + bx", None, None),
        ("bt <= at + bx AND bx <= 9223372036854775807", None, None),
        ("2 * bt <= at + bx AND bx < 3", None, None),
        ("bt <= at + bx OR bx < 3", None, None),
        ("bt <= at + 1e0 * bx AND bx < 3", None, None),
        ("ax < bx AND bx < ax AND bt <= at + bx", None, None),
    ],
)
def test_what_follows_from_conditions(sql: str, lower: int | None, upper: int | None) -> None:
    assert implied(sql).get((0, 1), Interval()) == Interval(lower, upper)


def test_bounds_are_in_units_of_internal_event_time() -> None:
    assert implied("bt < at + bx AND bx <= 5", 1_000_000) == {(0, 1): Interval(upper=4_000_000)}
    of_instants = implied("bt < at + bx * INTERVAL '2' SECONDS AND bx <= 5", is_integer=False)
    assert of_instants == {(0, 1): Interval(upper=10_000_000 - 1)}


@pytest.mark.parametrize(
    "interval",
    [
        "INTERVAL '1' MONTH",
        "bx * INTERVAL '1' YEAR",
        "INTERVAL '0.0000001' SECOND",
        "0.3333337 * bx * INTERVAL '1' SECOND",
    ],
)
def test_an_interval_without_a_fixed_length_or_that_is_rounded_says_nothing(interval: str) -> None:
    assert implied(f"bt < at + {interval} AND bx < 5", is_integer=False) == {}


def test_conditions_that_narrow_each_other_without_end_are_given_up() -> None:
    (interval,) = implied("ax < bx AND bx < ax AND ax > 0 AND bt >= at + bx").values()
    assert interval.upper is None
    assert interval.lower is not None


@pytest.mark.parametrize(
    ("condition", "lower", "upper"),
    [
        ("a.ts + b.ttl > b.ts AND b.ttl BETWEEN 0 AND 5 AND b.ts > a.ts - 3", -3_000_000 + 1, 4_000_000),
        ("b.ts <= a.ts + a.ttl AND a.ttl < 5 AND b.ts >= a.ts", 0, None),  # each left row has its own end
        ("b.ts <= a.ts + a.ttl + b.ttl AND a.ttl < 5 AND b.ttl < 5", None, 8_000_000),
        ("b.ts <= a.ts + b.ttl AND b.ttl < 5 AND b.ts <= a.ts + 100", None, 100_000_000),
    ],
)
def test_a_join_gets_the_bound_that_it_lacks(condition: str, lower: int | None, upper: int | None) -> None:
    root = optimized(f"a JOIN b ON a.k = b.k AND {condition}").root
    assert isinstance(root, Join)
    assert root.condition.bounds == Interval(lower, upper)


@pytest.mark.parametrize(
    "rest",
    ["b.ts >= a.ts SETTINGS join_ttl = '1 hour'", "b.ts >= a.ts + 10"],
    ids=["join_ttl says when rows go", "no two rows can match"],
)
def test_a_join_that_was_taken_without_the_window_still_is(rest: str) -> None:
    root = optimized(f"a LEFT JOIN b ON a.k = b.k AND b.ts <= a.ts + b.ttl AND b.ttl BETWEEN 0 AND 5 AND {rest}").root
    assert isinstance(root, Join)
    assert root.condition.bounds.upper is None


def test_rows_are_not_dated_by_an_order_for_conditions_of_several_joins() -> None:
    """Only those of one join set a window together."""
    streams = "".join(
        f"CREATE STREAM {name} (id INT, sn BIGINT, x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts)"
        " WITH (ordered_by = 'sn');"
        for name in "abc"
    )
    joins = "a LEFT JOIN b ON a.id = b.id AND a.sn + b.x > b.sn LEFT JOIN c ON c.id = a.id AND b.x < 5"
    defined, query = load_script(f"{streams} SELECT a.id FROM {joins} EMIT CHANGELOG")
    assert [each.dated_by for each in optimize(bind(query, defined)).inputs] == [None, None, None]


def test_filters_of_a_stream_count_where_they_are_tested_before_the_join() -> None:
    kept = optimized("a LEFT JOIN b ON a.k = b.k AND b.ts <= a.ts + b.ttl AND b.ttl < 5 AND a.x < 3").root
    assert isinstance(kept, Join)
    assert kept.condition.bounds == Interval(upper=4_000_000)
    above = optimized("a LEFT JOIN b ON a.k = b.k AND b.ts <= a.ts + b.ttl WHERE b.ttl < 5 OR b.ttl IS NULL").root
    assert isinstance(above, Join)
    assert above.condition.bounds.upper is None
