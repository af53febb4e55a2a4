"""Expressions as sums: variables with numeric factors, and a constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from sqlglot import exp

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Sum(Generic[V]):
    """``each factor * its variable + constant``."""

    terms: tuple[tuple[Fraction, V], ...] = ()
    constant: Fraction = Fraction(0)

    def plus(self, other: Sum[V], factor: Fraction = Fraction(1)) -> Sum[V]:
        """Return the sum of this one and a multiple of the other."""
        more = other.times(factor)
        return Sum((*self.terms, *more.terms), self.constant + more.constant)

    def times(self, factor: Fraction) -> Sum[V]:
        """Return a multiple."""
        return Sum(tuple((factor * of, variable) for of, variable in self.terms), factor * self.constant)

    @property
    def number(self) -> Fraction | None:
        """The sum, if it is a plain number."""
        return None if self.terms else self.constant


def sum_of(node: exp.Expr, read: Callable[[exp.Expr], Sum[V] | None]) -> Sum[V] | None:
    """Return an expression as a sum of what ``read`` knows; None if it is none.

    ``read`` is asked first for each part, which may itself be a sum.
    """
    node = node.unnest()
    if (known := read(node)) is not None:
        return known
    if isinstance(node, exp.Neg):
        inner = sum_of(node.this, read)
        return None if inner is None else inner.times(Fraction(-1))
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul):
        return None
    left, right = sum_of(node.this, read), sum_of(node.expression, read)
    if left is None or right is None:
        return None
    if not isinstance(node, exp.Mul):
        return left.plus(right, Fraction(1 if isinstance(node, exp.Add) else -1))
    if left.number is not None:
        return right.times(left.number)
    return left.times(right.number) if right.number is not None else None


def times_interval(node: exp.Expr) -> tuple[exp.Expr, exp.Interval] | None:
    """Return the count and the interval of their product, in either order; None for other expressions."""
    if not isinstance(node, exp.Mul):
        return None
    one, other = node.this.unnest(), node.expression.unnest()
    if isinstance(one, exp.Interval):
        one, other = other, one
    return (one, other) if isinstance(other, exp.Interval) else None
