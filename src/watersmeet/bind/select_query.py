"""A SELECT as a logical query: a plain one, an aggregation, window functions, or a select around another one.

The clauses of one SELECT may be several queries, each over the results of the one before::

    SELECT DISTINCT over groups or windows     the query without DISTINCT  ─  DISTINCT
    SELECT … FROM (a query) WHERE …            that query, with more columns and conditions
    GROUP BY GROUPING SETS (…)                 an aggregation of each set  ─  what stands over all
    several PARTITION BYs or ORDER BYs         a query of each but the last  ─  the last
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregated
from watersmeet.bind.aggregates import bind_aggregates
from watersmeet.bind.conditions import bind_condition
from watersmeet.bind.generators import has_generators, refuse_aggregated
from watersmeet.bind.group_by_all import with_keys
from watersmeet.bind.grouping_sets import Groupings, has_sets, of_set, refuse_endless, with_sets
from watersmeet.bind.inputs import Inputs
from watersmeet.bind.ordering import bind_ordering
from watersmeet.bind.outputs import output_columns, refuse_clauses
from watersmeet.bind.over import bind_over, has_window_functions, limit_on, qualify_of
from watersmeet.bind.over_chain import first_link
from watersmeet.bind.over_groups import over_groups
from watersmeet.bind.relations import Relation
from watersmeet.bind.rewriting import column_of, distinct
from watersmeet.bind.scope import Scope
from watersmeet.bind.select import Bound, SelectBinder
from watersmeet.bind.subqueries import Ctes, is_inlined, nested_query, refuse_inner_order
from watersmeet.bind.window_calls import with_windows_in_from
from watersmeet.columns import TP_DELTA
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.plan.logical.conditions import conjuncts
from watersmeet.plan.logical.query import Aggregation, LogicalQuery

if TYPE_CHECKING:
    from watersmeet.bind.statement import Statement


def bind_select(
    statement: Statement, node: exp.Select, ctes: Ctes, *, inner: bool, limit: tuple[str, int] | None
) -> LogicalQuery:
    """Resolve a SELECT without LIMIT; ``limit`` is what the query around it sets on a rank."""
    node = with_windows_in_from(with_sets(with_keys(node)))
    if node.args.get("distinct") and (is_aggregated(node) or has_window_functions(node)):
        plain = node.copy()
        plain.set("distinct", None)
        return distinct(statement.over([statement.query(plain, ctes, inner=True)], node, inner=inner))
    if (below := _whole_from(node, ctes)) is not None:
        return _merged(statement, node, ctes, below, inner=inner)
    if is_aggregated(node) or has_window_functions(node):
        refuse_aggregated(node)
    if is_aggregated(node) and has_window_functions(node):
        raise UnsupportedError(
            "window functions over aggregates need a subquery for the aggregates",
            hint="SELECT …, ROW_NUMBER() OVER (…) AS n FROM (SELECT … GROUP BY …)",
            position=position_of(node),
        )
    if is_aggregated(node) and (split := over_groups(node)) is not None:
        binder = SelectBinder(statement)
        groups = statement.finished(statement.query(split.groups, ctes, inner=True))
        leaf, relation = statement.add_results([groups], "", node, binder.names)
        bound = binder.above(split.above, leaf, split.scope(relation), ctes)
        return statement.logical(node, binder, bound, None, inner=inner)
    if has_sets(node):
        return _of_sets(statement, node, ctes, inner=inner)
    binder = SelectBinder(statement)
    bound = binder.select(node, None, ctes)
    if has_window_functions(node):
        return _of_windows(statement, node, binder, bound, limit, inner=inner)
    aggregation = _aggregation(node, bound, binder.names)[0] if is_aggregated(node) else None
    ordering = bind_ordering(node.args.get("order"), bound.node, bound.outputs, bound.scope, binder.names)
    found = replace(statement.logical(node, binder, bound, ordering, inner=inner), aggregation=aggregation)
    return distinct(found) if node.args.get("distinct") else found


def _of_windows(
    statement: Statement,
    node: exp.Select,
    binder: SelectBinder,
    bound: Bound,
    limit: tuple[str, int] | None,
    *,
    inner: bool,
) -> LogicalQuery:
    """The query of window functions, over one for each further PARTITION BY or ORDER BY among them."""
    ordering = bind_ordering(node.args.get("order"), bound.node, bound.outputs, bound.scope, binder.names)
    tests = qualify_of(node, bound.scope)
    while (link := first_link(bound.outputs, tests, binder.names.columns, binder.names.inputs, limit)) is not None:
        if ordering is not None:
            raise UnsupportedError(
                "ORDER BY over window functions with several PARTITION BYs or ORDER BYs is not supported",
                hint="leave out ORDER BY, or add LIMIT",
                position=ordering.position,
            )
        over, outputs, _ = bind_over(link.outputs, [], binder.names.columns, binder.names.inputs, bound.filters, None)
        below = statement.logical(node, binder, Bound(bound.node, bound.scope, outputs, []), None, inner=True)
        binder = SelectBinder(statement)
        leaf, relation = statement.add_results([statement.finished(replace(below, over=over))], "", node, binder.names)
        outputs = [replace(each, expression=link.over(each.expression, relation)) for each in bound.outputs]
        tests = [link.over(test, relation) for test in tests]
        bound = Bound(leaf, Scope([relation]), outputs, [])
    over, bound.outputs, bound.filters = bind_over(
        bound.outputs, tests, binder.names.columns, binder.names.inputs, bound.filters, limit
    )
    return replace(statement.logical(node, binder, bound, ordering, inner=inner), over=over)


def _of_sets(statement: Statement, node: exp.Select, ctes: Ctes, *, inner: bool) -> LogicalQuery:
    """The query over the results of an aggregation for each grouping set."""
    sets = node.args["group"].args["grouping_sets"]
    found = [_of_set(statement, node, ctes, number) for number in range(len(sets))]
    refuse_endless([query for query, _ in found], statement.text(node, inner=inner))
    over = SelectBinder(statement)
    leaf, relation = statement.add_results([statement.finished(query) for query, _ in found], "", node, over.names)
    relation.hidden[TP_DELTA] = column_of(TP_DELTA)
    scope, (_, bound) = Scope([relation]), found[0]
    outputs = [replace(each, expression=scope.substitute(each.expression)) for each in bound.outputs]
    tests = [scope.substitute(each) for each in bound.filters]
    return statement.logical(node, over, Bound(leaf, scope, outputs, tests), None, inner=inner)


def _of_set(statement: Statement, node: exp.Select, ctes: Ctes, number: int) -> tuple[LogicalQuery, Bound]:
    """The aggregation for a grouping set, and what stands over the results of all."""
    binder = SelectBinder(statement)
    bound = binder.select(node, None, ctes)
    aggregation, groupings = _aggregation(node, bound, binder.names)
    query = replace(statement.logical(node, binder, bound, None, inner=True), aggregation=aggregation)
    return of_set(query, groupings, number), bound


def _whole_from(select: exp.Select, ctes: Ctes) -> tuple[exp.Expr, str] | None:
    """The query below that is all of FROM, and its alias, if this select only filters and names."""
    start = select.args.get("from_")
    if start is None or select.args.get("joins") or select.args.get("order") or not is_inlined(select):
        return None
    if has_generators(select):
        return None
    where = select.args.get("where")
    parts = [*select.expressions, *([where] if where is not None else [])]
    if any(part.find(exp.Select) is not None for part in parts):
        return None
    below = nested_query(start.this, ctes)
    if below is None or is_inlined(below):
        return None
    return below, start.this.alias_or_name


def _merged(
    statement: Statement, select: exp.Select, ctes: Ctes, found: tuple[exp.Expr, str], *, inner: bool
) -> LogicalQuery:
    """The query below, with the columns and the conditions of a select around it."""
    refuse_clauses(select)
    node, alias = found
    where = select.args.get("where")
    limit = limit_on(node, where.this if where else None, alias)
    below = statement.query(node, ctes, inner=inner, limit=limit)
    refuse_inner_order(node)
    scope = Scope([Relation(alias, {column.name: column.expression for column in below.outputs})])
    conditions = [bind_condition(term, scope) for term in conjuncts(where.this if where else None)]
    outputs = tuple(output_columns(select, scope))
    return replace(below, outputs=outputs, filters=(*below.filters, *conditions), text=below.text)


def _aggregation(select: exp.Select, bound: Bound, names: Inputs) -> tuple[Aggregation, Groupings]:
    """Resolve GROUP BY, HAVING and aggregate functions; afterwards ``bound`` reads their results."""
    found, groupings, bound.outputs, bound.filters = bind_aggregates(
        select, bound.outputs, bound.scope, names.inputs, names.columns, bound.filters
    )
    return found, groupings
