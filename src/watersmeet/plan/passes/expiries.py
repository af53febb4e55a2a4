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
from watersmeet.plan.logical.sums import Sum, sum_of, times_interval
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
    reader = _Reader(row, partner, columns)
    one, other = sum_of(condition.this, reader.read), sum_of(condition.expression, reader.read)
    if one is None or other is None:
        return None
    larger = other.plus(one, Fraction(-1))  # not negative, if the condition is ``one <= other``
    if isinstance(condition, exp.GT | exp.GTE) or (isinstance(condition, exp.EQ) and _time_of(larger) > 0):
        larger = larger.times(Fraction(-1))
    return _solved(larger, condition, partner.time.unit.scale)


#: The partner's event time, as None, and terms over the row.
_Sum = Sum[exp.Expr | None]


def _time_of(found: _Sum) -> Fraction:
    """The factor of the partner's event time."""
    return sum((factor for factor, term in found.terms if term is None), Fraction(0))


def _solved(larger: _Sum, condition: exp.Expr, scale: int) -> Expiry | None:
    """The last partner's time at which a sum is not negative (for < and >: positive).

    None if it sets no upper bound, or the same for all rows.  ``scale``: units of internal event time in one of the
    units of the partner's column.
    """
    time = _time_of(larger)
    terms = [(factor, term) for factor, term in larger.terms if term is not None]
    if time >= 0 or not terms:
        return None
    denominator = lcm(*(each.denominator for each in (time, larger.constant, *(factor for factor, _ in terms))))
    factors = [int(factor * denominator) for factor, _ in terms]
    constant = int(larger.constant * denominator) - isinstance(condition, exp.LT | exp.GT)
    divisor = -int(time * denominator)
    if scale * max(divisor, *map(abs, factors)) > _LARGEST or scale * abs(constant) > _LARGEST**2:
        return None
    return Expiry(condition, tuple(zip(factors, (term for _, term in terms), strict=True)), constant, divisor)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the parts of sums, over a side's rows and the event time of a partner."""

    row: RowSide
    partner: Input
    columns: Mapping[str, InputColumn]

    @property
    def has_integer_time(self) -> bool:
        """Whether the partner's event time is an integer, so that plain numbers may be added to it."""
        return self.partner.time.unit.is_integer

    def read(self, node: exp.Expr) -> _Sum | None:
        """A term over the row, the partner's time, a number, or an interval; None for other parts."""
        if (term := self.term_of(node, _EXACT if self.has_integer_time else INSTANTS)) is not None:
            return Sum(((Fraction(1), term),))
        match node:
            case exp.Column() if self._is_partner_time(node):
                return Sum(((Fraction(1), None),))
            case exp.Literal() if self.has_integer_time and not node.is_string and "e" not in node.name.lower():
                return Sum(constant=Fraction(node.name))
            case exp.Interval() if not self.has_integer_time:
                return Sum(constant=Fraction(interval_micros(node)))
            case exp.Mul() if not self.has_integer_time and (product := times_interval(node)) is not None:
                return self._intervals(product[0], Fraction(interval_micros(product[1])))
            case exp.Cast() if self.has_integer_time and node.to.is_type(exp.DataType.Type.BIGINT):
                inner = node.this.unnest()  # an integer event time has 64 bits at most
                is_time = isinstance(inner, exp.Column) and self._is_partner_time(inner)
                return Sum(((Fraction(1), None),)) if is_time else None
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

    def _intervals(self, count: exp.Expr, micros: Fraction) -> _Sum | None:
        if isinstance(count, exp.Literal) and count.is_int:
            return Sum(constant=micros * int(count.name))
        term = self.term_of(count, INTEGERS)
        return None if term is None else Sum(((micros, term),))

    def _is_partner_time(self, column: exp.Column) -> bool:
        known = self.columns.get(column.name)
        return known is not None and known.input == self.partner.index and self.partner.is_time(known.column)
