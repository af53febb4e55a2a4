"""Windows that follow from several conditions together, by interval arithmetic over their columns.

    l.sn + r.x > r.sn AND r.x BETWEEN 0 AND 5     implies   r.sn - l.sn <= 4

Each comparison of sums is an inequality: a constant, and variables with factors, are together not negative.  A variable
is a column of whole numbers, or the distance of two event times.  From the intervals of all others in an inequality
follows one of the variable that is left.  This goes on over all inequalities, in both directions, until no interval
becomes narrower (constraint propagation with interval labels: Davis 1987).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.type_groups import INTEGERS
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.sums import Sum, sum_of, times_interval
from watersmeet.plan.logical.time_bounds import Interval, TimeColumns
from watersmeet.plan.logical.tree import InputColumn

#: Intervals may become narrower without end, as those of x < y AND y < x.
_MOST_ROUNDS = 20
#: In units of internal event time: nine years in microseconds.
_LARGEST = 2**48

#: Two inputs.
Pair = tuple[int, int]
#: A column, or the distance of two event times: that of the second less that of the first, in a unit.
_Variable = str | tuple[Pair, int]


def implied_bounds(
    conditions: Iterable[exp.Expr], times: TimeColumns, columns: Mapping[str, InputColumn]
) -> dict[Pair, Interval]:
    """Return what all conditions together say of the distances of event times, in units of internal event time.

    Of inputs i < j, bounds of (time of j - time of i).  Conditions that are no comparison of sums say nothing.  A bound
    beyond ``_LARGEST`` is left out: it comes from the limits of a column's type, and no row would ever leave by it.
    """
    inequalities = [each for condition in conditions for each in _inequalities(condition, times, columns)]
    known: dict[_Variable, Interval] = {}
    for _ in range(_MOST_ROUNDS):
        before = dict(known)
        for each in inequalities:
            each.narrow(known)
        if known == before:
            break
    distances = ((variable, interval) for variable, interval in known.items() if not isinstance(variable, str))
    return {pair: _without_formal(interval.times(scale)) for (pair, scale), interval in distances}


def _without_formal(interval: Interval) -> Interval:
    return Interval(*(None if end is None or abs(end) > _LARGEST else end for end in (interval.lower, interval.upper)))


@dataclass(frozen=True, slots=True)
class _Inequality:
    """``constant + each factor * its variable >= 0``."""

    factors: Mapping[_Variable, Fraction]
    constant: Fraction

    def narrow(self, known: dict[_Variable, Interval]) -> None:
        """Narrow the interval of each variable by those of the others."""
        for variable, factor in self.factors.items():
            others = [
                _most(known.get(other, Interval()), by) for other, by in self.factors.items() if other != variable
            ]
            if (most := _total(others)) is not None:
                bound = -(self.constant + most) / factor
                narrower = Interval(lower=ceil(bound)) if factor > 0 else Interval(upper=floor(bound))
                known[variable] = known.get(variable, Interval()).intersect(narrower)


def _most(interval: Interval, factor: Fraction) -> Fraction | None:
    """The largest product of the factor and a number of the interval; None if there is none."""
    end = interval.upper if factor > 0 else interval.lower
    return None if end is None else factor * end


def _total(numbers: Sequence[Fraction | None]) -> Fraction | None:
    known = [each for each in numbers if each is not None]
    return sum(known, Fraction(0)) if len(known) == len(numbers) else None


def _inequalities(condition: exp.Expr, times: TimeColumns, columns: Mapping[str, InputColumn]) -> Iterator[_Inequality]:
    """Yield what a comparison of sums says."""
    if not isinstance(condition, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return
    found = [time for column in condition.find_all(exp.Column) if (time := times(column)) is not None]
    units = {(scale, is_integer) for _, scale, is_integer in found} or {(1, True)}
    if len(units) != 1:
        return
    ((scale, is_integer),) = units
    reader = _Reader(times, columns, is_integer)
    try:
        left, right = sum_of(condition.this, reader.read), sum_of(condition.expression, reader.read)
    except UnsupportedError:  # an interval without a fixed length
        return
    if left is None or right is None:
        return
    rest = right.plus(left, Fraction(-1))  # not negative, if the condition is ``left <= right``
    if isinstance(condition, exp.GT | exp.GTE):
        rest = rest.times(Fraction(-1))
    yield from _inequality(rest, scale, is_strict=isinstance(condition, exp.LT | exp.GT))
    if isinstance(condition, exp.EQ):
        yield from _inequality(rest.times(Fraction(-1)), scale, is_strict=False)


def _inequality(rest: Sum[str | int], scale: int, *, is_strict: bool) -> Iterator[_Inequality]:
    """Yield that a sum is not negative (if ``is_strict``: positive), unless it has a single event time."""
    total: dict[str | int, Fraction] = defaultdict(Fraction)
    for factor, variable in rest.terms:
        total[variable] += factor
    factors: dict[_Variable, Fraction] = {name: by for name, by in total.items() if isinstance(name, str) and by}
    times = {input: by for input, by in total.items() if isinstance(input, int) and by}
    if times:
        if len(times) != 2 or sum(times.values(), Fraction(0)):
            return
        one, other = sorted(times)
        factors[(one, other), scale] = times[other]
    if factors:
        least = _common_divisor((*factors.values(), rest.constant)) if is_strict else Fraction(0)
        yield _Inequality(factors, rest.constant - least)


def _common_divisor(numbers: Sequence[Fraction]) -> Fraction:
    """The largest number of which all are multiples: a positive sum of multiples is not smaller."""
    denominator = lcm(*(each.denominator for each in numbers))
    return Fraction(gcd(*(int(each * denominator) for each in numbers)), denominator)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the parts of sums: event times, as the numbers of their inputs, columns by name, and constants.

    Event times are whole numbers (``is_integer``) or instants, in microseconds.
    """

    time_columns: TimeColumns
    columns: Mapping[str, InputColumn]
    is_integer: bool

    def read(self, node: exp.Expr) -> Sum[str | int] | None:
        """An event time, a column, a whole number or an interval; Spark may round products with other numbers."""
        match node:
            case exp.Column() if (time := self.time_columns(node)) is not None:
                return Sum(((Fraction(1), time[0]),))
            case exp.Column() if self.is_integer and self._is_whole(node):
                return Sum(((Fraction(1), node.name),))
            case exp.Literal() if self.is_integer and node.is_int:
                return Sum(constant=Fraction(node.name))
            case exp.Interval() if not self.is_integer:
                return Sum(constant=Fraction(interval_micros(node)))
            case exp.Mul() if not self.is_integer and (product := times_interval(node)) is not None:
                count = sum_of(product[0], _Reader(lambda _: None, self.columns, is_integer=True).read)
                return None if count is None else count.times(Fraction(interval_micros(product[1])))
            case exp.Cast() if node.to.is_type(*INTEGERS) and self._is_whole(node.this):
                return sum_of(node.this, self.read)  # a number out of range is an error
            case _:
                return None

    def _is_whole(self, node: exp.Expr) -> bool:
        return type_of(node, self.columns).is_type(*INTEGERS)
