"""From a parsed query to a logical plan: names resolved, subqueries inlined, conditions put where they belong."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from watersmeet.bind.aggregates import bind_aggregates, is_aggregated
from watersmeet.bind.asof import AsofBinder
from watersmeet.bind.outputs import output_columns, refuse_clauses
from watersmeet.bind.scope import Relation, Scope
from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA, TP_TIME
from watersmeet.errors import BindError, CatalogError, ConfigError, UnsupportedError, did_you_mean
from watersmeet.expressions.nodes import SystemTime
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.times import TimeUnit, interval_micros
from watersmeet.kernels.api import EmitMode, JoinKind, Side
from watersmeet.plan.emit import check_wait, decide_emit
from watersmeet.plan.logical.query import (
    Aggregation,
    AsofClause,
    Input,
    JoinNode,
    Leaf,
    LogicalQuery,
    Node,
    Ordering,
    OutputColumn,
    PhysicalColumn,
    conjuncts,
    inputs_of,
    joins_of,
    nullable,
    timed,
)
from watersmeet.plan.placement import place_on, place_where
from watersmeet.plan.residual import is_strict
from watersmeet.plan.windows import analyse
from watersmeet.settings.query_settings import QuerySettings, parse_settings
from watersmeet.sql.statements import Query

Streams = Mapping[str, StreamDef]
_ZERO = exp.Literal.number(0)


def bind(query: Query, streams: Streams) -> LogicalQuery:
    """The logical plan of a query over ``streams`` (by lower-case name).

    Raises ``BindError`` and ``CatalogError`` for names and types that do not fit, ``UnsupportedError`` for clauses
    that joins of streams do not have, ``PlanError`` where the state would have no bound.
    """
    binder = _Binder(streams)
    select = query.select
    if not isinstance(select, exp.Select):
        raise UnsupportedError(
            "UNION, INTERSECT and EXCEPT of streams are not supported",
            hint="write each SELECT into one stream with INSERT INTO",
            position=position_of(select),
        )
    bound = binder.select(select, None, {})
    aggregation = binder.aggregation(select, bound) if is_aggregated(select) else None
    ordering = binder.ordering(select, bound)
    logical = LogicalQuery(
        inputs=binder.inputs,
        columns=binder.columns,
        root=bound.node,
        outputs=bound.outputs,
        post_filters=bound.leftover,
        ordering=ordering,
        emit=EmitMode.FINAL,
        emit_reason="",
        settings=_settings(query),
        aggregation=aggregation,
    )
    _refuse_tables(logical)
    analyse(logical.root, logical.inputs, logical.columns)
    decide_emit(logical, query.emit, query.emit_position)
    check_wait(logical, query.settings_positions.get("temporal_wait", query.position))
    return logical


def _keep_deletes(node: JoinNode, asof: AsofClause, input: Input) -> None:
    """A filter below a join as of a time must not take away what says that other rows do not hold.

    Of a table it tests the version that holds; of other rows it lets those pass that take others away.
    """
    if asof.of_table:
        node.tests += input.filters
        input.filters = []
        return
    taken = exp.LT(this=exp.column(exp.to_identifier(input.physical(TP_DELTA), quoted=True)), expression=_ZERO.copy())
    input.filters = [exp.or_(condition, taken) for condition in input.filters]


def _refuse_tables(query: LogicalQuery) -> None:
    """Outside tables can only be looked up in: nobody tells when a row of them changes."""
    looked_up = {join.asof.right for join in joins_of(query.root) if join.asof is not None}
    for input in query.inputs:
        if input.stream.outside and input.index not in looked_up:
            raise UnsupportedError(
                f"{input.stream.name} is an outside table: a stream can only look up in it what it holds now",
                hint=f"stream JOIN {input.stream.name} FOR SYSTEM_TIME AS OF PROCTIME() {input.alias} ON …",
                position=input.position,
            )


def _settings(query: Query) -> QuerySettings:
    try:
        return parse_settings(query.settings)
    except ConfigError as error:
        error.position = query.settings_positions.get(error.option or "", query.position)
        raise


class _Bound:
    """A bound select: its tree, the columns it gives, and conditions that must be applied to its results."""

    def __init__(self, node: Node, scope: Scope, outputs: list[OutputColumn], leftover: list[exp.Expr]) -> None:
        self.node = node
        self.scope = scope
        self.outputs = outputs
        self.leftover = leftover


Ctes = Mapping[str, exp.Select]


class _Binder:
    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self.inputs: list[Input] = []
        self.columns: dict[str, PhysicalColumn] = {}

    def select(self, select: exp.Select, outer: Scope | None, ctes: Ctes, *, nested: bool = False) -> _Bound:
        refuse_clauses(select, nested=nested)
        ctes = {**ctes, **_ctes_of(select)}
        scope = Scope(outer=outer)
        node = self._from(select, scope, ctes)
        leftover = []
        subqueries = []
        where = select.args.get("where")
        for term in conjuncts(where.this if where else None):
            if (subquery := _as_subquery(term)) is not None:
                subqueries.append(subquery)
            else:
                condition = self._condition(term, scope)
                if _reads_weight(condition) or not place_where(node, condition, self.columns):
                    leftover.append(condition)
        for negated, operand, inner in subqueries:
            node = self._semi_join(node, negated, operand, inner, scope, ctes)
        outputs = output_columns(select, scope)
        return _Bound(node, scope, outputs, leftover)

    def aggregation(self, select: exp.Select, bound: _Bound) -> Aggregation:
        """GROUP BY, HAVING and the functions; the select then gives columns over their results."""
        found, bound.outputs, bound.leftover = bind_aggregates(
            select, bound.outputs, bound.scope, self.inputs, self.columns, bound.leftover
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
        known = self.columns.get(first.name) if isinstance(first, exp.Column) else None
        if known is None or not self.inputs[known.input].is_time(known.column) or descending:
            times = [f"{self.inputs[i].alias}.{self.inputs[i].time.column}" for i in sorted(timed(bound.node))]
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
        ties = [(expression, desc) for expression, desc, _ in terms[1:]]
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

    def _join(self, left: Node, join: exp.Join, scope: Scope, ctes: Ctes) -> JoinNode:
        kind = _join_kind(join)
        visible_before = list(scope.relations)
        version = join.this.args.pop("version", None)
        right = self._relation(join.this, scope, ctes)
        node = JoinNode(left, right, kind, [], position_of(join), join.args.get("within"))
        node.grace = self._grace(node, join.args.get("grace"))
        node.asof = self._asof(node, join.args.get("match_condition"), version, scope)
        if node.asof is not None and isinstance(right, Leaf) and right.input.stream.changes:
            _keep_deletes(node, node.asof, right.input)
        for term in conjuncts(join.args.get("on")):
            if _as_subquery(term) is not None:
                raise UnsupportedError(
                    "a subquery in ON is not supported", hint="put it into WHERE", position=position_of(term)
                )
            condition = self._condition(term, scope)
            if _reads_weight(condition):
                raise BindError(
                    "_tp_delta belongs to the results of a join, not to its sides",
                    hint="test it in WHERE",
                    position=position_of(term),
                )
            place_on(node, condition, self.columns)
        for name in join.args.get("using") or ():
            place_on(node, self._using(name, visible_before, scope.relations[-1]), self.columns)
        if not kind.pairs:
            scope.relations.pop()
            return node
        for side, relations in ((Side.LEFT, visible_before), (Side.RIGHT, scope.relations[len(visible_before) :])):
            if kind.pads(side):
                for relation in relations:
                    self._pad(relation, node.child(side))
        return node

    def _pad(self, relation: Relation, child: Node) -> None:
        """Make computed columns of a relation NULL on rows that a join pads, as its other columns are."""
        certain = sorted(timed(child) - nullable(child)) or sorted(timed(child))
        there = [exp.Not(this=_is_null(self._time_of(self.inputs[i]))) for i in certain]
        for name, expression in relation.columns.items():
            if not is_strict(expression):
                if not there:
                    raise UnsupportedError(
                        f"{relation.alias}.{name} is computed from columns of an outside table, and might not be NULL"
                        " where the table has no row",
                        hint="compute it in the outermost SELECT",
                        position=position_of(expression),
                    )
                relation.columns[name] = exp.Case(ifs=[exp.If(this=exp.or_(*there, copy=True), true=expression)])

    def _time_of(self, input: Input) -> exp.Expr:
        """The event time of an input, which no row lacks that comes from a source."""
        return exp.column(exp.to_identifier(input.physical(input.time.column), quoted=True))

    def _asof(
        self, node: JoinNode, match: exp.Expr | None, version: SystemTime | None, scope: Scope
    ) -> AsofClause | None:
        if match is None and version is None:
            return None
        binder = AsofBinder(node, self.inputs, self.columns, of_table=version is not None)
        if match is not None:
            return binder.match_condition(self._condition(match, scope))
        assert version is not None
        time = version.expression
        if isinstance(time, exp.Anonymous) and time.name.upper() == "PROCTIME" and not time.expressions:
            return binder.system_time(version, None)
        try:
            return binder.system_time(version, scope.substitute(time))
        except BindError as error:
            if isinstance(time, exp.Column) and time.name.upper() == "PROCTIME":
                error.hint = "for the version that is known now write PROCTIME()"
            raise

    def _grace(self, node: JoinNode, grace: exp.Expr | None) -> int:
        if grace is None:
            return 0
        for i in sorted(node.inputs):
            if self.inputs[i].time.unit is TimeUnit.ROWS:
                raise UnsupportedError(
                    f"GRACE PERIOD is a length of time, but {self.inputs[i].alias} counts rows",
                    hint="declare a larger delay: WATERMARK FOR sn AS sn - 10",
                    position=position_of(grace),
                )
        span = interval_micros(grace)
        if span < 0:
            raise UnsupportedError("GRACE PERIOD cannot be negative", position=position_of(grace))
        return span

    def _using(self, name: exp.Expr, before: list[Relation], right: Relation) -> exp.Expr:
        hits = [hit for relation in before if (hit := relation.find(name.name)) is not None]
        other = right.find(name.name)
        if not hits or other is None:
            missing = "the left side" if not hits else right.alias
            raise BindError(f"USING ({name.name}): {missing} has no such column", position=position_of(name))
        return exp.EQ(this=hits[0].copy(), expression=other.copy())

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
        return self._stream(source, alias, scope)

    def _subselect(self, select: exp.Select, alias: str, scope: Scope, ctes: Ctes, source: exp.Expr) -> Node:
        bound = self.select(select, None, ctes, nested=True)
        if bound.leftover:
            raise UnsupportedError(
                "in a subquery, WHERE cannot test the padded side of an outer join, nor _tp_delta",
                hint="move the condition into the WHERE of the outermost query",
                position=position_of(bound.leftover[0]),
            )
        _refuse_inner_order(select)
        scope.relations.append(Relation(alias, {column.name: column.expression for column in bound.outputs}))
        return bound.node

    def _stream(self, table: exp.Table, alias: str, scope: Scope) -> Leaf:
        stream = self._streams.get(table.name.lower())
        position = position_of(table)
        if stream is None:
            known = [stream.name for stream in self._streams.values()]
            raise CatalogError(
                f"there is no stream {table.name}", hint=did_you_mean(table.name, known), position=position
            )
        unique = alias
        taken = {input.alias for input in self.inputs}
        while unique in taken:
            unique += "'"
        input = Input(len(self.inputs), unique, stream, position)
        self.inputs.append(input)
        types = {column.name: exp.DataType.build(column.type, dialect="spark") for column in stream.columns}
        # the delta of a change says what its row does, and is none of its values
        shown = {name: self._physical(input, name, type) for name, type in types.items() if name.lower() != TP_DELTA}
        hidden = {}
        if TP_TIME not in types and not stream.outside:
            hidden[TP_TIME] = self._physical(input, TP_TIME, exp.DataType.build("TIMESTAMP", dialect="spark"))
        if not stream.outside:
            hidden[TP_DELTA] = exp.column(exp.to_identifier(TP_DELTA, quoted=True))
        scope.relations.append(Relation(alias, shown, hidden))
        return Leaf(input)

    def _physical(self, input: Input, column: str, type: exp.DataType) -> exp.Expr:
        name = input.physical(column)
        self.columns[name] = PhysicalColumn(name, input.index, column, type)
        return exp.column(exp.to_identifier(name, quoted=True))

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

    def _semi_join(
        self, left: Node, negated: bool, operand: exp.Expr | None, inner: exp.Select, scope: Scope, ctes: Ctes
    ) -> JoinNode:
        """[NOT] EXISTS and [NOT] IN as semi and anti joins; NOT IN also fails on NULLs, so it compares with care."""
        refuse_clauses(inner, nested=True)
        _refuse_inner_order(inner)
        inner_scope = Scope(outer=scope)
        ctes = {**ctes, **_ctes_of(inner)}
        right = self._from(inner, inner_scope, ctes)
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
        node = JoinNode(left, right, kind, [], position_of(inner), from_subquery=True)
        where = inner.args.get("where")
        for term in conjuncts(where.this if where else None):
            condition = self._condition(term, inner_scope)
            if inputs_of(condition, self.columns) <= right.inputs:
                if not place_where(right, condition, self.columns):
                    raise UnsupportedError(
                        "this condition on an outer join inside a subquery is not supported",
                        position=position_of(term),
                    )
            else:
                place_on(node, condition, self.columns)
        if operand is not None:
            wanted = scope.substitute(operand)
            columns = output_columns(inner, inner_scope)
            if len(columns) != 1:
                raise BindError(
                    f"IN needs a subquery with one column, this one has {len(columns)}", position=position_of(inner)
                )
            found = columns[0].expression.copy()
            equal = exp.EQ(this=wanted, expression=found)
            if negated:
                node.null_aware = True
                either_null = exp.or_(_is_null(wanted), _is_null(found), copy=True)
                node.conditions.append(exp.or_(equal, either_null, copy=True))
            else:
                place_on(node, equal, self.columns)
        return node


def _reads_weight(condition: exp.Expr) -> bool:
    """Whether a condition is about a change of the result, not about a row."""
    return any(column.name == TP_DELTA for column in condition.find_all(exp.Column))


def _is_null(operand: exp.Expr) -> exp.Expr:
    return exp.Is(this=operand.copy(), expression=exp.Null())


def _refuse_inner_order(select: exp.Select) -> None:
    order = select.args.get("order")
    if order is not None:
        raise UnsupportedError(
            "ORDER BY in a subquery has no effect",
            hint="order the outermost query",
            position=position_of(order.expressions[0]),
        )


def _ctes_of(select: exp.Select) -> dict[str, exp.Select]:
    clause = select.args.get("with_") or select.args.get("with")
    return {cte.alias.lower(): cte.this for cte in clause.expressions} if clause else {}


def _as_subquery(term: exp.Expr) -> tuple[bool, exp.Expr | None, exp.Select] | None:
    """(negated, operand of IN, select) of a term that is [NOT] EXISTS or [NOT] IN over a subquery."""
    negated = False
    while isinstance(term, exp.Not | exp.Paren):
        negated ^= isinstance(term, exp.Not)
        term = term.this
    if isinstance(term, exp.Exists) and isinstance(term.this, exp.Select):
        return negated, None, term.this
    if isinstance(term, exp.In) and term.args.get("query") is not None:
        inner = term.args["query"].unnest()
        if isinstance(inner, exp.Select):
            return negated, term.this, inner
    return None


def _join_kind(join: exp.Join) -> JoinKind:
    side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
    if method and method != "ASOF":
        raise UnsupportedError(f"{method} JOIN is not supported yet", position=position_of(join))
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return JoinKind.SEMI if kind == "SEMI" else JoinKind.ANTI
    kinds = {
        "": JoinKind.INNER,
        "LEFT": JoinKind.LEFT,
        "RIGHT": JoinKind.RIGHT,
        "FULL": JoinKind.FULL,
    }
    if kind in ("", "INNER", "OUTER", "CROSS") and side in kinds:
        return kinds[side]
    raise UnsupportedError(
        f"{' '.join(filter(None, (side, kind)))} JOIN is not supported",
        hint="joins are INNER, LEFT, RIGHT, FULL, LEFT SEMI and LEFT ANTI",
        position=position_of(join),
    )
