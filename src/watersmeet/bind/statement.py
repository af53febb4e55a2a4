"""From a parsed statement to a logical query: every name resolved, and each subquery inlined or a query of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.bind.across_streams import needs_results, over_results, rows_below, time_of_rows
from watersmeet.bind.as_results import now_of_results, outputs_of
from watersmeet.bind.inputs import Inputs, Streams
from watersmeet.bind.limit import bind_limit
from watersmeet.bind.ordering import bind_ordering
from watersmeet.bind.over import finished, limit_on
from watersmeet.bind.relations import Relation
from watersmeet.bind.results import ResultsTime, inner_emit, results_of
from watersmeet.bind.scope import Scope
from watersmeet.bind.select import Bound, SelectBinder
from watersmeet.bind.select_query import bind_select
from watersmeet.bind.set_operations import bind_set_operation
from watersmeet.bind.subqueries import Ctes, ctes_of, has_limit, nested_query, reads_one_stream, refuse_inner_order
from watersmeet.bind.unions import branches, is_union_all
from watersmeet.bind.windows import bind_sessions, timed_leaf
from watersmeet.errors import ConfigError
from watersmeet.expressions.event_time import EventTime
from watersmeet.expressions.nodes import WindowTable
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.windows import WindowBound
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.logical.query import LogicalQuery, Ordering, OutputColumn, QueryText
from watersmeet.plan.logical.tree import Leaf, Node
from watersmeet.settings.query_settings import QuerySettings, parse_settings
from watersmeet.sql.statements import Query


def bind(query: Query, streams: Streams) -> LogicalQuery:
    """Return the logical form of a query over ``streams`` (by lower-case name).

    Raises ``BindError`` and ``CatalogError`` for invalid names and types, ``UnsupportedError`` for clauses that are not
    supported over streams.
    """
    statement = Statement(query, streams, _settings(query))
    return statement.finished(statement.query(query.select, {}))


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
            return bind_set_operation(self, node, ctes, inner=inner)
        assert isinstance(node, exp.Select)
        return bind_select(self, node, ctes, inner=inner, limit=limit)

    def logical(
        self, node: exp.Expr, binder: SelectBinder, bound: Bound, ordering: Ordering | None, *, inner: bool
    ) -> LogicalQuery:
        """The query of a FROM, its outputs and its conditions."""
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

    def below(self, binder: SelectBinder, node: exp.Expr, bound: Bound) -> LogicalQuery:
        """The query of a bound select whose results another reads."""
        return self.finished(self.logical(node, binder, bound, None, inner=True))

    def finished(self, query: LogicalQuery) -> LogicalQuery:
        """The query as it is planned: window functions without unread values, and over results what needs them."""
        query = finished(query)
        if not needs_results(query):
            return query
        node = query.text.select
        below = replace(rows_below(query), text=self.text(node, inner=True), inner=True)
        names = Inputs(self.streams, self.aliases)
        leaf, results = self.add_results([below], "", node, names, time_of_rows(query, below))
        return over_results(query, below, leaf, results, names)

    def text(self, node: exp.Expr, *, inner: bool) -> QueryText:
        """The text of a query in the statement, for errors."""
        query = self._query
        if not inner:
            return QueryText(node, query.position, query.emit, query.emit_position, query.settings_positions)
        position = position_of(node) or query.position
        asked, is_final = inner_emit(query.emit), query.emit is EmitMode.FINAL
        return QueryText(node, position, asked, query.emit_position, query.settings_positions, within_final=is_final)

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
        return [self.finished(each) for each in found]

    def add_results(
        self,
        queries: Sequence[LogicalQuery],
        alias: str,
        node: exp.Expr,
        names: Inputs,
        time_of_first: ResultsTime | None = None,
    ) -> tuple[Leaf, Relation]:
        """Make the results of queries an input; ``time_of_first`` is that of ``results_of``."""
        name = alias or ("union" if len(queries) > 1 else "subquery")
        stream, results = results_of(queries, name, time_of_first)
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
        query = replace(self.logical(table, binder, bound, None, inner=True), sessions=sessions)
        return self.add_results([query], source.alias or table.this.alias_or_name, source, names)

    def changes_to_window(
        self, table: WindowTable, source: exp.Expr, ctes: Ctes, names: Inputs
    ) -> tuple[Leaf, Relation]:
        """The changes of a stream as results, which HOP and CUMULATE may repeat: a retraction as the row before it.

        Raises ``BindError`` unless the named column is the event time of ``source``.
        """
        binder, scope = SelectBinder(self), Scope()
        node = binder.relation_of(source, scope, ctes)
        (relation,) = scope.relations
        unit = timed_leaf(table, node, relation, binder.names).input.time.unit
        outputs, places = outputs_of(scope)
        query = self.below(binder, table, Bound(node, scope, outputs, []))
        leaf, results = self.add_results([query], relation.alias, table, names)
        now_of_results(scope, places, results)
        time = relation.find(table.args["time"].name)
        assert time is not None  # timed_leaf has found it
        return names.window_by(leaf, EventTime(names.columns[time.name].column, unit)), relation

    def over(self, queries: Sequence[LogicalQuery], node: exp.Expr, *, inner: bool) -> LogicalQuery:
        """The query that returns all results of queries."""
        binder = SelectBinder(self)
        leaf, relation = self.add_results([self.finished(each) for each in queries], "", node, binder.names)
        outputs = [OutputColumn(name, expression) for name, expression in relation.columns.items()]
        order = node.args.get("order")
        ordering = bind_ordering(order, leaf, outputs, Scope([relation]), binder.names) if order else None
        return self.logical(node, binder, Bound(leaf, Scope([relation]), outputs, []), ordering, inner=inner)
