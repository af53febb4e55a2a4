"""Conditions: terms of WHERE and ON, and the comparison of IN, with their names resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.scope import Scope
from watersmeet.bind.subqueries import SubqueryTest
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import OutputColumn
from watersmeet.plan.logical.tree import InputColumn, Leaf, Node
from watersmeet.plan.passes.push_filters import reads_delta

#: Types that a condition may have; that of a call may be unknown.
_CONDITIONS = (exp.DataType.Type.BOOLEAN, exp.DataType.Type.NULL, exp.DataType.Type.UNKNOWN)


def bind_condition(term: exp.Expr, scope: Scope) -> exp.Expr:
    """Resolve a condition; ``UnsupportedError`` if it contains a subquery or an aggregate."""
    for nested in term.find_all(exp.Select):
        raise UnsupportedError(
            "a subquery is allowed here only as a value in WHERE, or as [NOT] EXISTS or [NOT] IN, combined by AND, OR"
            " and NOT",
            position=position_of(nested),
        )
    for aggregate in term.find_all(exp.AggFunc):
        raise UnsupportedError(
            f"{aggregate.sql('spark')}: aggregates are not allowed here",
            hint="write conditions over aggregates in HAVING",
            position=position_of(aggregate),
        )
    return scope.substitute(term)


def bind_alternative(terms: Sequence[exp.Expr], scope: Scope, columns: Mapping[str, InputColumn]) -> exp.Expr | None:
    """Resolve the conditions that OR combines with a test of a subquery; None if there are none."""
    found = []
    for term in terms:
        condition = bind_condition(term, scope)
        if reads_delta(condition):
            raise UnsupportedError(
                "_tp_delta cannot be combined by OR with a test of a subquery",
                hint="test it in a term of its own: … AND _tp_delta > 0",
                position=position_of(term),
            )
        kind = type_of(condition, columns)
        if not kind.is_type(*_CONDITIONS):
            raise BindError(
                f"{plain_sql(condition)} is {kind.sql(dialect='spark')}: OR combines conditions",
                hint="compare it with something",
                position=position_of(term),
            )
        found.append(condition)
    return exp.or_(*found) if found else None


def bind_on(term: exp.Expr, scope: Scope) -> exp.Expr:
    """Resolve one term of ON."""
    if term.find(exp.Select) is not None:
        raise UnsupportedError(
            "a subquery in ON is not supported", hint="put it into WHERE", position=position_of(term)
        )
    condition = bind_condition(term, scope)
    if reads_delta(condition):
        raise BindError(
            "_tp_delta belongs to the results of a join, not to its sides",
            hint="test it in WHERE",
            position=position_of(term),
        )
    return condition


def bind_membership(test: SubqueryTest, scope: Scope, columns: Sequence[OutputColumn]) -> list[exp.Expr]:
    """Return IN as equalities of columns. NOT IN also fails if either side is NULL, so there NULL counts as equal."""
    assert test.operand is not None
    operand = test.operand.unnest()
    values = operand.expressions if isinstance(operand, exp.Tuple) else [operand]
    if len(columns) != len(values):
        needed = "one column" if len(values) == 1 else f"{len(values)} columns"
        raise BindError(
            f"IN needs a subquery with {needed}, this one has {len(columns)}", position=position_of(test.select)
        )
    terms: list[exp.Expr] = []
    for value, column in zip(values, columns, strict=True):
        wanted, found = scope.substitute(value), column.expression.copy()
        equal = exp.EQ(this=wanted, expression=found)
        either_null = exp.or_(is_null(wanted), is_null(found))
        terms.append(exp.or_(equal, either_null) if test.negated else equal)
    return terms


def is_null(operand: exp.Expr) -> exp.Expr:
    """Return the test whether an operand is NULL."""
    return exp.Is(this=operand.copy(), expression=exp.Null())


def with_where(node: Node, conditions: Sequence[exp.Expr]) -> Node:
    """Return the tree of a subquery with the conditions of its WHERE."""
    for condition in conditions:
        if reads_delta(condition):
            raise UnsupportedError(
                "in a subquery, WHERE cannot test _tp_delta",
                hint="move the condition into the WHERE of the outermost query",
                position=position_of(condition),
            )
    if isinstance(node, Leaf):
        return Leaf(replace(node.input, filters=(*node.input.filters, *conditions))) if conditions else node
    return replace(node, where=(*node.where, *conditions))
