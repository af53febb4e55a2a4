"""Interval arithmetic of conditions, against all small whole numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from watersmeet.plan.logical.conditions import conjuncts
from watersmeet.plan.logical.time_bounds import Differences, Interval, TimeColumns, time_bounds

Evaluate = Callable[[tuple[int, ...]], int]


def times_in(scale: int, *, is_integer: bool = True) -> TimeColumns:
    def times(column: exp.Column) -> tuple[int, int, bool] | None:
        return ("abc".index(column.table), scale, is_integer) if column.name == "ts" else None

    return times


def bounds_of(sql: str, scale: int = 1) -> tuple[tuple[int, int], Interval] | None:
    return time_bounds(parse_one(sql, dialect="spark"), times_in(scale))


@st.composite
def sums(draw: st.DrawFn, column: int | None) -> tuple[str, Evaluate]:
    """A sum around one time column (or none), as SQL and as Python."""
    text, value = ("0", constant(0)) if column is None else (f"{'abc'[column]}.ts", time_of(column))
    for _ in range(draw(st.integers(0, 2))):
        number = draw(st.integers(-3, 3))
        shown = draw(st.sampled_from([str(number), f"({number})", f"1 * {number}"]))
        match draw(st.sampled_from(["plus", "minus", "before", "parentheses"])):
            case "plus":
                text, value = f"{text} + {shown}", added(value, number)
            case "minus":
                text, value = f"{text} - ({shown})", added(value, -number)
            case "before":
                text, value = f"{shown} + {text}", added(value, number)
            case _:
                text = f"({text})"
    return text, value


def constant(number: int) -> Evaluate:
    return lambda _: number


def time_of(column: int) -> Evaluate:
    return lambda t: t[column]


def added(value: Evaluate, number: int) -> Evaluate:
    return lambda t: value(t) + number


def multiplied(given: tuple[str, Evaluate], factor: int) -> tuple[str, Evaluate]:
    text, value = given
    return given if factor == 1 else (f"{factor} * ({text})", lambda t: factor * value(t))


def minus(one: Evaluate, other: Evaluate) -> Evaluate:
    return lambda t: one(t) - other(t)


def absolute(value: Evaluate) -> Evaluate:
    return lambda t: abs(value(t))


COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "=": lambda x, y: x == y,
    "<>": lambda x, y: x != y,
}


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, Callable[[tuple[int, ...]], bool], bool]:
    """A condition over the times of a and b, and whether bounds must be found in it."""
    one, other = draw(st.sampled_from([(0, 1), (1, 0)]))
    left, right = draw(sums(one)), draw(sums(other))
    sign = draw(st.sampled_from([*COMPARE]))
    shape = draw(st.sampled_from(["columns", "difference", "absolute"]))
    must = sign != "<>"
    factor = draw(st.sampled_from([1, 1, 2, 3]))
    if shape == "columns":
        left, right = multiplied(left, factor), multiplied(right, factor)
    if shape != "columns":
        right = multiplied((f"{left[0]} - ({right[0]})", minus(left[1], right[1])), factor)
        left = draw(sums(None))
        if shape == "absolute":
            right = (f"ABS({right[0]})", absolute(right[1]))
            must = sign in (">", ">=")  # c >= ABS(x): a window; the others are none
        if draw(st.booleans()):
            flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
            return f"{right[0]} {flipped} {left[0]}", lambda t: COMPARE[sign](left[1](t), right[1](t)), must
    return f"{left[0]} {sign} {right[0]}", lambda t: COMPARE[sign](left[1](t), right[1](t)), must


@given(comparisons())
def test_bounds_say_just_what_the_condition_says(drawn: tuple[str, Callable[[tuple[int, ...]], bool], bool]) -> None:
    sql, holds, must = drawn
    found = bounds_of(sql)
    assert must == (found is not None), sql
    if found is None:
        return
    (i, j), interval = found
    for t in itertools.product(range(-9, 10), repeat=2):
        inside = (interval.lower is None or interval.lower <= t[j] - t[i]) and (
            interval.upper is None or t[j] - t[i] <= interval.upper
        )
        assert inside == holds(t), (sql, t, interval)


@pytest.mark.parametrize(
    ("sql", "scale", "expected"),
    [
        ("b.ts <= a.ts + 10", 1000, Interval(None, 10_000)),
        ("b.ts < a.ts + 10", 1000, Interval(None, 9_999)),
        ("b.ts <= a.ts + 2 * 3", 1000, Interval(None, 6_000)),
        ("b.ts - a.ts = -4", 1_000_000, Interval(-4_000_000, -4_000_000)),
        ("ABS(a.ts - b.ts) < 30", 1, Interval(-29, 29)),
        ("-a.ts <= -b.ts", 1, Interval(None, 0)),
        ("2 * b.ts < 2 * a.ts + 19", 1, Interval(None, 9)),
        ("2 * b.ts < 2 * a.ts + 19", 1000, Interval(None, 9_499)),
        ("(b.ts - a.ts) * -3 <= 3 * 2", 1000, Interval(-2_000, None)),
        ("ABS(2 * a.ts - b.ts * 2) <= 9", 1, Interval(-4, 4)),
        ("b.ts <= a.ts + 1.5 * 2", 1000, Interval(None, 3_000)),
        (f"b.ts{' * 1' * 60} <= a.ts", 1, Interval(None, 0)),  # in no more than a moment
    ],
)
def test_plain_numbers_count_in_the_columns_unit(sql: str, scale: int, expected: Interval) -> None:
    assert bounds_of(sql, scale) == ((0, 1), expected)


@pytest.mark.parametrize(
    "sql",
    [
        "a.ts + b.ts <= 5",
        "2 * a.ts <= b.ts",
        "2 * a.ts <= 3 * b.ts",
        "0 * a.ts <= 0 * b.ts",
        "a.ts * b.ts <= 4",
        "a.ts <= a.ts + 1",
        "a.ts <= b.other",
        "a.ts <= b.ts + 1.5",
        "a.ts <= b.ts + c.ts",
        "a.ts <> b.ts",
        "a.ts <= b.ts OR a.ts = 5",
        "NOT a.ts <= b.ts",
        "a.ts <= 5",
        "a.ts IS NOT DISTINCT FROM b.ts",
    ],
)
def test_anything_else_stays_a_condition(sql: str) -> None:
    assert bounds_of(sql) is None


def test_between_is_two_bounds_and_intervals_are_micros() -> None:
    condition = parse_one(
        "b.ts BETWEEN a.ts - INTERVAL '1' DAY AND a.ts + INTERVAL '1500' MILLISECONDS", dialect="spark"
    )
    found = [time_bounds(each, times_in(1, is_integer=False)) for each in conjuncts(condition)]
    assert found == [((0, 1), Interval(lower=-86_400_000_000)), ((0, 1), Interval(upper=1_500_000))]


def test_a_plain_number_beside_timestamps_is_no_bound() -> None:
    assert time_bounds(parse_one("a.ts <= b.ts + 5", dialect="spark"), times_in(1, is_integer=False)) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([(0, 1), (1, 2), (0, 2), (2, 0), (1, 0)]),
            st.none() | st.integers(-4, 4),
            st.none() | st.integers(-4, 4),
        ),
        max_size=4,
    )
)
def test_closing_derives_just_what_follows(known: list[tuple[tuple[int, int], int | None, int | None]]) -> None:
    differences = Differences()
    for (i, j), lower, upper in known:
        differences.add(i, j, Interval(lower, upper))
    solutions = [
        t
        for t in itertools.product(range(-13, 14), repeat=2)
        for point in [(0, *t)]
        if all(
            (lower is None or lower <= point[j] - point[i]) and (upper is None or point[j] - point[i] <= upper)
            for (i, j), lower, upper in known
        )
    ]
    assume(solutions)
    differences.close()
    for i, j in itertools.permutations(range(3), 2):
        found = differences.get(i, j)
        reached = [(0, *t)[j] - (0, *t)[i] for t in solutions]
        assert differences.get(j, i) == found.negated()
        assert found.lower is None or found.lower == min(reached)
        assert found.upper is None or found.upper == max(reached)
        if found.lower is None:
            assert min(reached) <= -9, "a bound that follows was not derived"
        if found.upper is None:
            assert max(reached) >= 9
