"""Subqueries in WHERE and the SELECT list become joins: values left or inner ones, EXISTS and IN semi or anti joins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.bind.conditions import bind_alternative, bind_condition, bind_membership, is_null, with_where
from watersmeet.bind.correlated import correlated
from watersmeet.bind.generators import with_generator_in_from
from watersmeet.bind.outputs import output_columns, refuse_clauses
from watersmeet.bind.relations import Relation
from watersmeet.bind.scalars import ALIAS, VALUE, scalar_subqueries, value_of
from watersmeet.bind.scope import Scope
from watersmeet.bind.subqueries import Ctes, SubqueryTest, WhereTerm, ctes_of, is_inlined, refuse_inner_order
from watersmeet.expressions.positions import position_of
from watersmeet.kernels.api import JoinKind, Mark
from watersmeet.plan.logical.conditions import conjuncts, inputs_of
from watersmeet.plan.logical.query import OutputColumn
from watersmeet.plan.logical.tree import Join, JoinCondition, Node, joins_of

if TYPE_CHECKING:  # a select has subqueries, in which there are selects
    from watersmeet.bind.select import SelectBinder


def with_scalars(
    binder: SelectBinder, select: exp.Select, node: Node, scope: Scope, ctes: Ctes
) -> tuple[exp.Select, Node]:
    """The select with columns in place of its scalar subqueries, and the tree that has these columns."""
    where = select.args.get("where")
    parts = [*select.expressions, *([where] if where is not None else [])]
    if not any(True for part in parts for _ in scalar_subqueries(part)):
        return select, node
    select = select.copy()
    where = select.args.get("where")
    found = [each for part in (*select.expressions, where) for each in scalar_subqueries(part)]
    known: list[exp.Expr] = []
    around = Scope(list(scope.relations), scope.outer, list(scope.shared))
    for subquery in found:
        number = next((place for place, each in enumerate(known) if each == subquery.this), len(known))
        if number == len(known):
            known.append(subquery.this)
            node, value = _scalar(binder, subquery.this, node, around, ctes)
            scope.relations.append(Relation(f"{ALIAS}{number}", {}, {VALUE: value}))
        subquery.replace(value_of(number))
    return select, node


def _scalar(binder: SelectBinder, select: exp.Select, node: Node, scope: Scope, ctes: Ctes) -> tuple[Node, exp.Expr]:
    """The tree with the one row of a scalar subquery, and its value."""
    inner = Scope()
    binder.apart().from_clause(select, inner, {**ctes, **ctes_of(select)})
    tied = correlated(select, inner, scope)
    leaf, relation = binder.statement.results(select if tied is None else tied.select, "", ctes, None, binder.names)
    if tied is None:
        (value,) = relation.columns.values()
        return Join(node, leaf, JoinKind.INNER, position=position_of(select)), value
    *keys, value = relation.columns.values()
    equal = (
        exp.EQ(this=scope.substitute(wanted), expression=key.copy())
        for wanted, key in zip(tied.wanted, keys, strict=True)
    )
    condition = JoinCondition(residual=tuple(equal))
    node = Join(node, leaf, JoinKind.LEFT, condition, position=position_of(select))
    if isinstance(tied.empty, exp.Null):
        return node, value
    empty = exp.Cast(this=tied.empty, to=binder.names.columns[value.name].type.copy())
    return node, exp.Case(ifs=[exp.If(this=is_null(keys[0]), true=empty)], default=value)


def with_tests(binder: SelectBinder, node: Node, term: WhereTerm, scope: Scope, ctes: Ctes) -> Join:
    """The rows that meet a condition or pass a test of a term: a mark join for each test but the last.

    A row that has passed one test goes on whatever the next ones say.
    """
    alternative = bind_alternative(term.conditions, scope, binder.names.columns)
    *first, last = term.tests
    passed_by = None
    for test in first:
        join = semi_join(binder, node, test, alternative, scope, ctes)
        number = sum(1 for _ in joins_of(join))
        mark = Mark(f"${'not_exists' if test.negated else 'exists'}_{number}", test.negated)
        node = replace(join, kind=JoinKind.MARK, mark=mark, passed_by=passed_by)
        alternative, passed_by = None, mark.name
    return replace(semi_join(binder, node, last, alternative, scope, ctes), passed_by=passed_by)


def semi_join(
    binder: SelectBinder, left: Node, test: SubqueryTest, alternative: exp.Expr | None, scope: Scope, ctes: Ctes
) -> Join:
    """Resolve [NOT] EXISTS or [NOT] IN to a semi or anti join; the ``alternative`` stands beside it under OR."""
    select = test.select
    if not is_inlined(select):
        return _of_results(binder, left, test, alternative, scope, ctes)
    refuse_clauses(select)
    refuse_inner_order(select)
    select = with_generator_in_from(select)
    inner = Scope(outer=scope)
    right = binder.from_clause(select, inner, {**ctes, **ctes_of(select)})
    where = select.args.get("where")
    conditions = [bind_condition(term, inner) for term in conjuncts(where.this if where else None)]
    own: list[exp.Expr] = []
    correlated: list[exp.Expr] = []
    for condition in conditions:
        is_own = inputs_of(condition, binder.names.columns) <= right.inputs
        (own if is_own else correlated).append(condition)
    if test.operand is not None:
        correlated += bind_membership(test, scope, output_columns(select, inner))
    return Join(
        left,
        with_where(right, own),
        JoinKind.ANTI if test.negated else JoinKind.SEMI,
        JoinCondition(residual=tuple(correlated)),
        position_of(select),
        null_aware=test.negated and test.operand is not None,
        from_subquery=True,
        alternative=alternative,
    )


def _of_results(
    binder: SelectBinder, left: Node, test: SubqueryTest, alternative: exp.Expr | None, scope: Scope, ctes: Ctes
) -> Join:
    """The same where the subquery aggregates or ranks: it reads nothing of the query around it."""
    right, relation = binder.statement.results(test.select, "", ctes, None, binder.names)
    outputs = [OutputColumn(name, expression) for name, expression in relation.columns.items()]
    tested = [] if test.operand is None else bind_membership(test, scope, outputs)
    return Join(
        left,
        right,
        JoinKind.ANTI if test.negated else JoinKind.SEMI,
        JoinCondition(residual=tuple(tested)),
        position_of(test.select),
        null_aware=test.negated and test.operand is not None,
        from_subquery=True,
        alternative=alternative,
    )
