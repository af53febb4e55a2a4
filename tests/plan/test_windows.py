"""Keys, windows, lags and what is left of the conditions of each join."""

from __future__ import annotations

import pytest

from watersmeet.bind.statement import bind
from watersmeet.errors import PlanError, UnsupportedError
from watersmeet.plan.logical.lags import unbounded_sides
from watersmeet.plan.logical.time_bounds import Interval
from watersmeet.plan.logical.tree import Join, JoinCondition, joins_of
from watersmeet.plan.passes import optimize
from watersmeet.testing.harness import load_script

SECOND = 1_000_000


def stream(name: str, unit: str = "s") -> str:
    return (
        f"CREATE STREAM {name} (k INT, g BIGINT, v INT, ts BIGINT, WATERMARK FOR ts AS ts) "
        f"WITH (event_time_unit = '{unit}');"
    )


def joins(sql: str, unit: str = "s") -> list[Join]:
    streams, query = load_script("".join(stream(name, unit) for name in "abcd") + sql)
    return list(joins_of(optimize(bind(query, streams)).root))


def analysed(sql: str, unit: str = "s") -> list[JoinCondition]:
    return [node.condition for node in joins(sql, unit)]


def join(condition: str, *, kind: str = "LEFT", unit: str = "s") -> JoinCondition:
    (found,) = analysed(f"SELECT a.k FROM a {kind} JOIN b ON {condition}", unit)
    return found


def bounds(found: JoinCondition) -> tuple[int | None, int | None]:
    return found.bounds.lower, found.bounds.upper


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("a.k = b.k WITHIN INTERVAL '5' SECONDS", (-5, 5)),
        ("a.k = b.k WITHIN (INTERVAL '5' SECONDS, INTERVAL '1' SECOND)", (-5, 1)),
        ("a.k = b.k AND b.ts BETWEEN a.ts - 5 AND a.ts + 1", (-5, 1)),
        ("a.k = b.k AND a.ts >= b.ts AND b.ts >= a.ts - 7", (-7, 0)),
        ("a.k = b.k AND b.ts - a.ts BETWEEN 3 AND 8", (3, 8)),
        ("a.k = b.k AND a.ts = b.ts", (0, 0)),
        ("a.k = b.k AND ABS(a.ts - b.ts) <= 4", (-4, 4)),
        ("a.k = b.k AND b.ts >= a.ts WITHIN INTERVAL '5' SECONDS", (0, 5)),
        ("a.k = b.k AND b.ts >= a.ts - 99 WITHIN INTERVAL '5' SECONDS", (-5, 5)),
        ("a.k = b.k AND b.ts >= a.ts + 2", (2, None)),
        ("a.k = b.k AND b.ts <= a.ts + 2", (None, 2)),
        ("a.k = b.k", (None, None)),
    ],
)
def test_the_window(clause: str, expected: tuple[int | None, int | None]) -> None:
    found = join(clause)
    assert bounds(found) == tuple(None if each is None else each * SECOND for each in expected)
    assert found.residual == ()
    assert found.leaders == ((0,), (1,))


def test_right_minus_left_whichever_way_it_is_written() -> None:
    for text in ("b.ts - a.ts <= 5 AND b.ts - a.ts >= 1", "a.ts - b.ts >= -5 AND 1 + a.ts <= b.ts"):
        assert bounds(join(f"a.k = b.k AND {text}")) == (SECOND, 5 * SECOND)


def test_rows_are_counted_as_they_are() -> None:
    assert bounds(join("a.k = b.k AND a.ts >= b.ts AND a.ts < b.ts + 10", unit="row")) == (-9, 0)


def test_keys_come_with_their_sides_and_types_in_order() -> None:
    found = join("b.k = a.k AND a.g IS NOT DISTINCT FROM b.k AND a.v + 1 = b.v * 2 WITHIN INTERVAL '1' SECOND")
    shown = [(key.left.sql(), key.right.sql(), key.null_safe, key.type.sql("spark")) for key in found.keys]
    assert [(safe, kind) for *_, safe, kind in shown] == [(False, "INT"), (True, "BIGINT"), (False, "INT")]
    assert all("a:" in left and "b:" in right for left, right, *_ in shown)
    assert found.residual == ()


def test_what_is_neither_key_nor_window_is_left() -> None:
    found = join("a.k = b.k AND a.v <= b.v AND (a.ts <= b.ts OR a.v = 1) AND a.k + b.k = 3 WITHIN INTERVAL '1' SECOND")
    assert len(found.keys) == 1
    assert len(found.residual) == 3
    assert bounds(found) == (-SECOND, SECOND)


def test_an_or_of_windows_is_no_window() -> None:
    found = join("a.k = b.k AND (b.ts BETWEEN a.ts AND a.ts + 1 OR b.ts BETWEEN a.ts + 5 AND a.ts + 6)")
    assert bounds(found) == (None, None)
    assert len(found.residual) == 1


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(PlanError, match="is empty"):
        join("a.k = b.k AND b.ts > a.ts AND b.ts < a.ts")


def test_a_length_of_time_over_rows_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="counts rows"):
        join("a.k = b.k WITHIN INTERVAL '1' SECOND", unit="row")


@pytest.mark.parametrize(
    ("window", "lags"),
    [((-5, 2), (2, 5)), ((3, 8), (8, 0)), ((-8, -3), (0, 8)), ((0, 0), (0, 0)), ((-1, None), (None, 1))],
)
def test_lags_of_results(window: tuple[int, int | None], lags: tuple[int | None, int]) -> None:
    """A stored l meets r at F or later, so l >= F - upper; a stored r meets l at F or later, so r >= F + lower."""
    low, high = window
    upper = "" if high is None else f" AND b.ts - a.ts <= {high}"
    found = join(f"a.k = b.k AND b.ts - a.ts >= {low}{upper}", kind="INNER")
    assert found.lags == {i: None if lag is None else lag * SECOND for i, lag in enumerate(lags)}


def test_semi_joins_show_only_the_left_side() -> None:
    assert join("a.k = b.k WITHIN INTERVAL '3' SECONDS", kind="LEFT SEMI").lags == {0: 3 * SECOND}


def test_right_semi_joins_show_only_the_right_side_and_turn_the_window() -> None:
    window = "WITHIN (INTERVAL '3' SECONDS, INTERVAL '1' SECONDS)"
    (found,) = analysed(f"SELECT b.k FROM a RIGHT SEMI JOIN b ON a.k = b.k {window}")
    assert (bounds(found), found.leaders, found.lags) == ((-SECOND, 3 * SECOND), ((1,), (0,)), {1: 3 * SECOND})


def test_a_trailing_window_is_the_same_of_joins_that_are_turned() -> None:
    first, second = analysed(
        "SELECT c.k FROM a JOIN b ON a.k = b.k RIGHT SEMI JOIN c ON a.k = c.k"
        " WITHIN (INTERVAL '1' SECONDS, INTERVAL '4' SECONDS)"
    )
    assert bounds(first) == (-SECOND, 4 * SECOND)
    assert (bounds(second), second.leaders) == ((-4 * SECOND, SECOND), ((2,), (0,)))
    assert second.loose == ((2, 1, Interval(-4 * SECOND, SECOND)),)


def test_a_trailing_window_holds_between_every_pair() -> None:
    first, second = analysed("SELECT a.k FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k WITHIN INTERVAL '4' SECONDS")
    w = Interval(-4 * SECOND, 4 * SECOND)
    assert first.bounds == second.bounds == w
    assert second.loose == ((1, 2, w),)
    assert second.leaders == ((0,), (2,))


def test_a_joins_own_window_is_between_the_streams_its_on_names() -> None:
    sql = (
        "SELECT a.k FROM a JOIN b ON a.k = b.k WITHIN INTERVAL '1' SECOND "
        "JOIN c ON b.k = c.k WITHIN INTERVAL '2' SECONDS"
    )
    first, second = analysed(sql)
    assert (bounds(first), bounds(second)) == ((-SECOND, SECOND), (-2 * SECOND, 2 * SECOND))
    assert (second.leaders, second.loose) == (((1,), (2,)), ())


def test_lags_of_a_chain_add_what_is_known_of_the_distance() -> None:
    """c is at most 2 behind b, b at most 1 behind a: results with a row a lie up to 2 + 1 further back than b may."""
    sql = (
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts - a.ts BETWEEN -1 AND 6 "
        "JOIN c ON b.k = c.k AND c.ts - b.ts BETWEEN -2 AND 3 SETTINGS multi_join = 'off'"
    )
    _, second = analysed(sql)
    assert second.leaders == ((1,), (2,))
    assert second.lags == {1: 3 * SECOND, 2: 2 * SECOND, 0: (3 + 6) * SECOND}


def test_a_window_follows_from_two_others() -> None:
    sql = (
        "SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts - a.ts BETWEEN 0 AND 5 "
        "JOIN c ON a.k = c.k AND c.ts >= b.ts AND c.ts <= a.ts + 9"
    )
    _, second = joins(sql)
    assert second.condition.bounds.is_bounded
    assert unbounded_sides([second]) == []


def test_sides_that_would_be_kept_for_ever() -> None:
    found = {
        clause: [side.value for _, side in unbounded_sides(joins(f"SELECT a.k FROM a LEFT JOIN b ON {clause}"))]
        for clause in (
            "a.k = b.k",
            "a.k = b.k AND b.ts >= a.ts",
            "a.k = b.k AND b.ts <= a.ts",
            "a.k = b.k AND b.ts = a.ts",
        )
    }
    assert list(found.values()) == [["left", "right"], ["left"], ["right"], []]
