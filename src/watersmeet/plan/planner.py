"""From a logical plan to a physical one: which columns travel, and the operators that rows pass.

What reads one input only is computed at its source before rows are packed: keys of mixed types, one-sided parts of
conditions, the hashes that choose buckets.  An event time travels as ``$t``.  This module runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from watersmeet.columns import TIME, TP_DELTA
from watersmeet.expressions.times import TimeUnit
from watersmeet.kernels.api import EmitMode, JoinKind, Kernel, Side
from watersmeet.kernels.asof.changelog import AsofChangelog
from watersmeet.kernels.asof.match import AsofMatch, Versions
from watersmeet.kernels.changelog.join import ChangelogJoin
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.changelog.sides import Change
from watersmeet.kernels.forward import Forward
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import Key, SideColumns, WindowMatch
from watersmeet.kernels.ordered import OrderedEmit
from watersmeet.kernels.upsert import Upsert
from watersmeet.lookup.tables import OpenTable
from watersmeet.plan.aggregates import Rows, plan_aggregation
from watersmeet.plan.asof import kernel_of, routing_keys, versions_of
from watersmeet.plan.emit import join_at_once
from watersmeet.plan.logical.bounds import Interval
from watersmeet.plan.logical.query import (
    Aggregation,
    Input,
    JoinNode,
    Leaf,
    LogicalQuery,
    Node,
    Ordering,
    changing,
    inputs_of,
    joins_of,
    nullable,
    timed,
)
from watersmeet.plan.lookup import computed_key, left_changes, lookup_kernel, table_of
from watersmeet.plan.physical import Feed, PhysicalInput, PhysicalOperator, PhysicalPlan, restorable
from watersmeet.plan.residual import carry_one_sided, is_allowed, render, require_allowed
from watersmeet.plan.windows import lag_of, latest_lag


def physical_plan(query: LogicalQuery, open_table: OpenTable) -> PhysicalPlan:
    """The physical plan of a bound query; ``open_table`` gives what outside tables are asked through.

    Raises ``UnsupportedError`` for a condition across sides that neither the kernel nor Spark may evaluate there, and
    ``ConfigError`` for options of a table.
    """
    return _Planner(query, open_table).plan()


@dataclass(frozen=True, slots=True)
class _JoinTerms:
    """A join's conditions over the columns that travel; ``routes`` are the hash columns of its key, by side."""

    keys: tuple[Key, ...]
    routes: tuple[tuple[str, ...], tuple[str, ...]]
    residual: tuple[exp.Expr, ...]


class _Planner:
    def __init__(self, query: LogicalQuery, open_table: OpenTable) -> None:
        self.query = query
        self.open_table = open_table
        self.columns = dict(query.columns)
        self.inputs = [PhysicalInput(input) for input in query.inputs]
        self.tables = [input for input in query.inputs if input.stream.outside]
        self.outside = frozenset(table.index for table in self.tables)
        self.sources = [part for part in self.inputs if part.input.index not in self.outside]
        self.table_routes: dict[int, tuple[str, ...]] = {}  # by the table's input: what routed the rows to its lookup
        self.joins = list(joins_of(query.root))
        self.terms: list[_JoinTerms] = []
        self.post_filters = list(query.post_filters)
        self.operators: list[PhysicalOperator] = []
        for input in changing(query.root):
            self._test_newest(self.inputs[input.index])

    def plan(self) -> PhysicalPlan:
        self.terms = [self._join_terms(number, join) for number, join in enumerate(self.joins)]
        if self.query.aggregation is not None:
            self._place_aggregation(self.query.aggregation)
        elif self.query.ordering is None:
            self._place(self.query.root, self._needed())
        else:
            self._place_ordered(self.query.ordering, self._needed())
        return PhysicalPlan(
            self.query, self.sources, self.operators, self.query.outputs, self.post_filters, self.tables
        )

    def _needed(self) -> set[str]:
        """The columns that results are made of."""
        needed: set[str] = set()
        for expression in (*(column.expression for column in self.query.outputs), *self.post_filters):
            needed |= self._names(expression)
        if not needed:
            # results of constants only: something must tell how many rows there are
            needed.add(self.query.inputs[min(self.query.root.visible)].time_name)
        return needed

    # -- conditions ------------------------------------------------------------------------------------------------

    def _join_terms(self, number: int, join: JoinNode) -> _JoinTerms:
        table = table_of(join)
        keys = []
        for i, pair in enumerate(join.analysis.keys):
            name = f"$k{number}_{i}"
            right = self._key_column(pair.right, pair.type, name) if table is None else pair.right.name
            keys.append(Key(self._key_column(pair.left, pair.type, name), right, pair.null_safe))
        routes = self._routes(number, join)
        residual = []
        padded = nullable(join.left) | nullable(join.right)
        for condition in (*join.analysis.residual, *(table.filters if table is not None else ())):
            carried = carry_one_sided(condition, self.columns, padded, self._computed, outside=self.outside)
            if not is_allowed(carried):
                if self._commutes(number):
                    self.post_filters.append(condition)
                    continue
                require_allowed(carried, join.kind.value)
            residual.append(carried)
        return _JoinTerms(tuple(keys), routes, tuple(residual))

    def _commutes(self, number: int) -> bool:
        """Whether a condition of a join can as well be tested after the last one."""
        visible = self.joins[number].visible <= self.query.root.visible and self.query.aggregation is None
        return visible and all(above.kind is JoinKind.INNER for above in self.joins[number:])

    def _routes(self, number: int, join: JoinNode) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """One hash column for each pair of inputs that share keys, computed at the sources."""
        if (table := table_of(join)) is not None:
            left = self._lookup_route(number, join)
            self.table_routes[table.index] = left
            return left, ()
        groups: dict[tuple[int, int], list[tuple[exp.Expr, exp.Expr]]] = {}
        for pair in routing_keys(join, self.query.inputs, self.columns):
            (i,), (j,) = inputs_of(pair.left, self.columns), inputs_of(pair.right, self.columns)
            typed = [exp.cast(side.copy(), pair.type) for side in (pair.left, pair.right)]
            groups.setdefault((i, j), []).append((typed[0], typed[1]))
        routes: tuple[list[str], list[str]] = ([], [])
        for group, (pair_of_inputs, keys) in enumerate(sorted(groups.items())):
            for side in Side:
                part = self.inputs[pair_of_inputs[side.index]]
                name = part.input.physical(f"$h{number}_{group}")
                part.hashes[name] = [key[side.index] for key in keys]
                routes[side.index].append(name)
        return tuple(routes[0]), tuple(routes[1])

    def _lookup_route(self, number: int, join: JoinNode) -> tuple[str, ...]:
        """Hash columns of a lookup's left side: of its keys, and for keys that were looked up what led to them."""
        keys: dict[int, list[exp.Expr]] = {}
        for pair in join.analysis.keys:
            (i,) = inputs_of(pair.left, self.columns)
            keys.setdefault(i, []).append(exp.cast(pair.left.copy(), pair.type))
        route: list[str] = []
        for i, of_input in sorted(keys.items()):
            if i in self.outside:
                route += self.table_routes[i]
                continue
            name = self.query.inputs[i].physical(f"$h{number}_{i}")
            self.inputs[i].hashes[name] = of_input
            route.append(name)
        return tuple(dict.fromkeys(route))

    def _key_column(self, expression: exp.Expr, kind: exp.DataType, name: str) -> str:
        (input,) = inputs_of(expression, self.columns)
        part = self.inputs[input]
        if isinstance(expression, exp.Column):
            known = self.columns[expression.name]
            if known.type == kind and not self._is_time(expression.name):
                return self._carried_name(expression)
        if input in self.outside:
            raise computed_key(expression)
        full = part.input.physical(name)
        part.computed[full] = exp.cast(expression.copy(), kind)
        return full

    def _computed(self, input: int, expression: exp.Expr) -> str:
        part = self.inputs[input]
        name = part.input.physical(f"$e{len(part.computed)}")
        part.computed[name] = expression
        return name

    # -- columns ---------------------------------------------------------------------------------------------------

    def _is_time(self, name: str) -> bool:
        """Whether a column travels as its input's ``$t``."""
        known = self.columns.get(name)
        if known is None:
            return False
        input = self.query.inputs[known.input]
        return input.is_time(known.column) and restorable(input)

    def _carried_name(self, column: exp.Expr) -> str:
        """The name under which a column travels."""
        name: str = column.name
        if self._is_time(name):
            return self.query.inputs[self.columns[name].input].time_name
        return name

    def _names(self, expression: exp.Expr) -> set[str]:
        return {self._carried_name(c) for c in expression.find_all(exp.Column) if c.name != TP_DELTA}

    def _of_side(self, names: set[str], side: Node) -> set[str]:
        aliases = {self.query.inputs[i].alias for i in side.inputs}
        return {name for name in names if name.split(":", 1)[0] in aliases or self._owner(name) in side.inputs}

    def _owner(self, name: str) -> int:
        known = self.columns.get(name)
        return known.input if known is not None else -1

    # -- operators -------------------------------------------------------------------------------------------------

    def _place(self, node: Node, needed: set[str]) -> set[str]:
        """Add the operators of a tree, inner ones first; the columns that come out come back."""
        if isinstance(node, Leaf):
            return self._place_forward(node.input, needed)
        return self._place_join(node, needed)

    def _place_forward(self, input: Input, needed: set[str]) -> set[str]:
        """The operator of a query over one stream: nothing to join, rows are handed on."""
        if input.stream.changes:
            return self._place_upsert(input, needed)
        given = tuple(sorted(needed)) or (input.time_name,)
        self._bring(input, set(given), routed_by=(), grace=0)
        self.operators.append(
            PhysicalOperator(
                name="forward",
                kernel=Forward(given, input.time_name),
                feeds=(Feed((input.time_name,), source=0),),
                routed_by=((),),
                output=given,
                single_bucket=True,
            )
        )
        return set(given)

    def _place_upsert(self, input: Input, needed: set[str]) -> set[str]:
        """The operator that makes a changelog of a stream that changes."""
        part = self.inputs[input.index]
        newest = self._newest(part)
        given = tuple(sorted(needed)) or (input.time_name,)
        route = input.physical("$h_key")
        part.hashes[route] = [
            exp.column(exp.to_identifier(input.physical(name), quoted=True)) for name in input.stream.primary_key
        ]
        self._bring(input, {*given, *newest.columns}, routed_by=(route,), grace=0)
        source = self.sources.index(part)
        self.operators.append(
            PhysicalOperator(
                name=f"upsert_{input.index + 1}",
                kernel=Upsert(newest, given, input.time_name),
                feeds=(Feed((input.time_name,), source=source, lag=_lag_of_changes(input)),),
                routed_by=((route,),),
                output=given,
                single_bucket=False,
                weighted=True,
                gives_ids=True,
            )
        )
        return set(given)

    def _test_newest(self, part: PhysicalInput) -> None:
        """A filter over a stream that changes tests the newest row of a key: what it drops takes an older one away."""
        if part.input.filters:
            part.passes = part.input.physical("$pass")
            part.computed[part.passes] = exp.and_(*part.input.filters)

    def _newest(self, part: PhysicalInput) -> Newest:
        input = part.input
        by = [input.physical(name) for name in input.stream.primary_key]
        return Newest(
            by=tuple(TIME if self._is_time(name) else name for name in by),
            sequence=part.sequence,
            weight=input.physical(TP_DELTA),
            passes=part.passes,
            alias=input.alias,
        )

    def _replaced_in(self, join: JoinNode, side: Side) -> Newest | None:
        """How rows of a side replace each other within the join's own buckets.

        All changes of a key reach one bucket only if the primary key has all that routes them.
        """
        child = join.child(side)
        if join.asof is not None or not isinstance(child, Leaf) or not child.input.stream.changes:
            return None
        primary = {child.input.physical(name) for name in child.input.stream.primary_key}
        pairs = join.analysis.keys
        routes = [pair.left if side is Side.LEFT else pair.right for pair in pairs]
        read = {column.name for route in routes for column in route.find_all(exp.Column)}
        return self._newest(self.inputs[child.input.index]) if pairs and read <= primary else None

    def _place_ordered(self, ordering: Ordering, needed: set[str]) -> None:
        """The operators of the tree, and after them the one that puts results in order."""
        time = self.query.inputs[ordering.input].time_name
        ties = [(self._carried_name(expression), descending) for expression, descending in ordering.ties]
        ties += [(self.inputs[i].sequence, False) for i in sorted(timed(self.query.root))]
        given = self._place(self.query.root, needed | {time, *(name for name, _ in ties)})
        ties += [(name, False) for name in sorted(given - {time})]
        lag = lag_of(self.query.root, ordering.input)
        assert lag is not None  # checked when the emit mode was decided
        output = tuple(sorted(needed))
        self.operators.append(
            PhysicalOperator(
                name="order",
                kernel=OrderedEmit(output, time, tuple(ties)),
                feeds=(Feed((time,), operator=len(self.operators) - 1, lag=lag),),
                routed_by=((),),
                output=output,
                single_bucket=True,
            )
        )

    def _place_aggregation(self, aggregation: Aggregation) -> None:
        """The operators of the tree, and after them those that aggregate what comes out."""
        root = self.query.root
        lead = self.query.inputs[min(timed(root))].time_name

        def axis(input: int) -> exp.Column:
            name = self.query.inputs[input].time_name
            return _column(TIME if name == lead else name)

        def value(name: str) -> exp.Expr:
            input = self.columns[name].input
            return _time_value(self.query.inputs[input], axis(input)) if self._is_time(name) else _column(name)

        rows = Rows(
            inputs=self.inputs,
            columns=self.columns,
            padded=nullable(root),
            outside=self.outside,
            computed=self._computed,
            travels_as=self._carried_name,
            axis=axis,
            value=value,
        )
        planned = plan_aggregation(aggregation, rows, self._spread(rows))
        if isinstance(root, Leaf) and not root.input.stream.changes:
            self._bring(root.input, rows.needed, routed_by=planned.route, grace=0)
            feed = Feed((lead,), source=0, lag=None)
        else:
            self._place(root, {*rows.needed, lead, *planned.route})
            feed = Feed((lead,), operator=len(self.operators) - 1, lag=None)
        self.operators += planned.operators(feed, len(self.operators), changes=self._is_changelog(feed))

    def _spread(self, rows: Rows) -> tuple[str, ...] | None:
        """Hash columns by which the tree's rows lie in buckets as they come; None where there is one bucket."""
        if self.query.settings.buckets == 1:
            return None
        root = self.query.root
        if isinstance(root, JoinNode):
            return self.terms[-1].routes[0]
        names = root.input.stream.primary_key or (root.input.time.column,)
        return rows.hashed("$h_key", [_column(root.input.physical(name)) for name in names])

    def _place_join(self, join: JoinNode, needed: set[str]) -> set[str]:
        """The operators of both subtrees, and after them the join."""
        if (table := table_of(join)) is not None:
            return self._place_lookup(join, table, needed)
        number = self.joins.index(join)
        terms = self.terms[number]
        feeds = []
        columns = []
        for side in Side:
            condition = self._for_condition(join, terms, side)
            output = self._of_side(needed, join.child(side)) if join.kind.shows(side) else set()
            brought = condition | output | self._for_versions(join, terms, side)
            if (newest := self._replaced_in(join, side)) is not None:
                brought |= set(newest.columns)
            feed = self._feed(join, side, brought, terms.routes[side.index])
            time = feed.times[0] if len(feed.times) == 1 else None
            feeds.append(feed)
            columns.append(SideColumns(tuple(sorted(output)), tuple(sorted(condition - {time})), time))
        weighted = gives_ids = False
        kernel: Kernel
        if join.asof is None:
            kernel, weighted, gives_ids = self._window_kernel(join, feeds, columns)
        else:
            match = self._asof_match(join, columns)
            kernel = kernel_of(self.query, join, match, left_changes=self._is_changelog(feeds[0]))
            if isinstance(kernel, AsofChangelog):
                weighted, gives_ids = True, kernel.gives_ids
        results = (*columns[0].output, *columns[1].output)
        self.operators.append(
            PhysicalOperator(
                name=f"join_{number + 1}",
                kernel=kernel,
                feeds=tuple(feeds),
                routed_by=terms.routes,
                output=results,
                single_bucket=not terms.routes[0],
                weighted=weighted,
                gives_ids=gives_ids,
            )
        )
        return set(results)

    def _place_lookup(self, join: JoinNode, table: Input, needed: set[str]) -> set[str]:
        """The operators of the left side, and after them the lookup, which has no other input."""
        number = self.joins.index(join)
        terms = self.terms[number]
        conditions = [self._for_condition(join, terms, side) for side in Side]
        outputs = [self._of_side(needed, join.child(side)) for side in Side]
        feed = self._feed(join, Side.LEFT, conditions[0] | outputs[0], terms.routes[0])
        if self._is_changelog(feed):
            raise left_changes(join, table)
        time = feed.times[0]
        columns = [
            SideColumns(tuple(sorted(outputs[0])), tuple(sorted(conditions[0] - {time})), time),
            SideColumns(tuple(sorted(outputs[1])), tuple(sorted(conditions[1]))),
        ]
        residual = self._residual_sql(join, terms)
        kernel = lookup_kernel(join, table, columns, terms.keys, residual, self.open_table)
        results = (*columns[0].output, *columns[1].output)
        self.operators.append(
            PhysicalOperator(
                name=f"join_{number + 1}",
                kernel=kernel,
                feeds=(feed,),
                routed_by=(terms.routes[0],),
                output=results,
                single_bucket=not terms.routes[0],
            )
        )
        return set(results)

    def _window_kernel(
        self, join: JoinNode, feeds: list[Feed], columns: list[SideColumns]
    ) -> tuple[IntervalJoin | ChangelogJoin, bool, bool]:
        """The kernel of a windowed join, whether its results are a changelog, and whether they carry ids."""
        terms = self.terms[self.joins.index(join)]
        match = WindowMatch(
            kind=join.kind,
            left=columns[0],
            right=columns[1],
            keys=terms.keys,
            lower=join.analysis.bounds.lower,
            upper=join.analysis.bounds.upper,
            residual=self._residual_sql(join, terms),
            slack=max(self._slack(feed) for feed in feeds),
        )
        changes = (self._change(join, Side.LEFT, feeds[0]), self._change(join, Side.RIGHT, feeds[1]))
        retracts = self.query.emit is EmitMode.CHANGELOG and join.kind.retracts
        if changes != (Change.APPENDED, Change.APPENDED):
            gives_ids = join is not self.query.root
            return ChangelogJoin(match, changes, gives_ids), True, gives_ids
        gives_ids = retracts and join is not self.query.root
        emit = EmitMode.CHANGELOG if retracts else EmitMode.FINAL
        return IntervalJoin(match, emit, gives_ids), retracts, gives_ids

    def _change(self, join: JoinNode, side: Side, feed: Feed) -> Change | Newest:
        """How the rows of a join's side come and go."""
        if (newest := self._replaced_in(join, side)) is not None:
            return newest
        return Change.RETRACTED if self._is_changelog(feed) else Change.APPENDED

    def _asof_match(self, join: JoinNode, columns: list[SideColumns]) -> AsofMatch:
        assert join.asof is not None
        asof, terms = join.asof, self.terms[self.joins.index(join)]
        return AsofMatch(
            left=columns[0],
            right=columns[1],
            keys=terms.keys,
            versions=self._versions(join, terms),
            direction=asof.direction,
            strict=asof.strict,
            tolerance=asof.tolerance,
            outer=join.kind is JoinKind.LEFT,
            residual=self._residual_sql(join, terms),
        )

    def _for_condition(self, join: JoinNode, terms: _JoinTerms, side: Side) -> set[str]:
        """The columns of a side that the join's condition reads."""
        found = {key.of(side) for key in terms.keys}
        for term in terms.residual:
            found |= self._of_side(self._names(term), join.child(side))
        for i, j, _ in (*join.analysis.loose, *join.analysis.exact):
            found.add(self.query.inputs[i if side is Side.LEFT else j].time_name)
        return found

    def _for_versions(self, join: JoinNode, terms: _JoinTerms, side: Side) -> set[str]:
        """What tells which right rows count, where only one of several may be met."""
        is_right = join.asof is not None and side is Side.RIGHT
        return set(self._versions(join, terms).columns) if is_right else set()

    def _versions(self, join: JoinNode, terms: _JoinTerms) -> Versions:
        assert join.asof is not None
        right = self.inputs[join.asof.right]
        return versions_of(join.asof, right.input, join.analysis.keys, terms.keys, right.sequence, self.columns)

    def _feed(self, join: JoinNode, side: Side, columns: set[str], route: tuple[str, ...]) -> Feed:
        """One input of a join: a source that brings the columns, or the operators of a subtree, which are added."""
        child = join.child(side)
        leaders = join.analysis.leaders[side.index]
        times = tuple(self.query.inputs[leader].time_name for leader in leaders)
        as_of = join.asof if side is Side.RIGHT else None
        replaced = self._replaced_in(join, side) is not None
        if isinstance(child, Leaf) and (replaced or as_of is not None or not child.input.stream.changes):
            self._bring(child.input, columns, routed_by=route, grace=join.analysis.grace)
            source = self.sources.index(self.inputs[child.input.index])
            beside = as_of is not None and join_at_once(self.query, as_of)
            lag = _lag_of_changes(child.input) if replaced else 0
            return Feed(times, source=source, lag=lag, holds_back=not beside)
        self._place(child, columns | {*times, *route})
        lag = None if changing(child) else latest_lag(child, leaders)
        return Feed(times, operator=len(self.operators) - 1, lag=lag)

    def _bring(self, input: Input, columns: set[str], *, routed_by: tuple[str, ...], grace: int) -> None:
        part = self.inputs[input.index]
        part.routed_by, part.grace = routed_by, grace
        part.carried = sorted(columns - {input.time_name})

    def _slack(self, feed: Feed) -> int:
        """How far the frontier is expected to lie behind the newest rows of a feed."""
        return (feed.lag or 0) if feed.source is None else self.sources[feed.source].delay

    def _is_changelog(self, feed: Feed) -> bool:
        return feed.operator is not None and self.operators[feed.operator].weighted

    # -- SQL for the kernel ----------------------------------------------------------------------------------------

    def _residual_sql(self, join: JoinNode, terms: _JoinTerms) -> str | None:
        """What matching rows must meet beside keys and window, over the rows ``l`` and ``r`` of the kernel."""
        # a side's $t is one input's own time, unless it is taken from several
        alone = {leaders[0] for leaders in join.analysis.leaders if len(leaders) == 1}

        def alias(input: int) -> str:
            return (Side.LEFT if input in join.left.inputs else Side.RIGHT).alias

        def axis(input: int) -> exp.Column:
            return _column(TIME if input in alone else self.query.inputs[input].time_name, alias(input))

        def column(name: str) -> exp.Expr:
            input = self.columns[name].input
            if self._is_time(name):
                return _time_value(self.query.inputs[input], axis(input))
            return _column(name, alias(input))

        sql = [render(condition, column) for condition in terms.residual]
        for i, j, interval in join.analysis.exact:
            sql.append(exp.paren(_within(axis(j) - axis(i), interval)).sql(dialect="duckdb"))
        for i, j, interval in join.analysis.loose:
            left, right = axis(i), axis(j)
            near = _within(right - left, interval)
            sql.append(exp.paren(exp.or_(_is_null(left), _is_null(right), near)).sql(dialect="duckdb"))
        return " AND ".join(sql) or None


def _lag_of_changes(input: Input) -> int | None:
    """Nothing says how late changes come, unless a WATERMARK does: then none of them is late."""
    return 0 if input.time.declared else None


def _column(name: str, table: str | None = None) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def _within(distance: exp.Expr, interval: Interval) -> exp.Expr:
    bounds: list[exp.Expr] = []
    if interval.lower is not None:
        bounds.append(exp.GTE(this=distance.copy(), expression=exp.Literal.number(interval.lower)))
    if interval.upper is not None:
        bounds.append(exp.LTE(this=distance.copy(), expression=exp.Literal.number(interval.upper)))
    return exp.and_(*bounds) if bounds else exp.true()


def _is_null(operand: exp.Expr) -> exp.Expr:
    return exp.Is(this=operand.copy(), expression=exp.null())


def _time_value(input: Input, axis: exp.Column) -> exp.Expr:
    """An event-time column's own value, from its time on the axis, for DuckDB."""
    if input.time.unit is TimeUnit.TIMESTAMP:
        return exp.cast(exp.Anonymous(this="make_timestamp", expressions=[axis]), "TIMESTAMPTZ")
    if input.time.unit.scale == 1:
        return axis
    return exp.paren(exp.IntDiv(this=axis, expression=exp.Literal.number(input.time.unit.scale)))
