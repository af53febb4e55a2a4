"""Windows that follow from several conditions together, by interval arithmetic over their columns.

    l.sn + r.x > r.sn AND r.x BETWEEN 0 AND 5     implies   r.sn - l.sn <= 4

Each comparison of sums is an inequality: a constant, and variables with factors, are together not negative.  A variable
is a column of whole numbers, or the distance of two event times.  From the intervals of all others in an inequality
follows one of the variable that is left.  This goes on over all inequalities, in both directions, until no interval
becomes narrower (constraint propagation with interval labels: Davis 1987).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.type_groups import INTEGERS
from watersmeet.plan.logical.key_types import type_of
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


def _micros(interval: exp.Interval) -> Fraction | None:
    """The length of an interval; None if it has no fixed one."""
    try:
        return Fraction(interval_micros(interval))
    except UnsupportedError:
        return None


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
            if (most := _sum_of(others)) is not None:
                bound = -(self.constant + most) / factor
                narrower = Interval(lower=ceil(bound)) if factor > 0 else Interval(upper=floor(bound))
                known[variable] = known.get(variable, Interval()).intersect(narrower)


def _most(interval: Interval, factor: Fraction) -> Fraction | None:
    """The largest product of the factor and a number of the interval; None if there is none."""
    end = interval.upper if factor > 0 else interval.lower
    return None if end is None else factor * end


def _sum_of(numbers: Sequence[Fraction | None]) -> Fraction | None:
    known = [each for each in numbers if each is not None]
    return sum(known, Fraction(0)) if len(known) == len(numbers) else None


@dataclass(slots=True)
class _Sum:
    """Event times and columns with factors, and a constant, in the unit of the event times."""

    times: dict[int, Fraction] = field(default_factory=dict)
    columns: dict[str, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)

    def plus(self, other: _Sum, factor: Fraction) -> _Sum:
        times, columns = dict(self.times), dict(self.columns)
        for input, by in other.times.items():
            times[input] = times.get(input, Fraction(0)) + factor * by
        for name, by in other.columns.items():
            columns[name] = columns.get(name, Fraction(0)) + factor * by
        return _Sum(times, columns, self.constant + factor * other.constant)

    def scaled(self, factor: Fraction) -> _Sum:
        return _Sum().plus(self, factor)

    @property
    def number(self) -> Fraction | None:
        """The sum, if it is a plain number."""
        return None if self.times or self.columns else self.constant


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
    left, right = reader.sum_of(condition.this), reader.sum_of(condition.expression)
    if left is None or right is None:
        return
    rest = right.plus(left, Fraction(-1))  # not negative, if the condition is ``left <= right``
    if isinstance(condition, exp.GT | exp.GTE):
        rest = rest.scaled(Fraction(-1))
    yield from _inequality(rest, scale, is_strict=isinstance(condition, exp.LT | exp.GT))
    if isinstance(condition, exp.EQ):
        yield from _inequality(rest.scaled(Fraction(-1)), scale, is_strict=False)


def _inequality(rest: _Sum, scale: int, *, is_strict: bool) -> Iterator[_Inequality]:
    """Yield that a sum is not negative (if ``is_strict``: positive), unless it has a single event time."""
    factors: dict[_Variable, Fraction] = {name: by for name, by in rest.columns.items() if by}
    times = {input: by for input, by in rest.times.items() if by}
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
    """Takes expressions apart; event times are whole numbers (``is_integer``) or instants, in microseconds."""

    time_columns: TimeColumns
    columns: Mapping[str, InputColumn]
    is_integer: bool

    def sum_of(self, node: exp.Expr) -> _Sum | None:
        """An expression as a sum; None if it is none."""
        node = node.unnest()
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Interval():
                micros = None if self.is_integer else _micros(node)
                return None if micros is None else _Sum(constant=micros)
            case exp.Literal() if self.is_integer and node.is_int:  # Spark may round products with other numbers
                return _Sum(constant=Fraction(node.name))
            case exp.Neg():
                inner = self.sum_of(node.this)
                return None if inner is None else inner.scaled(Fraction(-1))
            case exp.Add() | exp.Sub():
                left, right = self.sum_of(node.this), self.sum_of(node.expression)
                if left is None or right is None:
                    return None
                return left.plus(right, Fraction(1 if isinstance(node, exp.Add) else -1))
            case exp.Mul():
                return self._product(node.this.unnest(), node.expression.unnest())
            case exp.Cast() if node.to.is_type(*INTEGERS):  # a number out of range is an error
                return self.sum_of(node.this) if type_of(node.this, self.columns).is_type(*INTEGERS) else None
            case _:
                return None

    def _column(self, node: exp.Column) -> _Sum | None:
        if (time := self.time_columns(node)) is not None:
            return _Sum(times={time[0]: Fraction(1)})
        known = self.columns.get(node.name)
        if not self.is_integer or known is None or not known.type.is_type(*INTEGERS):
            return None
        return _Sum(columns={node.name: Fraction(1)})

    def _product(self, one: exp.Expr, other: exp.Expr) -> _Sum | None:
        """A product with a whole number; among instants, of such a sum and an interval."""
        if isinstance(one, exp.Interval):
            one, other = other, one
        if isinstance(other, exp.Interval):
            count = None if self.is_integer else _Reader(lambda _: None, self.columns, is_integer=True).sum_of(one)
            micros = _micros(other)
            return None if count is None or micros is None else count.scaled(micros)
        left, right = self.sum_of(one), self.sum_of(other)
        if left is None or right is None:
            return None
        if left.number is not None:
            return right.scaled(left.number)
        return left.scaled(right.number) if right.number is not None else None
