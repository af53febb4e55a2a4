"""Windows from plain inequalities, by interval arithmetic.

A comparison between sums of event-time columns and constants bounds the distance of two times:

    r.ts BETWEEN l.ts - 10 AND l.ts + 5     implies   -10 <= r.ts - l.ts <= 5
    2 * r.ts < 2 * l.ts + 19                implies   r.ts - l.ts <= 9              (times are integers)
    ABS(l.ts - r.ts) < 30                   implies   -29 <= r.ts - l.ts <= 29      (times are integers)

``Differences`` keeps such intervals for pairs of inputs and combines them: bounds on b - a and c - b imply a window
for c - a (the closure of a difference bound matrix, Dill 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from watersmeet.expressions.times import interval_micros


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval of integers; None means unbounded."""

    lower: int | None = None
    upper: int | None = None

    def intersect(self, other: Interval) -> Interval:
        """Return the intersection."""
        return Interval(_tighter(max, self.lower, other.lower), _tighter(min, self.upper, other.upper))

    def plus(self, other: Interval) -> Interval:
        """Return the interval of all sums of one number from each."""
        return Interval(_sum(self.lower, other.lower), _sum(self.upper, other.upper))

    def times(self, factor: int) -> Interval:
        """Return the interval of products with a positive factor."""
        return Interval(*(None if end is None else end * factor for end in (self.lower, self.upper)))

    def negated(self) -> Interval:
        """Return the interval mirrored at 0."""
        return Interval(
            None if self.upper is None else -self.upper,
            None if self.lower is None else -self.lower,
        )

    @property
    def is_bounded(self) -> bool:
        """Whether both sides are bounded."""
        return self.lower is not None and self.upper is not None

    @property
    def is_free(self) -> bool:
        """Whether neither side is bounded."""
        return self.lower is None and self.upper is None

    @property
    def is_empty(self) -> bool:
        """Whether no number lies in the interval."""
        return self.lower is not None and self.upper is not None and self.lower > self.upper


#: Inputs i and j, and bounds of (time of j - time of i).
Bound = tuple[int, int, Interval]


@dataclass(slots=True)
class Differences:
    """Bounds on ``time of j - time of i`` for pairs of inputs (i, j), of rows that have both.

    Bounds in ``loose`` apply only where a row has both inputs. They are not combined over a third input, since a row
    may lack it.
    """

    known: dict[tuple[int, int], Interval] = field(default_factory=dict)
    loose: dict[tuple[int, int], Interval] = field(default_factory=dict)

    def get(self, i: int, j: int) -> Interval:
        """Return the bounds known for a pair."""
        return self.known.get((i, j), Interval())

    def add(self, i: int, j: int, interval: Interval) -> None:
        """Add bounds for a pair, and so for the reversed pair."""
        self.known[i, j] = self.get(i, j).intersect(interval)
        self.known[j, i] = self.known[i, j].negated()

    def copy(self) -> Differences:
        """Return an independent copy."""
        return Differences(dict(self.known), dict(self.loose))

    def union(self, other: Differences) -> Differences:
        """Return a copy with the bounds of both, which are about different inputs."""
        return Differences({**self.known, **other.known}, {**self.loose, **other.loose})

    def direct(self, i: int, j: int) -> Interval:
        """Return the bounds known for a pair in rows that have both inputs."""
        return self.get(i, j).intersect(self.loose.get((i, j), Interval()))

    def add_loose(self, i: int, j: int, interval: Interval) -> None:
        """Add bounds that apply where a row has both inputs."""
        self.loose[i, j] = self.loose.get((i, j), Interval()).intersect(interval)
        self.loose[j, i] = self.loose[i, j].negated()

    def close(self, over: Set[int] | None = None) -> None:
        """Combine the bounds over every third input, for all pairs (Floyd-Warshall).

        ``over`` are the inputs that every row has: bounds against a time that is NULL say nothing of the other two.
        """
        inputs = {i for pair in self.known for i in pair}
        for via in inputs if over is None else inputs & over:
            for i in inputs - {via}:
                for j in inputs - {via, i}:
                    through = self.get(i, via).plus(self.get(via, j))
                    if not through.is_free:
                        self.add(i, j, through)


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of event times (coefficients by input) and a constant, in units of internal event time."""

    times: Mapping[int, int]
    constant: int

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        """Return the sum, or the difference if ``sign`` is -1."""
        times = dict(self.times)
        for input, coefficient in other.times.items():
            times[input] = times.get(input, 0) + sign * coefficient
        return Linear({i: c for i, c in times.items() if c}, self.constant + sign * other.constant)

    def scaled(self, factor: int) -> Linear:
        """Return the product with a whole number."""
        return Linear({i: c * factor for i, c in self.times.items()}, self.constant * factor)


#: For an event-time column, returns its input, the units of internal event time in one of its own units, and whether it
#: is an integer (so that plain numbers may be added to it). None for any other column.
TimeColumns = Callable[[exp.Column], tuple[int, int, bool] | None]


def time_bounds(condition: exp.Expr, times: TimeColumns) -> tuple[tuple[int, int], Interval] | None:
    """Return the bounds that a condition puts on two inputs' event times: ((i, j), bounds of time j - time i).

    None if the condition is not exactly such a bound: it then stays an ordinary condition.
    """
    scale = _number_scale(condition, times)
    if scale is None:
        return None

    def linear(node: exp.Expr) -> Linear | None:
        return _linear(node, times, scale)

    if not isinstance(condition, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    left, right = condition.this, condition.expression
    if isinstance(condition, exp.GT | exp.GTE):
        left, right = right, left
    strict = 1 if isinstance(condition, exp.LT | exp.GT) else 0
    inside = _abs_argument(left)
    if inside is not None and not isinstance(condition, exp.EQ):  # ABS(x) < c
        value, limit = linear(inside), linear(right)
        if value is None or limit is None or limit.times:
            return None
        reach = Linear({}, limit.constant - strict)
        above, below = _at_least(reach.plus(value)), _at_least(reach.plus(value, -1))
    else:
        smaller, larger = linear(left), linear(right)
        if smaller is None or larger is None:
            return None
        distance = larger.plus(smaller, -1)
        above = _at_least(Linear(distance.times, distance.constant - strict))
        below = above
        if isinstance(condition, exp.EQ):
            below = _at_least(smaller.plus(larger, -1))
    if above is None or below is None:
        return None
    return above[0], above[1].intersect(below[1])


def _abs_argument(node: exp.Expr) -> exp.Expr | None:
    node = node.unnest()
    return node.this if isinstance(node, exp.Abs) else None


def _at_least(value: Linear) -> tuple[tuple[int, int], Interval] | None:
    """Return ``value >= 0`` as bounds on the difference of two times, i < j."""
    if len(value.times) != 2 or sum(value.times.values()) != 0:
        return None
    i, j = sorted(value.times)
    factor = value.times[j]
    if factor > 0:  # factor * (t_j - t_i) + constant >= 0
        return (i, j), Interval(lower=-(value.constant // factor))
    return (i, j), Interval(upper=value.constant // -factor)


def _number_scale(condition: exp.Expr, times: TimeColumns) -> int | None:
    """Return the unit of plain numbers in a condition; None unless all its columns are event times of one unit."""
    found = [times(column) for column in condition.find_all(exp.Column)]
    if not found or any(time is None for time in found):
        return None
    scales = {(scale, is_integer) for _, scale, is_integer in found}  # type: ignore[misc]
    if len(scales) != 1:
        return None
    (scale, is_integer) = scales.pop()
    return scale if is_integer else 0


def _linear(node: exp.Expr, times: TimeColumns, number_scale: int) -> Linear | None:
    match node:
        case exp.Paren():
            return _linear(node.this, times, number_scale)
        case exp.Column():
            time = times(node)
            return None if time is None else Linear({time[0]: 1}, 0)
        case exp.Interval():
            return Linear({}, interval_micros(node))
        case exp.Literal() if not node.is_string and number_scale and "e" not in node.name.lower():
            units = Fraction(node.name) * number_scale
            return Linear({}, int(units)) if units.denominator == 1 else None
        case exp.Cast(this=exp.Column()) if number_scale and node.to.is_type(exp.DataType.Type.BIGINT):
            return _linear(node.this, times, number_scale)  # an integer event time has 64 bits at most
        case exp.Neg():
            inner = _linear(node.this, times, number_scale)
            return None if inner is None else Linear({}, 0).plus(inner, -1)
        case exp.Add() | exp.Sub():
            left = _linear(node.this, times, number_scale)
            right = _linear(node.expression, times, number_scale)
            if left is None or right is None:
                return None
            return left.plus(right, 1 if isinstance(node, exp.Add) else -1)
        case exp.Mul() if number_scale:
            left = _linear(node.this, times, number_scale)
            right = _linear(node.expression, times, number_scale)
            return None if left is None or right is None else _product(left, right, number_scale)
        case _:
            return None


def _product(left: Linear, right: Linear, number_scale: int) -> Linear | None:
    """Return the product of two sums, one of which is a whole number."""
    for factor, value in ((left, right), (right, left)):
        if not factor.times and factor.constant % number_scale == 0:
            return value.scaled(factor.constant // number_scale)
    return None


def _tighter(pick: Callable[[Iterable[int]], int], left: int | None, right: int | None) -> int | None:
    known = [value for value in (left, right) if value is not None]
    return pick(known) if known else None


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
