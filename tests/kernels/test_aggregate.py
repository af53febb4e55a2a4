"""Aggregates over changelogs: after each step, the changes add up to the answer over the rows that hold.

Rows come and go through a stream with deletes (mode changelog_kv): a row with an id replaces the one with that id, and
one with -1 takes it away.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ALL
from watersmeet.errors import LimitError
from watersmeet.kernels.aggregate import step
from watersmeet.testing.cells import canonical
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

Row = dict[str, Any]
COLUMNS = ("id", "k", "x", "d", "m", "s", "ts")
STREAM = """
CREATE STREAM t (id INT, k STRING, x INT, d DOUBLE, m DECIMAL(10, 2), s STRING, ts BIGINT, WATERMARK FOR ts AS ts)
  PRIMARY KEY (id) SETTINGS mode = 'changelog_kv';
"""
APPENDED = "CREATE STREAM t (id INT, k STRING, x INT, d DOUBLE, m DECIMAL(10, 2), s STRING, ts BIGINT);"
NAN, INFINITY = math.nan, math.inf


class Feed:
    """A query over the stream ``t``, the rows that hold, and the results emitted so far."""

    def __init__(self, select: str, *, stream: str = STREAM, buckets: int = 2) -> None:
        self.harness = Harness(*load_script(stream + select), buckets=buckets)
        self.rows: dict[int, Row] = {}
        self.shown: Counter[tuple[Any, ...]] = Counter()
        self.now = 0

    def step(self, *changes: Row | int) -> list[tuple[int, tuple[Any, ...]]]:
        """Feed rows and ids of rows to retract; return the changes of the result, retractions first."""
        given = []
        for change in changes:
            self.now += 1
            if isinstance(change, int):
                given.append((*self._cells(self.rows.pop(change)), -1))
            else:
                row = {"ts": self.now, **change}
                self.rows[row["id"]] = row
                given.append((*self._cells(row), 1))
        return self.taken(self.harness.step({"t": StepInput(given)}))

    def taken(self, outcome: StepOutcome) -> list[tuple[int, tuple[Any, ...]]]:
        for weight, row in outcome.changes:
            self.shown[tuple(map(canonical, row))] += weight
        assert min(self.shown.values(), default=0) >= 0, "retracted more often than emitted"
        self.state = outcome.counters.get("aggregate.state_rows", 0)
        return sorted(outcome.changes, key=lambda change: change[0])

    def _cells(self, row: Row) -> tuple[Any, ...]:
        return (*(row.get(name) for name in COLUMNS[:-1]), self.now)


@pytest.fixture(params=[0, step.MIN_SETTLED])
def settles_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """State is settled at once, or never."""
    monkeypatch.setattr(step, "MIN_SETTLED", request.param)


def test_a_group_follows_its_rows(settles_at: None) -> None:
    """Orders of two customers: amounts come, one is corrected, one is cancelled, and a customer is left with none."""
    feed = Feed("SELECT k, count(), sum(x), avg(x), min(x), max(x) FROM t GROUP BY k")
    assert feed.step({"id": 1, "k": "ada", "x": 5}) == [(1, ("ada", 1, 5, 5.0, 5, 5))]
    # both groups are touched, only bob's is new
    assert feed.step({"id": 2, "k": "ada", "x": 3}, {"id": 3, "k": "bob", "x": 7}) == [
        (-1, ("ada", 1, 5, 5.0, 5, 5)),
        (1, ("ada", 2, 8, 4.0, 3, 5)),
        (1, ("bob", 1, 7, 7.0, 7, 7)),
    ]
    # order 2 was 4, not 3
    assert feed.step({"id": 2, "k": "ada", "x": 4}) == [
        (-1, ("ada", 2, 8, 4.0, 3, 5)),
        (1, ("ada", 2, 9, 4.5, 4, 5)),
    ]
    # order 1 was bob's: it leaves one group for another
    assert feed.step({"id": 1, "k": "bob", "x": 5}) == [
        (-1, ("ada", 2, 9, 4.5, 4, 5)),
        (-1, ("bob", 1, 7, 7.0, 7, 7)),
        (1, ("ada", 1, 4, 4.0, 4, 4)),
        (1, ("bob", 2, 12, 6.0, 5, 7)),
    ]
    # ada's last order is cancelled: her row is retracted without a new one
    assert feed.step(2) == [(-1, ("ada", 1, 4, 4.0, 4, 4))]
    # bob's new order leaves his amounts as they were, but not his count
    assert feed.step({"id": 4, "k": "bob", "x": 6}) == [
        (-1, ("bob", 2, 12, 6.0, 5, 7)),
        (1, ("bob", 3, 18, 6.0, 5, 7)),
    ]


def test_nothing_comes_out_where_nothing_visible_changed(settles_at: None) -> None:
    feed = Feed("SELECT k, max(x) FROM t GROUP BY k")
    feed.step({"id": 1, "k": "a", "x": 5})
    assert feed.step({"id": 2, "k": "a", "x": 5}, {"id": 3, "k": "a", "x": 1}) == []
    assert feed.step(1) == []
    assert feed.step(2) == [(-1, ("a", 5)), (1, ("a", 1))]


def test_tp_delta_says_of_a_change_what_it_does() -> None:
    harness = Harness(*load_script(APPENDED + "SELECT k, count(), _tp_delta FROM t GROUP BY k"))
    rows = [(1, "a", None, None, None, None, 1)]
    assert harness.step({"t": StepInput(rows)}).changes == [(1, ("a", 1, 1))]
    assert harness.step({"t": StepInput(rows)}).changes == [(-1, ("a", 1, -1)), (1, ("a", 2, 1))]


def test_a_deleted_minimum_gives_way_to_the_next(settles_at: None) -> None:
    feed = Feed("SELECT min(x), min(s), first(x), last(s) FROM t")
    feed.step({"id": 1, "x": 1, "s": "a"}, {"id": 2, "x": 1, "s": "b"}, {"id": 3, "x": 2, "s": "c"})
    assert feed.step(1) == [(-1, (1, "a", 1, "c")), (1, (1, "b", 1, "c"))]
    assert feed.step(2) == [(-1, (1, "b", 1, "c")), (1, (2, "c", 2, "c"))]


def test_a_global_aggregate_has_a_row_from_the_first_step_on_and_keeps_it(settles_at: None) -> None:
    """As SQL has it: without rows the count is 0, all else NULL."""
    feed = Feed("SELECT count(), sum(x), min(d), count(DISTINCT s) FROM t WHERE x > 0")
    assert feed.step({"id": 1, "x": -1}) == [(1, (0, None, None, 0))]
    feed.step({"id": 1, "x": 4, "d": 0.5, "s": "a"})
    assert feed.step({"id": 2, "x": 4, "d": 2.5, "s": "a"}, 1) == [(-1, (1, 4, 0.5, 1)), (1, (1, 4, 2.5, 1))]
    feed.harness.restart()
    assert feed.step(2) == [(-1, (1, 4, 2.5, 1)), (1, (0, None, None, 0))]
    assert feed.step({"id": 2, "x": 1}) == [(-1, (0, None, None, 0)), (1, (1, 1, None, 0))]


def test_null_keys_make_one_group(settles_at: None) -> None:
    feed = Feed("SELECT k, x, count() FROM t GROUP BY k, x")
    feed.step({"id": 1}, {"id": 2, "k": "a"}, {"id": 3})
    assert +feed.shown == Counter({(None, None, 2): 1, ("a", None, 1): 1})
    assert feed.step(1) == [(-1, (None, None, 2)), (1, (None, None, 1))]
    assert feed.step(3) == [(-1, (None, None, 1))]


def test_nan_is_the_greatest_and_one_value_and_there_is_one_zero(settles_at: None) -> None:
    feed = Feed("SELECT min(d), max(d), count(DISTINCT d), sum(d) FROM t")
    feed.step(
        {"id": 1, "d": NAN}, {"id": 2, "d": NAN}, {"id": 3, "d": INFINITY}, {"id": 4, "d": -0.0}, {"id": 5, "d": 0.0}
    )
    assert +feed.shown == Counter({(0.0, ("NaN",), 3, ("NaN",)): 1})
    feed.step(1, 2)
    assert +feed.shown == Counter({(0.0, INFINITY, 2, INFINITY): 1})
    feed.step(3)
    assert +feed.shown == Counter({(0.0, 0.0, 1, 0.0): 1})
    groups = Feed("SELECT d, count(), min(d) FROM t GROUP BY d")
    came = groups.step({"id": 1, "d": NAN}, {"id": 2, "d": -0.0}, {"id": 3, "d": NAN}, {"id": 4, "d": -0.0})
    assert +groups.shown == Counter({(("NaN",), 2, ("NaN",)): 1, (0.0, 2, 0.0): 1})
    assert "-0.0" not in repr(came)


@pytest.mark.sample(2)
def test_what_left_a_sum_of_doubles_leaves_no_trace(settles_at: None) -> None:
    """1e300 + 1 - 1e300 is 1, where a running sum would return 0, and keep an infinity for ever."""
    feed = Feed("SELECT sum(d), avg(d), var_pop(d) FROM t", buckets=1)
    feed.step({"id": 1, "d": 1e300}, {"id": 2, "d": INFINITY}, {"id": 3, "d": NAN})
    feed.step({"id": 4, "d": 1.0})
    assert feed.step(1, 2, 3)[1] == (1, (1.0, 1.0, 0.0))
    feed.step({"id": 5, "d": 1e300}, {"id": 6, "d": -1e300}, {"id": 7, "d": 5e-324}, {"id": 8, "d": -5e-324})
    assert [row[0] for row in +feed.shown] == [1.0]  # also while all of them hold
    tenths = Feed("SELECT sum(d) FROM t", buckets=1)
    for number in range(10):
        tenths.step({"id": number, "d": 0.1})
    assert +tenths.shown == Counter({(math.fsum([0.1] * 10),): 1})


@pytest.mark.sample(2)
def test_decimals_and_integers_are_exact(settles_at: None) -> None:
    """The mean of decimals has four more digits, and rounds half away from zero."""
    feed = Feed("SELECT sum(m), avg(m), sum(x), avg(x) FROM t", buckets=3)
    for number, m in enumerate(["0.10"] * 7 + ["-99999999.99", "99999999.99"]):
        feed.step({"id": number, "m": Decimal(m), "x": 2**31 - 1})
    feed.step(8)
    assert +feed.shown == Counter(
        {(Decimal("-99999999.29"), Decimal("-12499999.911250"), 8 * (2**31 - 1), 2147483647.0): 1}
    )
    halves = Feed("SELECT avg(CAST(x AS DECIMAL(2, 0))), avg(CAST(-x AS DECIMAL(38, 4))) FROM t")
    halves.step(*({"id": number, "x": x} for number, x in enumerate([1] + [0] * 31)))
    # 1 / 32 = 0.03125; of 38 digits none can be added before the point
    assert +halves.shown == Counter({(Decimal("0.0313"), Decimal("-0.03125")): 1})


def test_the_spread_of_one_row_is_null_or_nothing(settles_at: None) -> None:
    feed = Feed(
        "SELECT k, stddev(x), stddev_samp(x), variance(x), var_samp(x), stddev_pop(x), var_pop(x) FROM t GROUP BY k"
    )
    assert feed.step({"id": 1, "k": "a", "x": 5}) == [(1, ("a", None, None, None, None, 0.0, 0.0))]
    assert feed.step({"id": 2, "k": "a", "x": 9})[1] == (
        1,
        ("a", math.sqrt(8), math.sqrt(8), 8.0, 8.0, 2.0, 4.0),
    )


def test_first_and_last_go_by_event_time_and_ties_by_value(settles_at: None) -> None:
    """Rows of one time: the least is first, the greatest is last, and NULL is neither while there is another."""
    feed = Feed(
        "SELECT first(x), last(x), first_value(x) IGNORE NULLS, last(x) FILTER (WHERE x < 9) FROM t", stream=APPENDED
    )
    rows = [(1, "a", 5, 7), (2, "a", 9, 7), (3, "a", None, 7), (4, "a", None, 3), (5, "a", 4, 5)]
    for id, k, x, ts in rows:
        feed.taken(feed.harness.step({"t": StepInput([(id, k, x, None, None, None, ts)])}))
    assert +feed.shown == Counter({(None, 9, 4, 5): 1})


def test_a_sum_that_leaves_its_type_is_an_error(settles_at: None) -> None:
    feed = Feed("SELECT sum(CAST(x AS BIGINT) * 4611686018427387904) FROM t", buckets=1)
    feed.step({"id": 1, "x": 1})
    with pytest.raises(LimitError) as raised:
        feed.step({"id": 2, "x": 1})
    assert "does not fit in BIGINT: it is 9223372036854775808" in str(raised.value)
    assert "CAST its argument to a type with more digits" in str(raised.value)


def test_late_rows_are_taken(settles_at: None) -> None:
    stream = "CREATE STREAM t (k STRING, x INT, ts BIGINT, WATERMARK FOR ts AS ts);"
    for select in ("SELECT sum(x) FROM t", "SELECT sum(x) FROM t GROUP BY k"):
        feed = Feed(select, stream=stream)
        feed.taken(feed.harness.step({"t": StepInput([("a", 1, 100), ("b", 10, 100)])}))
        outcome = feed.harness.step({"t": StepInput([("a", 5, 1)])})
        feed.taken(outcome)
        assert (outcome.count("used"), outcome.count("late")) == (3, 0)
        assert sum(row[0] for row in +feed.shown) == 16


@pytest.mark.slow
def test_state_follows_the_groups_and_not_their_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MIN_SETTLED", 0)
    feed = Feed("SELECT k, sum(x), min(x), first(d) FROM t GROUP BY k", buckets=1)
    held = []
    for n in range(60 if ALL else 24):
        feed.step({"id": 1, "k": "a", "x": n}, {"id": 2, "k": "b", "x": -n, "d": float(n)})
        held.append(feed.state)
    assert held[-1] == held[1] == 2 * 4  # of each group totals, one value in each bag, and the emitted result
    feed.step(1, 2)
    assert feed.state <= 8
    feed.step({"id": 3, "k": "c", "x": 1})
    feed.step({"id": 3, "k": "c", "x": 2})
    assert feed.state == 4


def test_of_rows_that_only_come_no_more_is_kept_than_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MIN_SETTLED", 0)
    feed = Feed("SELECT k, min(x), max(x), first(x), last(x) FROM t GROUP BY k", stream=APPENDED, buckets=1)
    newest = 29 if ALL else 19
    for n in range(newest + 1):
        feed.taken(feed.harness.step({"t": StepInput([(n, "a", n, None, None, None, n)])}))
    assert feed.state == 1 + 2 + 2 + 1  # totals, both ends of x by value and by time, the emitted result
    assert +feed.shown == Counter({("a", 0, newest, 0, newest): 1})


# -- against a simple model --------------------------------------------------------------------------------------------

Reference = Callable[[Sequence[Row]], Any]


def values(name: str, rows: Sequence[Row]) -> list[Any]:
    return [row[name] for row in rows if row.get(name) is not None]


def _order(value: Any) -> Any:
    """NaN is the greatest."""
    return (isinstance(value, float) and math.isnan(value), value)


def _sum_of_doubles(found: list[float]) -> float:
    """NaN, or infinity, if one is among them."""
    return sum(sorted(found, key=lambda value: (-abs(value), value)))


def _distinct(name: str) -> Reference:
    return lambda rows: len({canonical(value) for value in values(name, rows)})


def _added(found: list[Any]) -> Any:
    return math.fsum(found) if isinstance(found[0], float) else sum(found)


def _total(name: str) -> Reference:
    return lambda rows: _added(found) if (found := values(name, rows)) else None


def _mean(name: str) -> Reference:
    def mean(rows: Sequence[Row]) -> Any:
        found = values(name, rows)
        if not found:
            return None
        if isinstance(found[0], Decimal):
            return (sum(found) / len(found)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
        return _added(found) / len(found)

    return mean


def _variance(name: str, sample: int, root: bool) -> Reference:
    def variance(rows: Sequence[Row]) -> float | None:
        found = values(name, rows)
        if len(found) <= sample:
            return None
        mean = sum(found) / len(found)
        squared = sum((value - mean) ** 2 for value in found) / (len(found) - sample)
        return math.sqrt(squared) if root else squared

    return variance


def _end(name: str, sign: int, *, nulls: bool = True) -> Reference:
    def pick(rows: Sequence[Row]) -> Any:
        found = [row for row in rows if nulls or row.get(name) is not None]
        return max(found, key=lambda row: sign * row["ts"]).get(name) if found else None

    return pick


def _once(name: str) -> Reference:
    """The distinct values of a column, in order."""
    return lambda rows: sorted({canonical(value): value for value in values(name, rows)}.values(), key=_order)


def _of(pick: Callable[[list[Any]], Any], values_of: Reference) -> Reference:
    """A function of values, NULL if there are none."""
    return lambda rows: pick(found) if (found := values_of(rows)) else None


def _sorted(name: str) -> Reference:
    return lambda rows: sorted(values(name, rows), key=_order)


def _by(name: str, by: str, *, greatest: bool) -> Reference:
    """The value with the greatest or least of another; of equal ones the greatest or least that is not NULL."""

    def pick(rows: Sequence[Row]) -> Any:
        found = [row for row in rows if row.get(by) is not None]
        if not found:
            return None
        most = (max if greatest else min)((row[by] for row in found), key=_order)
        ties = values(name, [row for row in found if canonical(row[by]) == canonical(most)])
        return (max if greatest else min)(ties, key=_order, default=None)

    return pick


def _between(share: float) -> Callable[[list[Any]], float]:
    def percentile(found: list[Any]) -> float:
        place = share * (len(found) - 1)
        low, high = float(found[math.floor(place)]), float(found[math.ceil(place)])
        return low if low == high else low + (place - math.floor(place)) * (high - low)

    return percentile


def _element(share: float) -> Callable[[list[Any]], Any]:
    return lambda found: found[max(math.ceil(share * len(found)), 1) - 1]


def _truth(of: Callable[[list[Any]], bool], rows: Sequence[Row]) -> bool | None:
    found = [value > 0 for value in values("x", rows)]
    return of(found) if found else None


FUNCTIONS: dict[str, Reference] = {
    "sum(DISTINCT x)": _of(sum, _once("x")),
    "sum(DISTINCT d)": _of(_sum_of_doubles, _once("d")),
    "sum(DISTINCT m)": _of(sum, _once("m")),
    "avg(DISTINCT x)": _of(lambda found: sum(found) / len(found), _once("x")),
    "sum(DISTINCT x) FILTER (WHERE s = 'a')": lambda rows: _of(sum, _once("x"))(
        [row for row in rows if row.get("s") == "a"]
    ),
    "collect_list(x)": _sorted("x"),
    "collect_list(d)": _sorted("d"),
    "array_agg(m)": _sorted("m"),
    "collect_set(s)": _once("s"),
    "collect_list(DISTINCT d)": _once("d"),
    "listagg(s, '|')": _of("|".join, _sorted("s")),
    "string_agg(DISTINCT s)": _of("".join, _once("s")),
    "max_by(x, d)": _by("x", "d", greatest=True),
    "max_by(d, s)": _by("d", "s", greatest=True),
    "min_by(s, x)": _by("s", "x", greatest=False),
    "min_by(x, m) FILTER (WHERE s = 'a')": lambda rows: _by("x", "m", greatest=False)(
        [row for row in rows if row.get("s") == "a"]
    ),
    "median(x)": _of(_between(0.5), _sorted("x")),
    "percentile(m, 0.3)": _of(_between(0.3), _sorted("m")),
    "percentile(x, array(0, 0.9, 1))": _of(
        lambda found: [_between(share)(found) for share in (0, 0.9, 1)], _sorted("x")
    ),
    "percentile_approx(length(s), 0.5)": _of(_element(0.5), lambda rows: sorted(map(len, values("s", rows)))),
    "percentile_approx(d, array(0.1, 0.75), 10)": _of(
        lambda found: [_element(share)(found) for share in (0.1, 0.75)], _sorted("d")
    ),
    "bool_and(x > 0)": lambda rows: _truth(all, rows),
    "some(x > 0)": lambda rows: _truth(any, rows),
    "count()": len,
    "count(x)": lambda rows: len(values("x", rows)),
    "count(x, s)": lambda rows: sum(row.get("x") is not None and row.get("s") is not None for row in rows),
    "count(DISTINCT d)": _distinct("d"),
    "approx_count_distinct(s)": _distinct("s"),
    "count(DISTINCT x, s)": lambda rows: len({(r["x"], r["s"]) for r in rows if None not in (r.get("x"), r.get("s"))}),
    "sum(x)": _total("x"),
    "sum(d)": _total("d"),
    "sum(m)": _total("m"),
    "sum(x + 1)": lambda rows: sum(value + 1 for value in found) if (found := values("x", rows)) else None,
    "avg(x)": _mean("x"),
    "avg(d)": _mean("d"),
    "avg(m)": _mean("m"),
    "min(d)": lambda rows: min(values("d", rows), key=_order, default=None),
    "max(d)": lambda rows: max(values("d", rows), key=_order, default=None),
    "min(s)": lambda rows: min(values("s", rows), default=None),
    "max(m)": lambda rows: max(values("m", rows), default=None),
    "max(x) FILTER (WHERE s = 'b')": lambda rows: max(
        values("x", [r for r in rows if r.get("s") == "b"]), default=None
    ),
    "stddev(x)": _variance("x", 1, root=True),
    "stddev_pop(x)": _variance("x", 0, root=True),
    "variance(x)": _variance("x", 1, root=False),
    "var_pop(m)": lambda rows: _variance("m", 0, root=False)([{"m": float(value)} for value in values("m", rows)]),
    "first(s)": _end("s", -1),
    "last(d)": _end("d", 1),
    "first(x) IGNORE NULLS": _end("x", -1, nulls=False),
    "any_value(s)": _end("s", -1),
    "any_value(d, true)": _end("d", -1, nulls=False),
    "count_if(x > 0)": lambda rows: sum(value > 0 for value in values("x", rows)),
    "count_if(x IS NULL OR s = 'a') FILTER (WHERE x < 5)": lambda rows: sum(
        row["x"] < 5 and row.get("s") == "a" for row in rows if row.get("x") is not None
    ),
}


def rounded(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row to compare: floats to nine digits."""
    return tuple(rounded(value) if isinstance(value, list) else _rounded(value) for value in row)


def _rounded(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) and value == value else canonical(value)


CHANGE = st.one_of(
    st.integers(1, 6),
    st.fixed_dictionaries(
        {
            "id": st.integers(1, 6),
            "k": st.sampled_from(["a", "b", None]),
            "x": st.sampled_from([None, -3, 0, 2, 7, 2**31 - 2]),
            "d": st.sampled_from([None, -0.0, 0.5, 2.5, 1e300, INFINITY, NAN]),
            "m": st.sampled_from([None, Decimal("0.10"), Decimal("-7.77"), Decimal("99999999.99")]),
            "s": st.sampled_from([None, "a", "b", ""]),
        }
    ),
)


@settings(max_examples=settings.default.max_examples // 4 if settings.default else 12)
@given(data=st.data(), grouped=st.booleans(), at=st.sampled_from([0, 3, step.MIN_SETTLED]))
def test_after_each_step_the_answer_is_that_over_the_rows_that_hold(
    data: st.DataObject, grouped: bool, at: int
) -> None:
    check(data, grouped=grouped, settles_at=at)


def check(data: st.DataObject, *, grouped: bool, settles_at: int) -> None:
    """Feed random changes to random aggregates, with restarts."""
    functions = data.draw(st.lists(st.sampled_from(list(FUNCTIONS)), min_size=1, max_size=6, unique=True))
    select = f"SELECT {'k, ' if grouped else ''}{', '.join(functions)} FROM t{' GROUP BY k' if grouped else ''}"
    feed = Feed(select, buckets=data.draw(st.integers(1, 3)))
    steps = data.draw(st.lists(st.lists(CHANGE, max_size=5), min_size=1, max_size=6))
    shown: Counter[tuple[Any, ...]] = Counter()
    came = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "MIN_SETTLED", settles_at)
        for changes in steps:
            if data.draw(st.booleans()):
                feed.harness.restart()
            gone: set[int] = set()
            given: list[Row | int] = []
            for change in changes:
                there = feed.rows.keys() | {each["id"] for each in given if not isinstance(each, int)}
                if not isinstance(change, int) or (change in there and change not in gone):
                    given.append(change)
                    gone = gone | {change} if isinstance(change, int) else gone - {change["id"]}
            for weight, row in feed.step(*given):
                shown[rounded(row)] += weight
            groups: dict[Any, list[Row]] = {} if grouped else {(): []}
            for held in feed.rows.values():
                groups.setdefault((held["k"],) if grouped else (), []).append(held)
            wanted = [rounded((*key, *(FUNCTIONS[each](rows) for each in functions))) for key, rows in groups.items()]
            came = came or bool(given)
            if came:
                assert +shown == Counter(wanted), select
