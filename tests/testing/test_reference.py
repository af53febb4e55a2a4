"""The reference join compared with results computed by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.reference import Kind, Pair, Row, interval_join


def rows(*values: tuple[Any, ...]) -> list[Row]:
    return [dict(zip(("k", "t", "v"), each, strict=False)) for each in values]


def times(pairs: list[Pair]) -> list[tuple[int | None, int | None]]:
    return [(one["t"] if one else None, other["t"] if other else None) for one, other in pairs]


# Window: right from 5 before to 9 after. l 10 takes r 5..19, l 40 takes r 35..49.
LEFT = rows((1, 10), (1, 40), (2, 10), (None, 10))
RIGHT = rows((1, 4), (1, 5), (1, 19), (1, 20), (3, 10), (None, 10))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("inner", [(10, 5), (10, 19)]),
        ("left", [(10, 5), (10, 19), (40, None), (10, None), (10, None)]),
        ("right", [(10, 5), (10, 19), (None, 4), (None, 20), (None, 10), (None, 10)]),
        (
            "full",
            [(10, 5), (10, 19), (40, None), (10, None), (10, None), (None, 4), (None, 20), (None, 10), (None, 10)],
        ),
        ("semi", [(10, None)]),
        ("anti", [(40, None), (10, None), (10, None)]),
        ("right_semi", [(None, 5), (None, 19)]),
        ("right_anti", [(None, 4), (None, 20), (None, 10), (None, 10)]),
    ],
)
def test_kinds(kind: Kind, expected: list[tuple[int | None, int | None]]) -> None:
    assert times(interval_join(LEFT, RIGHT, kind, on=[("k", "k")], lo=-5, hi=9)) == expected


def test_the_example_of_the_docstring() -> None:
    found = interval_join(rows((1, 10)), rows((1, 8), (1, 15), (1, 16)), "left", on=[("k", "k")], lo=-5, hi=5)
    assert times(found) == [(10, 8), (10, 15)]


def test_null_keys_match_only_if_requested() -> None:
    found = interval_join(LEFT, RIGHT, "inner", on=[("k", "k")], null_safe=[True], lo=-5, hi=9)
    assert times(found) == [(10, 5), (10, 19), (10, 10)]
    mixed = interval_join(rows((None, 1)), rows((0, 1)), "inner", on=[("k", "k")], null_safe=[True], lo=0, hi=0)
    assert mixed == []


def test_several_keys_and_spark_equality_of_doubles() -> None:
    left = rows((math.nan, 1, "a"), (0.0, 1, "a"), (1.0, 1, "a"))
    right = rows((math.nan, 2, "a"), (-0.0, 3, "a"), (1.0, 4, "b"))
    found = interval_join(left, right, "inner", on=[("k", "k"), ("v", "v")], lo=-10, hi=10)
    assert times(found) == [(1, 2), (1, 3)]


def test_a_false_or_unknown_residual_does_not_match() -> None:
    def smaller(one: Row, other: Row) -> bool | None:
        return None if one["v"] is None or other["v"] is None else one["v"] < other["v"]

    left, right = rows((1, 1, 10), (1, 2, None), (1, 3, 5)), rows((1, 4, 9), (1, 5, None))
    found = interval_join(left, right, "full", on=[("k", "k")], lo=-10, hi=10, residual=smaller)
    assert times(found) == [(1, None), (2, None), (3, 4), (None, 5)]


def test_equal_rows_all_count() -> None:
    left, right = rows((1, 1), (1, 1)), rows((1, 1), (1, 1), (1, 1))
    assert len(interval_join(left, right, "inner", on=[("k", "k")], lo=0, hi=0)) == 6
    assert len(interval_join(left, right, "semi", on=[("k", "k")], lo=0, hi=0)) == 2
    assert len(interval_join(left, [], "anti", on=[("k", "k")], lo=0, hi=0)) == 2
    assert len(interval_join(left, right, "right_semi", on=[("k", "k")], lo=0, hi=0)) == 3
    assert len(interval_join([], right, "right_anti", on=[("k", "k")], lo=0, hi=0)) == 3


def test_open_bounds_and_null_times() -> None:
    left, right = rows((1, 10), (1, None)), rows((1, 5), (1, 15))
    assert times(interval_join(left, right, "inner", on=[("k", "k")], lo=0)) == [(10, 15)]
    assert times(interval_join(left, right, "inner", on=[("k", "k")], hi=0)) == [(10, 5)]
    assert len(interval_join(left, right, "inner", on=[("k", "k")])) == 4
    assert times(interval_join(left, right, "left", on=[("k", "k")], lo=0)) == [(10, 15), (None, None)]


def test_without_keys_every_row_can_match_every_other() -> None:
    # An outer interval join by time alone: |difference| <= 2.
    a = rows((1, -1), (2, 0), (3, 2), (4, 3), (5, 7), (6, 13))
    b = rows((1, 2), (2, 5), (3, 6), (4, 10), (5, 15))
    found = interval_join(a, b, "full", lo=-2, hi=2)
    ids = [(one and one["k"], other and other["k"]) for one, other in found]
    assert ids == [(1, None), (2, 1), (3, 1), (4, 1), (4, 2), (5, 2), (5, 3), (6, 5), (None, 4)]


def test_time_columns_can_have_any_name() -> None:
    found = interval_join([{"a": 1}], [{"b": 2}], "inner", times=("a", "b"), lo=1, hi=1)
    assert found == [({"a": 1}, {"b": 2})]
