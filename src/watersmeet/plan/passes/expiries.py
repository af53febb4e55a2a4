"""Expiries: the last event time at which a row can have a partner, computed from the row's own columns.

A comparison across sides is solved for the partner's event time:

    b.ts BETWEEN a.ts AND a.expires                 b.ts <= a.expires
    2 * r.sn < l.sn + 20                            r.sn <= (l.sn + 20 - 1) / 2
    r.ts - l.ttl * INTERVAL '1' SECOND <= l.ts      r.ts <= l.ts + 1000000 * l.ttl    (in microseconds)

The solver takes apart sums, differences, signs and numeric factors.  Any other part must read one input of the row's
side: it becomes a term of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from sqlglot import exp

from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.type_groups import INSTANTS, INTEGERS, digits_of
from watersmeet.plan.across_sides import is_strict
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.tree import Expiry, Input, InputColumn

#: Limits on factors and constants (in units of internal event time), and on a decimal's digits before its point: within
#: them, a sum fits into 128 bits.
_LARGEST = 2**48
_MOST_DIGITS = 20
_EXACT = (*INTEGERS, exp.DataType.Type.DECIMAL)


@dataclass(frozen=True, slots=True)
class RowSide:
    """The side of a row: its ``visible`` inputs, and those among them that it may lack (``nullable``)."""

    visible: Set[int]
    nullable: Set[int]


def expiry_of(condition: exp.Expr, row: RowSide, partner: Input, columns: Mapping[str, InputColumn]) -> Expiry | None:
    """The expiry that a condition gives rows of a side; None if it sets no upper bound on the time of ``partner``.

    Raises ``UnsupportedError`` for an interval without a fixed length.
    """
    if not isinstance(condition, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    if partner.time.unit is TimeUnit.TIMESTAMP_NTZ:  # it depends on a time zone how it compares with an instant
        return None
    solver = _Solver(row, partner, columns)
    one, other = solver.sum_of(condition.this), solver.sum_of(condition.expression)
    if one is None or other is None:
        return None
    larger = other.plus(one, Fraction(-1))  # not negative, if the condition is ``one <= other``
    if isinstance(condition, exp.GT | exp.GTE) or (isinstance(condition, exp.EQ) and larger.time > 0):
        larger = larger.times(Fraction(-1))
    return larger.solved(condition, partner.time.unit.scale)


@dataclass(frozen=True, slots=True)
class _Sum:
    """``time * (the partner's event time) + each factor * its term + constant``."""

    time: Fraction = Fraction(0)
    terms: tuple[tuple[Fraction, exp.Expr], ...] = ()
    constant: Fraction = Fraction(0)

    def plus(self, other: _Sum, factor: Fraction = Fraction(1)) -> _Sum:
        more = other.times(factor)
        return _Sum(self.time + more.time, (*self.terms, *more.terms), self.constant + more.constant)

    def times(self, factor: Fraction) -> _Sum:
        terms = tuple((factor * of, term) for of, term in self.terms)
        return _Sum(factor * self.time, terms, factor * self.constant)

    @property
    def number(self) -> Fraction | None:
        """The sum, if it is a plain number."""
        return None if self.time or self.terms else self.constant

    def solved(self, condition: exp.Expr, scale: int) -> Expiry | None:
        """The last partner's time at which the sum is not negative (for < and >: positive).

        None if it sets no upper bound, or the same for all rows.  ``scale``: units of internal event time in one of
        the units of the partner's column.
        """
        if self.time >= 0 or not self.terms:
            return None
        denominator = lcm(*(each.denominator for each in (self.time, self.constant, *(of for of, _ in self.terms))))
        whole = self.times(Fraction(denominator))
        factors = [int(of) for of, _ in whole.terms]
        constant, divisor = int(whole.constant) - isinstance(condition, exp.LT | exp.GT), -int(whole.time)
        if scale * max(divisor, *map(abs, factors)) > _LARGEST or scale * abs(constant) > _LARGEST**2:
            return None
        terms = tuple(zip(factors, (term for _, term in whole.terms), strict=True))
        return Expiry(condition, terms, constant, divisor)


@dataclass(frozen=True, slots=True)
class _Solver:
    """Takes expressions apart, over a side's rows and the event time of a partner."""

    row: RowSide
    partner: Input
    columns: Mapping[str, InputColumn]

    @property
    def has_integer_time(self) -> bool:
        """Whether the partner's event time is an integer, so that plain numbers may be added to it."""
        return self.partner.time.unit.is_integer

    def sum_of(self, node: exp.Expr) -> _Sum | None:
        """An expression as a sum; None if it is none."""
        node = node.unnest()
        if (term := self.term_of(node, _EXACT if self.has_integer_time else INSTANTS)) is not None:
            return _Sum(terms=((Fraction(1), term),))
        match node:
            case exp.Column() if self._is_partner_time(node):
                return _Sum(time=Fraction(1))
            case exp.Literal() if self.has_integer_time and not node.is_string and "e" not in node.name.lower():
                return _Sum(constant=Fraction(node.name))
            case exp.Interval() if not self.has_integer_time:
                return _Sum(constant=Fraction(interval_micros(node)))
            case exp.Neg():
                inner = self.sum_of(node.this)
                return None if inner is None else inner.times(Fraction(-1))
            case exp.Add() | exp.Sub():
                left, right = self.sum_of(node.this), self.sum_of(node.expression)
                if left is None or right is None:
                    return None
                return left.plus(right, Fraction(1 if isinstance(node, exp.Add) else -1))
            case exp.Mul():
                return self._product(node.this.unnest(), node.expression.unnest())
            case exp.Cast() if self.has_integer_time and node.to.is_type(exp.DataType.Type.BIGINT):
                inner_node = node.this.unnest()  # an integer event time has 64 bits at most
                is_time = isinstance(inner_node, exp.Column) and self._is_partner_time(inner_node)
                return _Sum(time=Fraction(1)) if is_time else None
            case _:
                return None

    def term_of(self, node: exp.Expr, types: Sequence[exp.DType]) -> exp.Expr | None:
        """The node, if it reads one input of the row's side, can be computed there, and has one of the types."""
        reads = inputs_of(node, self.columns)
        if len(reads) != 1 or not reads <= self.row.visible:
            return None
        if not isinstance(node, exp.Column) and reads <= self.row.nullable and not is_strict(node):
            return None
        kind = type_of(node, self.columns)
        digits, after_point = digits_of(kind) if kind.is_type(*_EXACT) else (0, 0)
        return node if kind.is_type(*types) and digits - after_point <= _MOST_DIGITS else None

    def _product(self, one: exp.Expr, other: exp.Expr) -> _Sum | None:
        """A product with a number, or of a number or an integer term and an interval."""
        if isinstance(one, exp.Interval):
            one, other = other, one
        if isinstance(other, exp.Interval):
            return None if self.has_integer_time else self._intervals(one, Fraction(interval_micros(other)))
        left, right = self.sum_of(one), self.sum_of(other)
        if left is None or right is None:
            return None
        if left.number is not None:
            return right.times(left.number)
        return left.times(right.number) if right.number is not None else None

    def _intervals(self, count: exp.Expr, micros: Fraction) -> _Sum | None:
        if isinstance(count, exp.Literal) and count.is_int:
            return _Sum(constant=micros * int(count.name))
        term = self.term_of(count, INTEGERS)
        return None if term is None else _Sum(terms=((micros, term),))

    def _is_partner_time(self, column: exp.Column) -> bool:
        known = self.columns.get(column.name)
        return known is not None and known.input == self.partner.index and self.partner.is_time(known.column)
