"""From a parsed query to a logical one: every name resolved, subqueries inlined, joins in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregated
from watersmeet.bind.aggregates import bind_aggregates
from watersmeet.bind.conditions import bind_alternative, bind_condition, bind_membership
from watersmeet.bind.inputs import Inputs, Streams
from watersmeet.bind.join_kinds import join_kind
from watersmeet.bind.joins import bind_join
from watersmeet.bind.nested_joins import in_parentheses, is_nested, refuse_alias, refuse_repeated, repeated
from watersmeet.bind.ordering import bind_ordering
from watersmeet.bind.outputs import output_columns, refuse_clauses
from watersmeet.bind.scope import Relation, Scope
from watersmeet.bind.subqueries import Ctes, SubqueryTest, ctes_of, refuse_inner_order, where_terms
from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.api import JoinKind
from watersmeet.plan.logical.conditions import conjuncts, inputs_of
from watersmeet.plan.logical.query import Aggregation, LogicalQuery, OutputColumn, QueryText
from watersmeet.plan.logical.tree import Join, JoinCondition, Leaf, Node
from watersmeet.plan.passes.push_filters import reads_delta
from watersmeet.settings.query_settings import QuerySettings, parse_settings
from watersmeet.sql.statements import Query


def bind(query: Query, streams: Streams) -> LogicalQuery:
    """Return the logical form of a query over ``streams`` (by lower-case name).

    Raises ``BindError`` and ``CatalogError`` for invalid names and types, ``UnsupportedError`` for clauses that are not
    supported over streams.
    """
    select = query.select
    if not isinstance(select, exp.Select):
        raise UnsupportedError(
            "UNION, INTERSECT and EXCEPT of streams are not supported",
            hint="write each SELECT into one stream with INSERT INTO",
            position=position_of(select),
        )
    binder = _Binder(streams)
    bound = binder.select(select, None, {})
    aggregation = _aggregation(select, bound, binder.names) if is_aggregated(select) else None
    return LogicalQuery(
        root=bound.node,
        columns=binder.names.columns,
        outputs=tuple(bound.outputs),
        filters=tuple(bound.filters),
        ordering=bind_ordering(select.args.get("order"), bound.node, bound.outputs, bound.scope, binder.names),
        aggregation=aggregation,
        settings=_settings(query),
        text=QueryText(select, query.position, query.emit, query.emit_position, query.settings_positions),
    )


def _settings(query: Query) -> QuerySettings:
    try:
        return parse_settings(query.settings)
    except ConfigError as error:
        error.position = query.settings_positions.get(error.option or "", query.position)
        raise


@dataclass(slots=True)
class _Bound:
    """A bound select: its tree, its scope, the columns it returns, and the conditions on its results."""

    node: Node
    scope: Scope
    outputs: list[OutputColumn]
    filters: list[exp.Expr]


def _aggregation(select: exp.Select, bound: _Bound, names: Inputs) -> Aggregation:
    """Resolve GROUP BY, HAVING and aggregate functions; afterwards ``bound`` reads their results."""
    found, bound.outputs, bound.filters = bind_aggregates(
        select, bound.outputs, bound.scope, names.inputs, names.columns, bound.filters
    )
    return found


class _Binder:
    """Resolves selects, which nest in FROM, WHERE and CTEs; all their streams become inputs of one query."""

    def __init__(self, streams: Streams) -> None:
        self.names = Inputs(streams)

    def select(self, select: exp.Select, outer: Scope | None, ctes: Ctes, *, nested: bool = False) -> _Bound:
        """Resolve a select and everything in it; the conditions of a nested one become part of its tree."""
        refuse_clauses(select, nested=nested)
        ctes = {**ctes, **ctes_of(select)}
        scope = Scope(outer=outer)
        node = self._from(select, scope, ctes)
        where = select.args.get("where")
        terms = list(where_terms(where.this if where else None))
        conditions = [_any(bind_condition(each, scope) for each in term.conditions) for term in terms if not term.test]
        if nested:
            node, conditions = _with_where(node, conditions), []
        for term in terms:
            if term.test is not None:
                alternative = bind_alternative(term.conditions, scope, self.names.columns)
                node = self._semi_join(node, term.test, alternative, scope, ctes)
        return _Bound(node, scope, output_columns(select, scope), conditions)

    def _from(self, select: exp.Select, scope: Scope, ctes: Ctes) -> Node:
        start = select.args.get("from_") or select.args.get("from")
        if start is None:
            raise UnsupportedError("a query needs FROM and a stream", position=position_of(select))
        return self._joined(self._relation(start.this, scope, ctes), select, scope, ctes)

    def _joined(self, node: Node, owner: exp.Expr, scope: Scope, ctes: Ctes) -> Node:
        """Resolve the joins that follow a first relation: those of FROM, or of parentheses in it."""
        for join in owner.args.get("joins") or ():
            node = self._join(node, join, scope, ctes)
        return node

    def _join(self, left: Node, join: exp.Join, scope: Scope, ctes: Ctes) -> Join:
        kind, mirrored = join_kind(join)
        before = list(scope.relations)
        version = join.this.args.pop("version", None)
        right = self._relation(join.this, scope, ctes)
        node = Join(left, right, kind, position=position_of(join), mirrored=mirrored)
        return bind_join(node, join, version, before, scope, self.names)

    def _relation(self, source: exp.Expr, scope: Scope, ctes: Ctes) -> Node:
        """Resolve one side of a join; afterwards its relations are in scope."""
        if not is_nested(source):
            return self._named(source, scope, ctes)
        inner = Scope(outer=scope.outer)  # conditions in parentheses read what stands in them
        if in_parentheses(source):
            refuse_alias(source)
            node = self._relation(source.this, inner, ctes)
        else:
            node = self._named(source, inner, ctes)
        node = self._joined(node, source, inner, ctes)
        refuse_repeated(inner.relations, scope, source)
        scope.relations += inner.relations
        return node

    def _named(self, source: exp.Expr, scope: Scope, ctes: Ctes) -> Node:
        alias = source.alias_or_name
        if scope.relation(alias) is not None:
            raise repeated(alias, source)
        if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
            return self._subselect(source.this, alias, scope, ctes, source)
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            raise UnsupportedError(
                f"{plain_sql(source)} is not supported in FROM", hint="name a stream", position=position_of(source)
            )
        if source.args.get("version") is not None:
            raise UnsupportedError(
                "FOR SYSTEM_TIME AS OF is allowed only on the right side of a JOIN", position=position_of(source)
            )
        if (cte := ctes.get(source.name.lower())) is not None and not source.db:
            return self._subselect(cte, alias, scope, ctes, source)
        leaf, found = self.names.add(source, alias)
        scope.relations.append(found)
        return leaf

    def _subselect(self, select: exp.Select, alias: str, scope: Scope, ctes: Ctes, source: exp.Expr) -> Node:
        bound = self.select(select, None, ctes, nested=True)
        refuse_inner_order(select)
        scope.relations.append(Relation(alias, {column.name: column.expression for column in bound.outputs}))
        return bound.node

    def _semi_join(
        self, left: Node, test: SubqueryTest, alternative: exp.Expr | None, scope: Scope, ctes: Ctes
    ) -> Join:
        """Resolve [NOT] EXISTS or [NOT] IN to a semi or anti join; the ``alternative`` stands beside it under OR."""
        select = test.select
        refuse_clauses(select, nested=True)
        refuse_inner_order(select)
        inner = Scope(outer=scope)
        right = self._from(select, inner, {**ctes, **ctes_of(select)})
        where = select.args.get("where")
        conditions = [bind_condition(term, inner) for term in conjuncts(where.this if where else None)]
        own: list[exp.Expr] = []
        correlated: list[exp.Expr] = []
        for condition in conditions:
            is_own = inputs_of(condition, self.names.columns) <= right.inputs
            (own if is_own else correlated).append(condition)
        if test.operand is not None:
            correlated.append(bind_membership(test, scope, output_columns(select, inner)))
        return Join(
            left,
            _with_where(right, own),
            JoinKind.ANTI if test.negated else JoinKind.SEMI,
            JoinCondition(residual=tuple(correlated)),
            position_of(select),
            null_aware=test.negated and test.operand is not None,
            from_subquery=True,
            alternative=alternative,
        )


def _any(conditions: Iterable[exp.Expr]) -> exp.Expr:
    """Return the OR of conditions; one alone as it is."""
    found = list(conditions)
    return found[0] if len(found) == 1 else exp.or_(*found)


def _with_where(node: Node, conditions: Sequence[exp.Expr]) -> Node:
    """Return the tree of a subquery with the conditions of its WHERE."""
    for condition in conditions:
        if reads_delta(condition):
            raise UnsupportedError(
                "in a subquery, WHERE cannot test _tp_delta",
                hint="move the condition into the WHERE of the outermost query",
                position=position_of(condition),
            )
    if isinstance(node, Leaf):
        return Leaf(replace(node.input, filters=(*node.input.filters, *conditions)))
    return replace(node, where=(*node.where, *conditions))
