"""From a parsed query to a logical one: every name resolved, subqueries inlined, joins in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.bind.aggregates import bind_aggregates, is_aggregated
from watersmeet.bind.asof import AsofBinder
from watersmeet.bind.inputs import Inputs, Streams
from watersmeet.bind.join_kinds import join_kind
from watersmeet.bind.outputs import output_columns, refuse_clauses
from watersmeet.bind.scope import Relation, Scope
from watersmeet.bind.subqueries import Ctes, SubqueryTest, ctes_of, refuse_inner_order, subquery_test
from watersmeet.errors import BindError, ConfigError, UnsupportedError
from watersmeet.expressions.nodes import SystemTime
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.times import TimeUnit, interval_micros
from watersmeet.kernels.api import JoinKind, Side
from watersmeet.plan.across_sides import is_strict
from watersmeet.plan.logical.conditions import conjuncts, inputs_of
from watersmeet.plan.logical.query import Aggregation, LogicalQuery, Ordering, OutputColumn, QueryText
from watersmeet.plan.logical.tree import Input, Join, JoinCondition, Leaf, Node, Within, nullable, timed
from watersmeet.plan.passes.push_filters import reads_delta
from watersmeet.settings.query_settings import QuerySettings, parse_settings
from watersmeet.sql.statements import Query


def bind(query: Query, streams: Streams) -> LogicalQuery:
    """The logical form of a query over ``streams`` (by lower-case name).

    Raises ``BindError`` and ``CatalogError`` for names and types that do not fit, ``UnsupportedError`` for clauses that
    queries over streams do not have.
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
    aggregation = binder.aggregation(select, bound) if is_aggregated(select) else None
    ordering = binder.ordering(select, bound)
    return LogicalQuery(
        root=bound.node,
        columns=binder.names.columns,
        outputs=tuple(bound.outputs),
        filters=tuple(bound.filters),
        ordering=ordering,
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


class _Binder:
    def __init__(self, streams: Streams) -> None:
        self.names = Inputs(streams)

    def select(self, select: exp.Select, outer: Scope | None, ctes: Ctes, *, nested: bool = False) -> _Bound:
        """A select and all that it contains; the conditions of a nested one become part of its tree."""
        refuse_clauses(select, nested=nested)
        ctes = {**ctes, **ctes_of(select)}
        scope = Scope(outer=outer)
        node = self._from(select, scope, ctes)
        where = select.args.get("where")
        conditions, tests = [], []
        for term in conjuncts(where.this if where else None):
            if (test := subquery_test(term)) is not None:
                tests.append(test)
            else:
                conditions.append(self._condition(term, scope))
        if nested:
            node, conditions = _with_where(node, conditions), []
        for test in tests:
            node = self._semi_join(node, test, scope, ctes)
        return _Bound(node, scope, output_columns(select, scope), conditions)

    def aggregation(self, select: exp.Select, bound: _Bound) -> Aggregation:
        """GROUP BY, HAVING and the functions; the select's columns are then computed from their results."""
        found, bound.outputs, bound.filters = bind_aggregates(
            select, bound.outputs, bound.scope, self.names.inputs, self.names.columns, bound.filters
        )
        return found

    def ordering(self, select: exp.Select, bound: _Bound) -> Ordering | None:
        """ORDER BY, whose first term must be an event time, ascending."""
        order = select.args.get("order")
        if order is None:
            return None
        named = {column.name.lower(): column.expression for column in bound.outputs}
        terms = []
        for term in order.expressions:
            column = term.this
            alias = isinstance(column, exp.Column) and not column.table and named.get(column.name.lower())
            terms.append((alias or bound.scope.substitute(column), bool(term.args.get("desc")), position_of(term)))
        first, descending, position = terms[0]
        known = self.names.columns.get(first.name) if isinstance(first, exp.Column) else None
        if known is None or not self.names.inputs[known.input].is_time(known.column) or descending:
            times = [
                f"{self.names.inputs[i].alias}.{self.names.inputs[i].time.column}" for i in sorted(timed(bound.node))
            ]
            raise UnsupportedError(
                "ORDER BY on a stream needs an event time in rising order first, not "
                f"{order.expressions[0].sql('spark')}",
                hint=f"order by {' or '.join(times)}",
                position=position,
            )
        for term in order.expressions:
            if bool(term.args.get("nulls_first")) == bool(term.args.get("desc")):
                raise UnsupportedError(
                    "ORDER BY puts NULLs first in rising order, last in falling order",
                    hint="leave out NULLS FIRST and NULLS LAST",
                    position=position_of(term),
                )
        ties = tuple((expression, desc) for expression, desc, _ in terms[1:])
        for expression, _ in ties:
            if not isinstance(expression, exp.Column):
                raise UnsupportedError(
                    f"ORDER BY takes columns, not {expression.sql('spark')}", position=position_of(expression)
                )
        return Ordering(known.input, ties, position)

    # -- FROM ------------------------------------------------------------------------------------------------------

    def _from(self, select: exp.Select, scope: Scope, ctes: Ctes) -> Node:
        start = select.args.get("from_") or select.args.get("from")
        if start is None:
            raise UnsupportedError("a query needs FROM and a stream", position=position_of(select))
        node = self._relation(start.this, scope, ctes)
        for join in select.args.get("joins") or ():
            node = self._join(node, join, scope, ctes)
        return node

    def _join(self, left: Node, join: exp.Join, scope: Scope, ctes: Ctes) -> Join:
        kind, mirrored = join_kind(join)
        before = list(scope.relations)
        version = join.this.args.pop("version", None)
        right = self._relation(join.this, scope, ctes)
        node = Join(
            left,
            right,
            kind,
            position=position_of(join),
            within=_within(join.args.get("within")),
            grace=self._grace(left.inputs | right.inputs, join.args.get("grace")),
        )
        node = self._as_of(node, join.args.get("match_condition"), version, scope)
        conditions = [self._on(term, scope) for term in conjuncts(join.args.get("on"))]
        conditions += [self._using(name, before, scope.relations[-1]) for name in join.args.get("using") or ()]
        node = replace(node, condition=JoinCondition(residual=tuple(conditions)))
        if mirrored:
            node = replace(node, left=node.right, right=node.left, mirrored=True)
        self._show(node, scope, before)
        return node

    def _show(self, node: Join, scope: Scope, before: Sequence[Relation]) -> None:
        """Leave those relations in scope whose columns a join returns, as they are after padding."""
        added = scope.relations[len(before) :]
        if not node.kind.pairs:
            scope.relations[:] = added if node.mirrored else before
            return
        for side, relations in ((Side.LEFT, before), (Side.RIGHT, added)):
            if node.kind.pads(side):
                for relation in relations:
                    self._pad(relation, node.child(side))

    def _on(self, term: exp.Expr, scope: Scope) -> exp.Expr:
        """One term of ON."""
        if subquery_test(term) is not None:
            raise UnsupportedError(
                "a subquery in ON is not supported", hint="put it into WHERE", position=position_of(term)
            )
        condition = self._condition(term, scope)
        if reads_delta(condition):
            raise BindError(
                "_tp_delta belongs to the results of a join, not to its sides",
                hint="test it in WHERE",
                position=position_of(term),
            )
        return condition

    def _using(self, name: exp.Expr, before: list[Relation], right: Relation) -> exp.Expr:
        hits = [hit for relation in before if (hit := relation.find(name.name)) is not None]
        other = right.find(name.name)
        if not hits or other is None:
            missing = "the left side" if not hits else right.alias
            raise BindError(f"USING ({name.name}): {missing} has no such column", position=position_of(name))
        return exp.EQ(this=hits[0].copy(), expression=other.copy())

    def _pad(self, relation: Relation, child: Node) -> None:
        """Make computed columns of a relation NULL on rows that a join pads, as its other columns are."""
        certain = sorted(timed(child) - nullable(child)) or sorted(timed(child))
        there = [exp.Not(this=_is_null(self._time_of(self.names.inputs[i]))) for i in certain]
        for name, expression in relation.columns.items():
            if not is_strict(expression):
                if not there:
                    raise UnsupportedError(
                        f"{relation.alias}.{name} is computed from columns of an external table, and might not be NULL"
                        " where the table has no row",
                        hint="compute it in the outermost SELECT",
                        position=position_of(expression),
                    )
                relation.columns[name] = exp.Case(ifs=[exp.If(this=exp.or_(*there, copy=True), true=expression)])

    def _time_of(self, input: Input) -> exp.Expr:
        """The event time of an input, which no row lacks that comes from a source."""
        return exp.column(exp.to_identifier(input.physical(input.time.column), quoted=True))

    def _as_of(self, node: Join, match: exp.Expr | None, version: SystemTime | None, scope: Scope) -> Join:
        """The join with its MATCH_CONDITION or FOR SYSTEM_TIME AS OF, where it has one."""
        if match is None and version is None:
            return node
        binder = AsofBinder(node, self.names.inputs, self.names.columns, of_table=version is not None)
        if match is not None:
            clause = binder.match_condition(self._condition(match, scope))
        else:
            assert version is not None
            clause = binder.system_time(version, _system_time(version, scope))
        right = Leaf(binder.right)
        self.names.replace(right)
        return replace(node, right=right, asof=clause)

    def _grace(self, inputs: Iterable[int], grace: exp.Expr | None) -> int:
        """The length of a GRACE PERIOD, in microseconds."""
        if grace is None:
            return 0
        for i in sorted(inputs):
            if self.names.inputs[i].time.unit is TimeUnit.ROWS:
                raise UnsupportedError(
                    f"GRACE PERIOD is a length of time, but {self.names.inputs[i].alias} counts rows",
                    hint="declare a larger delay: WATERMARK FOR sn AS sn - 10",
                    position=position_of(grace),
                )
        span = interval_micros(grace)
        if span < 0:
            raise UnsupportedError("GRACE PERIOD cannot be negative", position=position_of(grace))
        return span

    def _relation(self, source: exp.Expr, scope: Scope, ctes: Ctes) -> Node:
        alias = source.alias_or_name
        if scope.relation(alias) is not None:
            raise BindError(
                f"{alias} stands in FROM twice", hint="give each its own alias", position=position_of(source)
            )
        if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
            return self._subselect(source.this, alias, scope, ctes, source)
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            raise UnsupportedError(
                f"{source.sql('spark')} cannot stand in FROM", hint="name a stream", position=position_of(source)
            )
        if source.args.get("version") is not None:
            raise UnsupportedError(
                "FOR SYSTEM_TIME AS OF stands only on the right side of a JOIN", position=position_of(source)
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

    # -- conditions ------------------------------------------------------------------------------------------------

    def _condition(self, term: exp.Expr, scope: Scope) -> exp.Expr:
        for nested in term.find_all(exp.Select):
            raise UnsupportedError(
                "a subquery stands here only as [NOT] EXISTS or [NOT] IN, joined by AND",
                position=position_of(nested),
            )
        for aggregate in term.find_all(exp.AggFunc):
            raise UnsupportedError(
                f"{aggregate.sql('spark')}: no aggregate here",
                hint="conditions over aggregates stand in HAVING",
                position=position_of(aggregate),
            )
        return scope.substitute(term)

    def _semi_join(self, left: Node, test: SubqueryTest, scope: Scope, ctes: Ctes) -> Join:
        """[NOT] EXISTS and [NOT] IN as semi and anti joins."""
        select = test.select
        refuse_clauses(select, nested=True)
        refuse_inner_order(select)
        inner = Scope(outer=scope)
        right = self._from(select, inner, {**ctes, **ctes_of(select)})
        where = select.args.get("where")
        conditions = [self._condition(term, inner) for term in conjuncts(where.this if where else None)]
        own: list[exp.Expr] = []
        correlated: list[exp.Expr] = []
        for condition in conditions:
            is_own = inputs_of(condition, self.names.columns) <= right.inputs
            (own if is_own else correlated).append(condition)
        if test.operand is not None:
            correlated.append(self._membership(test, scope, output_columns(select, inner)))
        return Join(
            left,
            _with_where(right, own),
            JoinKind.ANTI if test.negated else JoinKind.SEMI,
            JoinCondition(residual=tuple(correlated)),
            position_of(select),
            null_aware=test.negated and test.operand is not None,
            from_subquery=True,
        )

    def _membership(self, test: SubqueryTest, scope: Scope, columns: Sequence[OutputColumn]) -> exp.Expr:
        """IN as an equality.  NOT IN also fails where either side is NULL, so there NULL counts as equal."""
        assert test.operand is not None
        if len(columns) != 1:
            raise BindError(
                f"IN needs a subquery with one column, this one has {len(columns)}", position=position_of(test.select)
            )
        wanted, found = scope.substitute(test.operand), columns[0].expression.copy()
        equal = exp.EQ(this=wanted, expression=found)
        if not test.negated:
            return equal
        either_null = exp.or_(_is_null(wanted), _is_null(found), copy=True)
        return exp.or_(equal, either_null, copy=True)


def _with_where(node: Node, conditions: Sequence[exp.Expr]) -> Node:
    """The tree of a subquery with the conditions of its WHERE."""
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


def _within(clause: exp.Expr | None) -> Within | None:
    if clause is None:
        return None
    return Within(interval_micros(clause.this), interval_micros(clause.expression), position_of(clause))


def _system_time(version: SystemTime, scope: Scope) -> exp.Expr | None:
    """The operand of FOR SYSTEM_TIME AS OF, resolved; None for PROCTIME()."""
    time = version.expression
    if isinstance(time, exp.Anonymous) and time.name.upper() == "PROCTIME" and not time.expressions:
        return None
    try:
        return scope.substitute(time)
    except BindError as error:
        if isinstance(time, exp.Column) and time.name.upper() == "PROCTIME":
            error.hint = "for the version that is known now write PROCTIME()"
        raise


def _is_null(operand: exp.Expr) -> exp.Expr:
    return exp.Is(this=operand.copy(), expression=exp.Null())
