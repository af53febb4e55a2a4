"""From a logical query to a physical plan: the operators, each built from its node and the feeds of its children.

    logical query after PASSES
      -> join terms       keys, routes and conditions of every join; what the sources compute for them
      -> operators        from the leaves up: children first, then the operator above them
      -> aggregate, order after the last join, where the query has them
      -> plan             sources frozen, operators, final projection

This module runs nothing and knows no kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from sqlglot import exp

from watersmeet.kernels.api import Side
from watersmeet.lookup.tables import OpenTable
from watersmeet.plan.aggregate_rows import AggregateRows
from watersmeet.plan.allowed_lateness import check_allowed_lateness
from watersmeet.plan.closing import Closing, closing_of
from watersmeet.plan.emission import Emission, decide_emission, final_in_time
from watersmeet.plan.external_tables import table_of
from watersmeet.plan.in_time import InTime
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.join_limits import check_join_limits
from watersmeet.plan.join_terms import JoinTerms, join_terms
from watersmeet.plan.join_ttl import check_join_ttl
from watersmeet.plan.logical.lags import lag_of, latest_lag
from watersmeet.plan.logical.query import Aggregation, LogicalQuery, SessionWindows
from watersmeet.plan.logical.tree import NO_GRACE, Join, Leaf, Node, changing
from watersmeet.plan.max_future import check_max_future
from watersmeet.plan.nesting import PlannedQuery, nested, without_unread_columns
from watersmeet.plan.operators.aggregate import emits_of, plan_aggregation
from watersmeet.plan.operators.asof import feed_of_versions, plan_asof
from watersmeet.plan.operators.changelog import changes_of, plan_changelog
from watersmeet.plan.operators.forward import plan_forward
from watersmeet.plan.operators.interval import plan_interval
from watersmeet.plan.operators.lookup import plan_lookup
from watersmeet.plan.operators.multi_way import plan_multi_way
from watersmeet.plan.operators.ordered import order_columns, plan_ordered, plan_ordered_source
from watersmeet.plan.operators.over import plan_over
from watersmeet.plan.operators.over_in_time import plan_in_time
from watersmeet.plan.operators.sessions import plan_sessions
from watersmeet.plan.operators.sliding import plan_sliding, sliding_order
from watersmeet.plan.operators.upsert import lag_of_changes, plan_upsert
from watersmeet.plan.passes import optimize
from watersmeet.plan.passes.slide_joins import is_in_order
from watersmeet.plan.physical_plan import Feed, PhysicalInput, PhysicalOperator, PhysicalPlan
from watersmeet.plan.sources import Sources, quoted_column
from watersmeet.plan.table_retention import check_table_retention


def physical_plan(bound: LogicalQuery, open_table: OpenTable) -> PhysicalPlan:
    """The physical plan of a bound query; ``open_table`` opens the external tables that it looks up in.

    Raises ``PlanError`` where the state would have no bound, ``UnsupportedError`` for what cannot run as a stream or
    for a condition across sides that neither the kernel nor Spark may evaluate there, and ``ConfigError`` for options
    of a table and for settings that apply to nothing.
    """
    uses = Counter(map(id, _below(bound)))
    known: dict[int, PlannedQuery] = {}

    def planned(query: LogicalQuery) -> PlannedQuery:
        if id(query) not in known:
            plan = without_unread_columns(_plan_alone(optimize(query), open_table), uses)
            below = {part.input.index: part.input.results.queries for part in plan.inputs if part.input.results}
            known[id(query)] = PlannedQuery(plan, {index: tuple(map(planned, each)) for index, each in below.items()})
        return known[id(query)]

    return nested(planned(bound))


def _below(query: LogicalQuery) -> Iterator[LogicalQuery]:
    """The queries whose results a query reads, once for each time that it reads them, and those below them once."""
    seen: set[int] = set()
    left = [query]
    while left:
        for input in left.pop().inputs:
            for each in input.results.queries if input.results is not None else ():
                yield each
                if id(each) not in seen:
                    seen.add(id(each))
                    left.append(each)


def _plan_alone(query: LogicalQuery, open_table: OpenTable) -> PhysicalPlan:
    """The plan of an optimized query over its inputs, whatever they are."""
    if not query.inner and all(input.results is None for input in query.inputs):
        check_max_future(query)  # a setting of a statement with several queries is for any of them
        check_allowed_lateness(query)
        check_join_limits(query)
        check_join_ttl(query)
        check_table_retention(query)
    emission = decide_emission(query)
    sources = Sources(query)
    terms, postponed = join_terms(query, sources)
    filters = (*query.filters, *postponed)
    operators = _Operators(query, emission, sources, terms, open_table)
    needed = _result_columns(query, filters, sources)
    if query.aggregation is not None:
        operators.add_aggregation(query.aggregation)
    elif query.over is not None:
        operators.add_over(needed)
    elif query.sessions is not None:
        operators.add_sessions(query.sessions, needed)
    elif query.ordering is not None:
        operators.add_ordered(needed)
    else:
        operators.add_tree(query.root, needed)
    tables = tuple(input for input in query.inputs if input.index in sources.external)
    inputs = _late_by_terms(sources.freeze(), operators.built)
    return PhysicalPlan(query, emission, inputs, tuple(operators.built), filters, tables)


def _late_by_terms(inputs: Iterable[PhysicalInput], operators: Iterable[PhysicalOperator]) -> tuple[PhysicalInput, ...]:
    """The inputs; further terms of an order stay where rows are late by their own times alone."""
    feeds = {feed.source: feed for operator in operators for feed in operator.feeds if feed.source is not None}
    late = {source for source, feed in feeds.items() if feed.until is None and feed.lag is not None}
    return tuple(part if number in late else replace(part, ties=()) for number, part in enumerate(inputs))


def _result_columns(query: LogicalQuery, filters: Iterable[exp.Expr], sources: Sources) -> frozenset[str]:
    """The columns that results are made of."""
    needed: set[str] = set()
    for expression in (*(column.expression for column in query.outputs), *filters):
        needed |= sources.carried_names(expression)
    # if all outputs are constants, one column still carries the row count
    return frozenset(needed or {query.inputs[min(query.root.visible)].time_name})


class _Operators:
    """The operators built so far, in the order in which rows pass them."""

    def __init__(
        self,
        query: LogicalQuery,
        emission: Emission,
        sources: Sources,
        terms: Mapping[Join, JoinTerms],
        open_table: OpenTable,
    ) -> None:
        self._query = query
        self._emission = emission
        self._sources = sources
        self._terms = terms
        self._open_table = open_table
        self.built: list[PhysicalOperator] = []

    def add_tree(self, node: Node, needed: frozenset[str]) -> None:
        """Add the operators of a tree, inner ones first; the last one's results hold the columns ``needed``."""
        if isinstance(node, Join):
            if node.group is not None:
                self.built.append(plan_multi_way(self._context(node, needed), node.group))
            else:
                self._add_join(node, needed)
        elif node.input.stream.changes:
            self.built.append(plan_upsert(node.input, needed, self._sources))
        else:
            self.built.append(plan_forward(node.input, needed, self._sources))

    def add_ordered(self, needed: frozenset[str]) -> None:
        """Add the operators of the query's tree, and after them the one that orders their results, unless they do."""
        root = self._query.root
        if isinstance(root, Leaf):
            self.built.append(plan_ordered_source(self._query, root.input, needed, self._sources))
            return
        if is_in_order(self._query):
            self.add_tree(root, needed)
            return
        time, ties = order_columns(self._query, self._sources)
        self.add_tree(root, needed | {time, *(name for name, _ in ties)})
        number = len(self.built) - 1
        self.built.append(plan_ordered(self._query, self.built[number], number, needed, self._sources))

    def add_aggregation(self, aggregation: Aggregation) -> None:
        """Add the operators of the query's tree, and after them those that aggregate their results."""
        root = self._query.root
        emits = emits_of(self._query, self._emission.mode)
        rows = AggregateRows(root, self._sources, None if emits.closing is None else emits.closing.input)
        planned = plan_aggregation(aggregation, emits, rows, self._arrival_route(rows))
        feed = self._feed_of_rows(rows, planned.route, emits.closing)
        gather = None
        settings = self._query.settings
        if isinstance(root, Leaf) and settings.late_rows == "drop" and not settings.is_real_time:
            gather = partial(self._sources.gather, root.input)
        self.built += planned.operators(feed, len(self.built), gather)

    def add_over(self, needed: frozenset[str]) -> None:
        """Add the operators of the query's tree, and after them the one that computes window functions."""
        if (time := final_in_time(self._query)) is not None:
            rows = AggregateRows(self._query.root, self._sources, time.input)
            in_order = plan_in_time(self._query, rows, needed)
            self.built.append(in_order.operator(self._feed_of_rows(rows, in_order.route, time)))
            return
        closing = closing_of(self._query)
        rows = AggregateRows(self._query.root, self._sources, None if closing is None else closing.input)
        planned = plan_over(self._query, self._emission.mode, rows, needed)
        self.built.append(planned.operator(self._feed_of_rows(rows, planned.route, closing)))

    def add_sessions(self, sessions: SessionWindows, needed: frozenset[str]) -> None:
        """Add the operators of the query's tree, and after them the one that finds sessions."""
        rows = AggregateRows(self._query.root, self._sources, sessions.input)
        planned = plan_sessions(self._query, rows, needed)
        self.built.append(planned.operator(self._feed_of_rows(rows, planned.route, sessions)))

    def _feed_of_rows(
        self, rows: AggregateRows, route: tuple[str, ...], dated: Closing | InTime | SessionWindows | None
    ) -> Feed:
        """The feed of what stands over the tree: its rows, whose operators are added.

        ``dated`` says which input has the event time by which rows are late, if they can be.
        """
        root = self._query.root
        lag = None if dated is None else lag_of(root, dated.input)
        if isinstance(root, Leaf) and not root.input.stream.changes:
            until = dated.row_end(root.input) if isinstance(dated, Closing) else None
            needed = rows.needed if until is None else {*rows.needed, until.column}
            self._sources.require(root.input, needed, routed_by=route, grace=NO_GRACE)
            slack = self._sources.delay(root.input)
            return Feed((rows.lead,), source=0, lag=lag, slack=slack, changelog=root.input.changes, until=until)
        self.add_tree(root, frozenset({*rows.needed, rows.lead, *route}))
        return self._last((rows.lead,), lag=lag)

    def _add_join(self, join: Join, needed: frozenset[str]) -> None:
        if join.probe is not None:
            needed |= {name for name, _ in sliding_order(join, self._query, self._sources)}
        context = self._context(join, needed)
        table = table_of(join)
        feeds = [self._feed(context, side) for side in Side if side is Side.LEFT or table is None]
        operator: PhysicalOperator
        if table is not None:
            operator = plan_lookup(context, table, feeds[0], self._open_table)
        elif join.asof is not None:
            operator = plan_asof(context, feeds)
        elif (changes := changes_of(context, feeds)) is not None:
            operator = plan_changelog(context, feeds, changes)
        elif join.probe is not None:
            operator = plan_sliding(context, feeds)
        else:
            operator = plan_interval(context, feeds)
        self.built.append(operator)

    def _context(self, join: Join, needed: frozenset[str]) -> JoinContext:
        return JoinContext(self._query, self._emission, self._sources, join, self._terms[join], needed)

    def _feed(self, context: JoinContext, side: Side) -> Feed:
        """One input of a join: a source that brings its columns, or the operators of a subtree, which are added."""
        child, join = context.join.child(side), context.join
        columns, route = context.required_columns(side), context.terms.routes[side.index]
        leaders = join.condition.leaders[side.index]
        times = tuple(self._query.inputs[leader].time_name for leader in leaders)
        as_of = join.asof if side is Side.RIGHT else None
        replaced = context.replaced(side) is not None
        if isinstance(child, Leaf) and (replaced or as_of is not None or not child.input.stream.changes):
            input = child.input
            self._sources.require(input, columns, routed_by=route, grace=join.condition.grace)
            feed = Feed(
                times,
                source=self._sources.number(input),
                lag=lag_of_changes(input) if replaced else lag_of(child, input.index),
                slack=self._sources.delay(input),
                changelog=input.changes and not replaced,
            )
            return feed if as_of is None else feed_of_versions(context, as_of, feed)
        self.add_tree(child, frozenset({*columns, *times, *route}))
        return self._last(times, lag=None if changing(child) else latest_lag(child, leaders))

    def _last(self, times: tuple[str, ...], lag: int | None) -> Feed:
        """A feed from the operator that was added last."""
        number = len(self.built) - 1
        return Feed(times, operator=number, lag=lag, slack=lag or 0, changelog=self.built[number].weighted)

    def _arrival_route(self, rows: AggregateRows) -> tuple[str, ...] | None:
        """Hash columns that route the aggregate's input rows; None where there is one bucket."""
        if self._query.settings.buckets == 1:
            return None
        root = self._query.root
        if isinstance(root, Join):
            return self._terms[root].routes[0]
        names = root.input.stream.primary_key or (root.input.time.column,)
        return tuple(rows.hashed("$h_key", [quoted_column(root.input.physical(name)) for name in names]))
