"""From a parsed statement to a logical query: every name resolved, and each subquery inlined or a query of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregated
from watersmeet.bind.aggregates import bind_aggregates
from watersmeet.bind.conditions import bind_condition
from watersmeet.bind.grouping_sets import Groupings, has_sets, of_set, refuse_endless, with_sets
from watersmeet.bind.inputs import Inputs, Streams
from watersmeet.bind.limit import bind_limit
from watersmeet.bind.ordering import bind_ordering
from watersmeet.bind.outputs import output_columns, refuse_clauses
from watersmeet.bind.over import bind_over, finished, has_window_functions, limit_on, qualify_of
from watersmeet.bind.over_chain import first_link
from watersmeet.bind.over_groups import over_groups
from watersmeet.bind.results import inner_emit, results_of
from watersmeet.bind.rewriting import column_of, distinct, numbered, of_sides, refuse_uneven, with_mark, without_numbers
from watersmeet.bind.scope import Relation, Scope
from watersmeet.bind.select import Bound, SelectBinder
from watersmeet.bind.subqueries import (
    Ctes,
    ctes_of,
    has_limit,
    is_inlined,
    nested_query,
    reads_one_stream,
    refuse_inner_order,
)
from watersmeet.bind.unions import branches, is_union_all
from watersmeet.bind.window_calls import with_windows_in_from
from watersmeet.bind.windows import bind_sessions
from watersmeet.columns import TP_DELTA
from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.expressions.nodes import WindowTable
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.windows import WindowBound
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.logical.conditions import conjuncts
from watersmeet.plan.logical.query import Aggregation, LogicalQuery, Ordering, OutputColumn, QueryText
from watersmeet.plan.logical.tree import Leaf, Node
from watersmeet.settings.query_settings import QuerySettings, parse_settings
from watersmeet.sql.statements import Query


def bind(query: Query, streams: Streams) -> LogicalQuery:
    """Return the logical form of a query over ``streams`` (by lower-case name).

    Raises ``BindError`` and ``CatalogError`` for invalid names and types, ``UnsupportedError`` for clauses that are not
    supported over streams.
    """
    return finished(Statement(query, streams, _settings(query)).query(query.select, {}))


def _settings(query: Query) -> QuerySettings:
    try:
        return parse_settings(query.settings)
    except ConfigError as error:
        error.position = query.settings_positions.get(error.option or "", query.position)
        raise


class Statement:
    """Resolves the queries of one statement: the outermost one, and those whose results others read."""

    def __init__(self, query: Query, streams: Streams, settings: QuerySettings) -> None:
        self.streams = streams
        self.aliases: set[str] = set()
        #: By the node and its limit; with the node itself, so that no later one has its id.
        self._bound: dict[tuple[int, tuple[str, int] | None], tuple[exp.Expr, list[LogicalQuery]]] = {}
        self._query = query
        self._settings = settings
        self._of_final: Statement | None = None

    def final(self) -> Statement:
        """The statement whose queries are asked for final results; they stand in one plan with those of this one."""
        if self._query.emit is EmitMode.FINAL:
            return self
        if self._of_final is None:
            self._of_final = Statement(replace(self._query, emit=EmitMode.FINAL), self.streams, self._settings)
            self._of_final.aliases = self.aliases
        return self._of_final

    def apart(self) -> Statement:
        """A statement over the same streams, in which names can be looked up without a trace in this one."""
        return Statement(self._query, self.streams, self._settings)

    # -- queries ---------------------------------------------------------------------------------------------------

    def query(
        self, node: exp.Expr, ctes: Ctes, *, inner: bool = False, limit: tuple[str, int] | None = None
    ) -> LogicalQuery:
        """Resolve a SELECT, or a set operation.

        ``limit`` is what the query around it sets on a rank: the column's name in lower case, and the limit.
        """
        ctes = {**ctes, **ctes_of(node)}
        if has_limit(node):
            return bind_limit(self, node, ctes, inner=inner)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, ctes, inner=inner)
        assert isinstance(node, exp.Select)
        node = with_windows_in_from(with_sets(node))
        if node.args.get("distinct") and (is_aggregated(node) or has_window_functions(node)):
            plain = node.copy()
            plain.set("distinct", None)
            return distinct(self.over([self.query(plain, ctes, inner=True)], node, inner=inner))
        if (below := self._whole_from(node, ctes)) is not None:
            return self._merged(node, ctes, below, inner=inner)
        if is_aggregated(node) and has_window_functions(node):
            raise UnsupportedError(
                "window functions over aggregates need a subquery for the aggregates",
                hint="SELECT …, ROW_NUMBER() OVER (…) AS n FROM (SELECT … GROUP BY …)",
                position=position_of(node),
            )
        if is_aggregated(node) and (split := over_groups(node)) is not None:
            binder = SelectBinder(self)
            groups = finished(self.query(split.groups, ctes, inner=True))
            leaf, relation = self.add_results([groups], "", node, binder.names)
            bound = binder.above(split.above, leaf, split.scope(relation), ctes)
            return self._logical(node, binder, bound, None, inner=inner)
        if has_sets(node):
            return self._of_sets(node, ctes, inner=inner)
        binder = SelectBinder(self)
        bound = binder.select(node, None, ctes)
        if has_window_functions(node):
            return self._of_windows(node, binder, bound, limit, inner=inner)
        aggregation = _aggregation(node, bound, binder.names)[0] if is_aggregated(node) else None
        ordering = bind_ordering(node.args.get("order"), bound.node, bound.outputs, bound.scope, binder.names)
        found = replace(self._logical(node, binder, bound, ordering, inner=inner), aggregation=aggregation)
        return distinct(found) if node.args.get("distinct") else found

    def _of_windows(
        self, node: exp.Select, binder: SelectBinder, bound: Bound, limit: tuple[str, int] | None, *, inner: bool
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
            over, outputs, _ = bind_over(
                link.outputs, [], binder.names.columns, binder.names.inputs, bound.filters, None
            )
            below = self._logical(node, binder, Bound(bound.node, bound.scope, outputs, []), None, inner=True)
            binder = SelectBinder(self)
            leaf, relation = self.add_results([finished(replace(below, over=over))], "", node, binder.names)
            outputs = [replace(each, expression=link.over(each.expression, relation)) for each in bound.outputs]
            tests = [link.over(test, relation) for test in tests]
            bound = Bound(leaf, Scope([relation]), outputs, [])
        over, bound.outputs, bound.filters = bind_over(
            bound.outputs, tests, binder.names.columns, binder.names.inputs, bound.filters, limit
        )
        return replace(self._logical(node, binder, bound, ordering, inner=inner), over=over)

    def _of_sets(self, node: exp.Select, ctes: Ctes, *, inner: bool) -> LogicalQuery:
        """The query over the results of an aggregation for each grouping set."""
        sets = node.args["group"].args["grouping_sets"]
        found = [self._of_set(node, ctes, number) for number in range(len(sets))]
        refuse_endless([query for query, _ in found], self.text(node, inner=inner))
        over = SelectBinder(self)
        leaf, relation = self.add_results([query for query, _ in found], "", node, over.names)
        relation.hidden[TP_DELTA] = column_of(TP_DELTA)
        scope, (_, bound) = Scope([relation]), found[0]
        outputs = [replace(each, expression=scope.substitute(each.expression)) for each in bound.outputs]
        tests = [scope.substitute(each) for each in bound.filters]
        return self._logical(node, over, Bound(leaf, scope, outputs, tests), None, inner=inner)

    def _of_set(self, node: exp.Select, ctes: Ctes, number: int) -> tuple[LogicalQuery, Bound]:
        """The aggregation for a grouping set, and what stands over the results of all."""
        binder = SelectBinder(self)
        bound = binder.select(node, None, ctes)
        aggregation, groupings = _aggregation(node, bound, binder.names)
        query = replace(self._logical(node, binder, bound, None, inner=True), aggregation=aggregation)
        return of_set(query, groupings, number), bound

    def _logical(
        self, node: exp.Expr, binder: SelectBinder, bound: Bound, ordering: Ordering | None, *, inner: bool
    ) -> LogicalQuery:
        return LogicalQuery(
            root=bound.node,
            columns=binder.names.columns,
            outputs=tuple(bound.outputs),
            filters=tuple(bound.filters),
            ordering=ordering,
            aggregation=None,
            settings=self._settings,
            text=self.text(node, inner=inner),
            inner=inner,
        )

    def text(self, node: exp.Expr, *, inner: bool) -> QueryText:
        """The text of a query in the statement, for errors."""
        query = self._query
        if not inner:
            return QueryText(node, query.position, query.emit, query.emit_position, query.settings_positions)
        position = position_of(node) or query.position
        asked, is_final = inner_emit(query.emit), query.emit is EmitMode.FINAL
        return QueryText(node, position, asked, query.emit_position, query.settings_positions, within_final=is_final)

    # -- a query over the results of one -----------------------------------------------------------------------------

    def _whole_from(self, select: exp.Select, ctes: Ctes) -> tuple[exp.Expr, str, Ctes] | None:
        """The query below that is all of FROM, its alias, and its scope, if this select only filters and names."""
        start = select.args.get("from_")
        if start is None or select.args.get("joins") or select.args.get("order") or not is_inlined(select):
            return None
        where = select.args.get("where")
        parts = [*select.expressions, *([where] if where is not None else [])]
        if any(part.find(exp.Select) is not None for part in parts):
            return None
        below = nested_query(start.this, ctes)
        if below is None or is_inlined(below):
            return None
        return below, start.this.alias_or_name, ctes

    def _merged(
        self, select: exp.Select, ctes: Ctes, found: tuple[exp.Expr, str, Ctes], *, inner: bool
    ) -> LogicalQuery:
        """The query below, with the columns and the conditions of a select around it."""
        refuse_clauses(select)
        node, alias, _ = found
        where = select.args.get("where")
        limit = limit_on(node, where.this if where else None, alias)
        below = self.query(node, ctes, inner=inner, limit=limit)
        refuse_inner_order(node)
        scope = Scope([Relation(alias, {column.name: column.expression for column in below.outputs})])
        conditions = [bind_condition(term, scope) for term in conjuncts(where.this if where else None)]
        outputs = tuple(output_columns(select, scope))
        return replace(below, outputs=outputs, filters=(*below.filters, *conditions), text=below.text)

    # -- results as inputs -----------------------------------------------------------------------------------------

    def results(
        self, node: exp.Expr, alias: str, ctes: Ctes, condition: exp.Expr | None, names: Inputs
    ) -> tuple[Leaf, Relation]:
        """Resolve a query whose results are an input of another, which tests them by a condition."""
        key = (id(node), limit_on(node, condition, alias))  # a name of WITH that is used twice is one query
        if key not in self._bound:
            self._bound[key] = node, self.queries(node, ctes, key[1])
        _, queries = self._bound[key]
        return self.add_results(queries, alias, node, names)

    def queries(self, node: exp.Expr, ctes: Ctes, limit: tuple[str, int] | None = None) -> list[LogicalQuery]:
        """The queries whose results are those of a nested one."""
        refuse_inner_order(node)
        if isinstance(node, exp.SetOperation) and is_union_all(node):
            found = [self.query(each, {**ctes, **ctes_of(node)}, inner=True) for each in branches(node)]
        else:
            found = [self.query(node, ctes, inner=True, limit=limit)]
        return [finished(each) for each in found]

    def add_results(
        self, queries: Sequence[LogicalQuery], alias: str, node: exp.Expr, names: Inputs
    ) -> tuple[Leaf, Relation]:
        """Make the results of queries an input."""
        name = alias or ("union" if len(queries) > 1 else "subquery")
        stream, results = results_of(queries, name)
        return names.add_results(stream, results, name, position_of(node))

    def sessions(self, table: WindowTable, source: exp.Expr, ctes: Ctes, names: Inputs) -> tuple[Leaf, Relation]:
        """Resolve SESSION: a query of its own, which adds the bounds of sessions to the rows of a relation."""
        binder, scope = SelectBinder(self), Scope()
        below = nested_query(table.this, ctes)
        if below is None or reads_one_stream(below, ctes):
            node: Node = binder.relation_of(table.this, scope, ctes)
            (relation,) = scope.relations
        else:
            node, relation = self.results(below, table.this.alias_or_name, ctes, None, binder.names)
        sessions = bind_sessions(table, node, relation, binder.names)
        columns = {**relation.columns, **{bound.value: relation.find(bound.value) for bound in WindowBound}}
        outputs = [OutputColumn(name, expression) for name, expression in columns.items() if expression is not None]
        bound = Bound(node, Scope([relation]), outputs, [])
        query = replace(self._logical(table, binder, bound, None, inner=True), sessions=sessions)
        return self.add_results([query], source.alias or table.this.alias_or_name, source, names)

    def over(self, queries: Sequence[LogicalQuery], node: exp.Expr, *, inner: bool) -> LogicalQuery:
        """The query that returns all results of queries."""
        binder = SelectBinder(self)
        leaf, relation = self.add_results([finished(each) for each in queries], "", node, binder.names)
        outputs = [OutputColumn(name, expression) for name, expression in relation.columns.items()]
        order = node.args.get("order")
        ordering = bind_ordering(order, leaf, outputs, Scope([relation]), binder.names) if order else None
        return self._logical(node, binder, Bound(leaf, Scope([relation]), outputs, []), ordering, inner=inner)

    # -- set operations --------------------------------------------------------------------------------------------

    def _set_operation(self, node: exp.SetOperation, ctes: Ctes, *, inner: bool) -> LogicalQuery:
        if isinstance(node, exp.Union):
            queries = [self.query(each, ctes, inner=True) for each in branches(node)]
            found = self.over(queries, node, inner=inner)
            return found if is_union_all(node) else distinct(found)
        sides = [self.query(each, ctes, inner=True) for each in (node.this.unnest(), node.expression.unnest())]
        refuse_uneven(sides, type(node).__name__.upper())
        if not node.args.get("distinct"):
            plain = [each if each.is_plain else self.over([each], node, inner=True) for each in sides]
            sides = [numbered(each) for each in plain]
        marked = [with_mark(finished(query), number) for number, query in enumerate(sides)]
        over = self.over(marked, node, inner=inner)
        return without_numbers(of_sides(over, keeps_common=isinstance(node, exp.Intersect)))


def _aggregation(select: exp.Select, bound: Bound, names: Inputs) -> tuple[Aggregation, Groupings]:
    """Resolve GROUP BY, HAVING and aggregate functions; afterwards ``bound`` reads their results."""
    found, groupings, bound.outputs, bound.filters = bind_aggregates(
        select, bound.outputs, bound.scope, names.inputs, names.columns, bound.filters
    )
    return found, groupings
