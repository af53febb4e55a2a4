"""Conditions solved for the time of the other side: when the window of a row closes by its own columns."""

from __future__ import annotations

import pytest

from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement import bind
from watersmeet.errors import BindError, PlanError, UnsupportedError
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.emission import decide_emission
from watersmeet.plan.explain import explain
from watersmeet.plan.logical.lags import unbounded_sides
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import Expiry, Join, joins_of
from watersmeet.plan.passes import optimize
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.testing.harness import load_script

AS_OF = "ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k"
COLUMNS = "k INT, x BIGINT, y DECIMAL(9, 2), d DOUBLE, at TIMESTAMP, ttl INT, day DATE"


def optimized(joins: str, time: str = "ts BIGINT", options: str = "WITH (event_time_unit = 's')") -> LogicalQuery:
    streams = "".join(f"CREATE STREAM {name} ({COLUMNS}, {time}, WATERMARK FOR ts AS ts) {options};" for name in "abc")
    defined, query = load_script(f"{streams} SELECT a.k FROM {joins}")
    return optimize(bind(query, defined))


def physical(joins: str) -> PhysicalPlan:
    streams = "".join(
        f"CREATE STREAM {name} ({COLUMNS}, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
        for name in "abc"
    )
    defined, query = load_script(f"{streams} SELECT a.k FROM {joins}")
    return plan_query(query, defined)


def joined(condition: str, **stream: str) -> Join:
    root = optimized(f"a LEFT JOIN b ON a.k = b.k AND {condition}", **stream).root
    assert isinstance(root, Join)
    return root


def told(expiries: tuple[Expiry, ...]) -> list[str]:
    """Each as ``(2 * (a.x) + 3) / 4``."""
    return [
        f"({' + '.join([*(f'{factor} * ({plain_sql(term)})' for factor, term in each.terms), str(each.constant)])})"
        f" / {each.divisor}"
        for each in expiries
    ]


@pytest.mark.parametrize(
    ("condition", "left", "right"),
    [
        ("b.ts <= a.x", ["(1 * (a.x) + 0) / 1"], []),
        ("b.ts < a.x", ["(1 * (a.x) + -1) / 1"], []),
        ("a.x >= b.ts", ["(1 * (a.x) + 0) / 1"], []),
        ("a.x > b.ts", ["(1 * (a.x) + -1) / 1"], []),
        ("b.ts = a.x", ["(1 * (a.x) + 0) / 1"], []),
        ("a.ts <= b.x", [], ["(1 * (b.x) + 0) / 1"]),
        ("b.ts <= a.x AND b.ts <= a.ts + a.ttl", ["(1 * (a.x) + 0) / 1", "(1 * (a.ts + a.ttl) + 0) / 1"], []),
        (
            "b.ts <= a.ts + a.ttl AND a.ts <= b.ts + b.ttl",
            ["(1 * (a.ts + a.ttl) + 0) / 1"],
            ["(1 * (b.ts + b.ttl) + 0) / 1"],
        ),
        ("2 * b.ts < a.ts + 20", ["(1 * (a.ts + 20) + -1) / 2"], []),
        ("b.ts + b.ts + b.ts <= a.x", ["(1 * (a.x) + 0) / 3"], []),
        ("b.ts * 1.5 <= a.x", ["(2 * (a.x) + 0) / 3"], []),
        ("b.ts - a.x <= 5 - a.ttl", ["(1 * (5 - a.ttl) + 1 * (a.x) + 0) / 1"], []),
        ("-b.ts >= a.x - 3", ["(-1 * (a.x - 3) + 0) / 1"], []),
        ("CAST(b.ts AS BIGINT) <= a.x", ["(1 * (a.x) + 0) / 1"], []),
        ("b.ts <= a.y", ["(1 * (a.y) + 0) / 1"], []),
        # a bound of the other direction, a double, a column of the partner, no order between them
        ("b.ts >= a.x", [], []),
        ("b.ts <= a.d", [], []),
        ("b.ts <= a.x + b.x", [], []),
        ("b.ts * a.ttl <= a.x", [], []),
        ("b.ts * b.ts <= a.x", [], []),
        ("b.ts <> a.x", [], []),
        ("(b.ts <= a.x OR a.ttl = 1)", [], []),
        ("CAST(b.ts AS INT) <= a.x", [], []),
        ("1e0 * b.ts <= a.x", [], []),
        # a bound that all rows share is the window
        ("b.ts <= a.x AND b.ts <= a.ts + 5", [], []),
    ],
)
def test_whole_numbers(condition: str, left: list[str], right: list[str]) -> None:
    expiries = joined(condition).condition.expiries
    assert (told(expiries[0]), told(expiries[1])) == (left, right)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("b.ts <= a.at", ["(1 * (a.at) + 0) / 1"]),
        ("b.ts < a.at + INTERVAL '1' HOUR", ["(1 * (a.at + INTERVAL '1' HOUR) + -1) / 1"]),
        ("b.ts - INTERVAL '1' SECOND <= a.at", ["(1 * (a.at) + 1000000) / 1"]),
        ("b.ts - 2 * INTERVAL '1' SECOND <= a.at", ["(1 * (a.at) + 2000000) / 1"]),
        ("b.ts <= a.ts + a.ttl * INTERVAL '1' SECOND", ["(1 * (a.ts + a.ttl * INTERVAL '1' SECOND) + 0) / 1"]),
        ("b.ts - a.ttl * INTERVAL '1' SECOND <= a.at", ["(1 * (a.at) + 1000000 * (a.ttl) + 0) / 1"]),
        ("b.ts <= a.day", []),
        ("b.ts <= CAST(a.day AS TIMESTAMP)", ["(1 * (CAST(a.day AS TIMESTAMP)) + 0) / 1"]),
    ],
)
def test_timestamps(condition: str, left: list[str]) -> None:
    assert sorted(told(joined(condition, time="ts TIMESTAMP", options="").condition.expiries[0])) == sorted(left)


def test_an_interval_without_a_length_is_refused_beside_the_time_of_the_other_side() -> None:
    with pytest.raises(UnsupportedError, match="INTERVAL '1' MONTH has no fixed length"):
        joined("b.ts - INTERVAL '1' MONTH <= a.at", time="ts TIMESTAMP", options="")


def test_such_a_window_bounds_the_state() -> None:
    query = optimized("a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.x")
    assert unbounded_sides(joins_of(query.root)) == []
    assert decide_emission(query).mode is EmitMode.FINAL
    open_ended = optimized("a LEFT JOIN b ON a.k = b.k AND b.ts <= a.x")
    assert [side.value for _, side in unbounded_sides(joins_of(open_ended.root))] == ["right"]


def test_a_row_that_may_lack_the_column_of_its_expiry_still_expires() -> None:
    """NULL, as in every comparison, matches nothing; what is not NULL where its column is, is no expiry."""
    chain = "a LEFT JOIN b ON a.k = b.k AND b.ts = a.ts JOIN c ON a.k = c.k AND c.ts >= a.ts AND c.ts <= {}"
    for end, expected in (("b.x", 1), ("b.x + 5", 1), ("COALESCE(b.x, 5)", 0)):
        root = optimized(chain.format(end)).root
        assert isinstance(root, Join)
        assert len(root.condition.expiries[0]) == expected


@pytest.mark.parametrize(
    "joins",
    [
        "a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.x JOIN c ON a.k = c.k AND c.ts BETWEEN a.ts AND a.ts + 5",
        "a JOIN b ON a.k = b.k AND b.ts = a.ts LEFT JOIN c ON a.k = c.k AND c.ts BETWEEN b.ts AND b.x",
    ],
)
def test_such_a_join_has_an_operator_of_its_own(joins: str) -> None:
    root = optimized(joins).root
    assert isinstance(root, Join)
    assert root.group is None


@pytest.mark.parametrize(
    ("joins", "expected"),
    [
        ("a LEFT JOIN b ON a.k = b.k AND b.ts = a.ts JOIN c ON c.k = a.k AND c.ts <= a.x EMIT CHANGELOG", 0),
        ("a LEFT JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND c.ts BETWEEN a.ts AND a.x", 0),
        ("a JOIN b ON a.k = b.k AND b.ts = a.ts LEFT JOIN c ON a.k = c.k AND c.ts <= a.x EMIT CHANGELOG", 1),
        (
            f"a {AS_OF} JOIN c ON a.k = c.k AND c.ts <= a.x EMIT CHANGELOG",
            0,
        ),
    ],
)
def test_rows_that_may_be_taken_back_do_not_expire(joins: str, expected: int) -> None:
    query = optimized(joins)
    assert isinstance(query.root, Join)
    assert len(query.root.condition.expiries[0]) == expected
    assert (decide_emission(query).max_state_bytes is not None) is (expected == 0 or "c.ts <=" in joins)


@pytest.mark.parametrize(
    ("joins", "line"),
    [
        (
            "a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.x JOIN c ON c.k = a.k AND c.ts = a.ts",
            "right side: kept until the end of input: join_1 may give rows of any a.ts, however long ago",
        ),
        (
            "a WHERE a.x NOT IN (SELECT b.x FROM b WHERE b.ts BETWEEN a.ts AND a.x)",
            "left side: kept until the end of input: to NOT IN, NULL matches whatever the times",
        ),
        (
            "a JOIN b ON a.k = b.k AND b.ts <= a.x",
            "left side: each row while b.ts <= a.x can still hold",
        ),
        (
            "a JOIN b ON a.k = b.k AND b.ts <= a.x",
            "right side: kept until the end of input: no condition bounds a.ts from above by this side alone",
        ),
    ],
)
def test_explain_says_what_bounds_each_side(joins: str, line: str) -> None:
    assert f"  state of the {line}" in explain(physical(joins)).splitlines()


def test_a_time_that_may_lie_any_time_behind_is_named() -> None:
    chain = "a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.x LEFT JOIN c ON c.k = a.k AND c.ts = a.ts"
    with pytest.raises(PlanError) as raised:
        decide_emission(optimized(f"{chain} EMIT FINAL"))
    assert (
        raised.value.detail
        == "a.ts of joined rows may lie arbitrarily far behind the frontier; compare b.ts instead, which may not"
    )


def test_times_and_numbers_are_not_compared() -> None:
    with pytest.raises(BindError, match=r"b\.ts is BIGINT, a\.at is TIMESTAMP: they cannot be compared") as raised:
        physical("a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.at")
    assert raised.value.position is not None


def test_a_decimal_with_more_digits_than_a_sum_may_have_is_no_expiry() -> None:
    for kind, expected in (("DECIMAL(20, 0)", 1), ("DECIMAL(38, 18)", 1), ("DECIMAL(21, 0)", 0)):
        query = optimized("a LEFT JOIN b ON a.k = b.k AND b.ts <= a.big", time=f"big {kind}, ts BIGINT")
        assert isinstance(query.root, Join)
        assert len(query.root.condition.expiries[0]) == expected


def test_not_in_matches_null() -> None:
    query = optimized("a WHERE a.x NOT IN (SELECT b.x FROM b WHERE b.k = a.k AND b.ts <= a.x)")
    assert isinstance(query.root, Join)
    assert query.root.condition.expiries == ((), ())
