"""The physical plan: what each source must bring, and the chain of operators that rows pass.

It is made in two steps.  ``plan`` decides names: which columns of each input travel, which are computed before rows
are packed (keys of mixed types, one-sided parts of conditions, hashes), and which operator takes which.  Once the
backend has built the sources and knows the columns' Arrow types, ``PhysicalPlan.operators`` gives the specs for the
workers.  Backends (Spark, the test harness) evaluate the expressions; this module runs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from watersmeet.columns import ID, TIME, TP_DELTA, WEIGHT
from watersmeet.engine.spec import Downstream, InputSpec, OperatorSpec, PackSpec
from watersmeet.kernels.api import EmitMode, Kernel
from watersmeet.kernels.corrected import CorrectedJoin
from watersmeet.kernels.forward import Forward
from watersmeet.kernels.interval import IntervalJoin, Key, Side
from watersmeet.kernels.ordered import OrderedEmit
from watersmeet.plan.logical import (
    Input,
    JoinNode,
    Leaf,
    LogicalQuery,
    Node,
    Ordering,
    OutputColumn,
    inputs_of,
    joins_of,
)
from watersmeet.plan.residual import carry_one_sided, is_allowed, render, require_allowed
from watersmeet.plan.times import TimeUnit
from watersmeet.plan.windows import lag_of, latest_lag


@dataclass(slots=True)
class PhysicalInput:
    """One source's part: ``computed`` expressions over its declared columns by physical name, and what travels."""

    input: Input
    operator: int = 0
    number: int = 0
    grace: int = 0
    computed: dict[str, exp.Expr] = field(default_factory=dict)
    hashes: dict[str, list[exp.Expr]] = field(default_factory=dict)  # hash column: key expressions
    routed_by: tuple[str, ...] = ()
    carried: list[str] = field(default_factory=list)

    @property
    def keep(self) -> exp.Expr | None:
        """The filter, as one condition."""
        return exp.and_(*self.input.filters) if self.input.filters else None

    @property
    def needs_sequence(self) -> bool:
        """Whether rows must carry their place in the source."""
        return self.sequence in self.carried

    @property
    def sequence(self) -> str:
        """The physical name of the place in the source."""
        return self.input.physical("$seq")

    @property
    def origin(self) -> str:
        """What the input's columns are made of: its stream, its event time, and what is computed."""
        made = {name: expression.sql(dialect="spark") for name, expression in self.computed.items()}
        hashed = {name: [key.sql(dialect="spark") for key in keys] for name, keys in self.hashes.items()}
        time = self.input.time
        return repr((self.input.stream.name.lower(), time.column, time.unit.value, made, hashed))

    @property
    def delay(self) -> int:
        """How far behind the newest event time the frontier lies, in axis units."""
        return self.input.time.delay + self.grace


@dataclass(slots=True)
class Feed:
    """One input of an operator: a source (its index) or the output of an earlier operator (its index)."""

    source: int | None
    operator: int | None
    lag: int | None = 0  # None: its event time has no bound behind the frontier that it is told
    times: tuple[str, ...] = ()  # the physical names of the event time that counts here: the first that is not NULL


@dataclass(slots=True)
class PhysicalOperator:
    """One operator before types are known."""

    name: str
    kernel: Kernel
    feeds: list[Feed]
    output: tuple[str, ...]
    weighted: bool
    gives_ids: bool = False
    single_bucket: bool = False
    routed_by: list[tuple[str, ...]] = field(default_factory=list)  # hash columns, by input


@dataclass(slots=True)
class PhysicalPlan:
    """Sources, operators in the order rows meet them, and the final projection."""

    query: LogicalQuery
    inputs: list[PhysicalInput]
    stages: list[PhysicalOperator]
    outputs: list[OutputColumn]
    post_filters: list[exp.Expr]

    @property
    def weighted(self) -> bool:
        """Whether results carry ``$w``."""
        return self.stages[-1].weighted

    @property
    def keeps_late(self) -> bool:
        """Whether late rows are set aside with their text, not only counted."""
        return self.query.settings.late_rows != "drop"

    def restored(self) -> list[tuple[str, Input]]:
        """Event-time columns (physical name, input) that the final projection needs and only ``$t`` carries."""
        return [
            (part.input.physical(part.input.time.column), part.input)
            for part in self.inputs
            if part.input.time_name in self.stages[-1].output and restorable(part.input)
        ]

    def pack_specs(self, schemas: Sequence[pa.Schema], buckets: Sequence[int]) -> list[PackSpec]:
        """For each source how its rows are packed; ``schemas`` give the types of what they carry."""
        specs = []
        for part, schema in zip(self.inputs, schemas, strict=True):
            stage = self.stages[part.operator]
            carried = pa.schema([pa.field(TIME, pa.int64()), *(schema.field(name) for name in part.carried)])
            specs.append(
                PackSpec(
                    source=part.input.alias,
                    input=part.number,
                    schema=carried,
                    hashes=part.routed_by,
                    buckets=_buckets_of(stage, buckets),
                    delay=part.delay,
                    sequence=part.sequence if part.needs_sequence else None,
                    fails_on_bad=self.query.settings.bad_rows == "fail",
                    keeps_late=self.keeps_late,
                )
            )
        return specs

    def operators(
        self, schemas: Sequence[pa.Schema], parts: Sequence[tuple[str, ...]], buckets: Sequence[int]
    ) -> list[OperatorSpec]:
        """The specs of all operators; ``parts`` are the expected parts of each source."""
        outputs: list[pa.Schema] = []
        specs: list[OperatorSpec] = []
        for index, stage in enumerate(self.stages):
            types: dict[str, pa.DataType] = {}
            inputs = []
            for feed in stage.feeds:
                if feed.source is not None:
                    part = self.inputs[feed.source]
                    fields = [pa.field(TIME, pa.int64()), *(schemas[feed.source].field(name) for name in part.carried)]
                    names = parts[feed.source]
                else:
                    assert feed.operator is not None
                    fields = [each for each in outputs[feed.operator] if feed.times != (each.name,)]
                    fields.append(pa.field(TIME, pa.int64()))
                    names = tuple(str(bucket) for bucket in _buckets_of(self.stages[feed.operator], buckets))
                schema = pa.schema([each.with_nullable(True) for each in fields])
                types.update({each.name: each.type for each in schema})
                types.update(dict.fromkeys(feed.times, pa.int64()))
                alias = None if feed.source is None else self.inputs[feed.source].input.alias
                origin = "" if feed.source is None else self.inputs[feed.source].origin
                inputs.append(InputSpec(schema, alias, names, feed.lag, origin))
            output = pa.schema([pa.field(name, types[name]) for name in stage.output])
            if stage.weighted:
                output = output.append(pa.field(WEIGHT, pa.int8()))
            if stage.gives_ids:
                output = output.append(pa.field(ID, pa.string()))
            outputs.append(output)
            specs.append(
                OperatorSpec(
                    name=stage.name,
                    kernel=stage.kernel,
                    inputs=tuple(inputs),
                    buckets=_buckets_of(stage, buckets),
                    fingerprint="",
                    output=output,
                    downstream=self._downstream(index, buckets),
                    max_state_bytes=self.query.max_state_bytes,
                    accepts_late=isinstance(stage.kernel, Forward) and stage is self.stages[-1],
                )
            )
        return [spec.with_fingerprint(_fingerprint(spec)) for spec in specs]

    def _downstream(self, index: int, buckets: Sequence[int]) -> Downstream | None:
        for stage in self.stages[index + 1 :]:
            for number, feed in enumerate(stage.feeds):
                if feed.operator == index:
                    return Downstream(number, stage.routed_by[number], _buckets_of(stage, buckets), feed.times)
        return None


def restorable(input: Input) -> bool:
    """Whether the event-time column can be computed back from ``$t``, so that it need not travel itself."""
    return input.time.unit is not TimeUnit.TIMESTAMP_NTZ


def _buckets_of(stage: PhysicalOperator, buckets: Sequence[int]) -> tuple[int, ...]:
    return tuple(buckets[:1]) if stage.single_bucket else tuple(buckets)


def _fingerprint(spec: OperatorSpec) -> str:
    """Changes whenever stored state could be read wrongly: other inputs, types, keys, window, residual or buckets."""
    inputs = [(input.schema.to_string(), input.source, input.lag, input.origin) for input in spec.inputs]
    described = repr((spec.name, spec.kernel, inputs, spec.buckets, spec.output.to_string()))
    return hashlib.blake2b(described.encode(), digest_size=8).hexdigest()


def plan(query: LogicalQuery) -> PhysicalPlan:
    """The physical plan of a bound query.

    Raises ``UnsupportedError`` for a condition across sides that neither the kernel nor Spark may evaluate there.
    """
    return _Planner(query).plan()


class _Planner:
    def __init__(self, query: LogicalQuery) -> None:
        self.query = query
        self.columns = dict(query.columns)
        self.inputs = [PhysicalInput(input) for input in query.inputs]
        self.joins = list(joins_of(query.root))
        self.post_filters = list(query.post_filters)
        self.residuals: dict[int, list[exp.Expr]] = {}
        self.keys: dict[int, list[Key]] = {}
        self.routes: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def plan(self) -> PhysicalPlan:
        for number, join in enumerate(self.joins):
            self._plan_conditions(number, join)
        needed: set[str] = set()
        for expression in (*(column.expression for column in self.query.outputs), *self.post_filters):
            needed |= self._names(expression)
        stages: list[PhysicalOperator] = []
        if self.query.ordering is None:
            self._place(self.query.root, needed, stages)
        else:
            self._place_ordered(self.query.ordering, needed, stages)
        return PhysicalPlan(self.query, self.inputs, stages, self.query.outputs, self.post_filters)

    def _place_ordered(self, ordering: Ordering, needed: set[str], stages: list[PhysicalOperator]) -> None:
        """The operators of the tree, and after them the one that puts results in order."""
        time = self.query.inputs[ordering.input].time_name
        ties = [(self._carried_name(expression), descending) for expression, descending in ordering.ties]
        ties += [(self.inputs[i].sequence, False) for i in sorted(self.query.root.visible)]
        given = self._place(self.query.root, needed | {time, *(name for name, _ in ties)}, stages)
        ties += [(name, False) for name in sorted(given - {time})]
        lag = lag_of(self.query.root, ordering.input)
        assert lag is not None  # checked when the emit mode was decided
        output = tuple(sorted(needed))
        kernel = OrderedEmit(output, time, tuple(ties))
        feed = Feed(None, len(stages) - 1, lag, (time,))
        stages.append(PhysicalOperator("order", kernel, [feed], output, False, single_bucket=True, routed_by=[()]))

    # -- conditions ------------------------------------------------------------------------------------------------

    def _plan_conditions(self, number: int, join: JoinNode) -> None:
        self.keys[number] = [
            Key(
                self._key_column(pair.left, pair.type, f"$k{number}_{i}"),
                self._key_column(pair.right, pair.type, f"$k{number}_{i}"),
                pair.null_safe,
            )
            for i, pair in enumerate(join.keys)
        ]
        self._plan_routes(number, join)
        found = []
        for condition in join.residual:
            if not is_allowed(carried := carry_one_sided(condition, self.columns, self._computed)):
                if self._commutes(join):
                    self.post_filters.append(condition)
                    continue
                require_allowed(carried, join.kind.value)
            found.append(carried)
        self.residuals[number] = found

    def _commutes(self, join: JoinNode) -> bool:
        """Whether a condition of this join can as well be tested after the last one."""
        above = self.joins[self.joins.index(join) :]
        return all(each.kind.value == "inner" for each in above) and join.visible <= self.query.root.visible

    def _plan_routes(self, number: int, join: JoinNode) -> None:
        """One hash column for each pair of inputs that share keys, computed at the sources."""
        groups: dict[tuple[int, int], list[tuple[exp.Expr, exp.Expr]]] = {}
        for pair in join.keys:
            (i,), (j,) = inputs_of(pair.left, self.columns), inputs_of(pair.right, self.columns)
            typed = [exp.cast(side.copy(), pair.type) for side in (pair.left, pair.right)]
            groups.setdefault((i, j), []).append((typed[0], typed[1]))
        left: list[str] = []
        right: list[str] = []
        for group, ((i, j), pairs) in enumerate(sorted(groups.items())):
            for input, names, side in ((i, left, 0), (j, right, 1)):
                name = self.inputs[input].input.physical(f"$h{number}_{group}")
                self.inputs[input].hashes[name] = [pair[side] for pair in pairs]
                names.append(name)
        self.routes[number] = (tuple(left), tuple(right))

    def _key_column(self, expression: exp.Expr, kind: exp.DataType, name: str) -> str:
        (input,) = inputs_of(expression, self.columns)
        part = self.inputs[input]
        if isinstance(expression, exp.Column):
            known = self.columns[expression.name]
            if known.type == kind and not self._is_time(expression.name):
                return self._carried_name(expression)
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
        known = self.columns.get(name)
        if known is None or not known.column:
            return False
        input = self.query.inputs[known.input]
        return known.column.lower() == input.time.column.lower() and restorable(input)

    def _carried_name(self, column: exp.Expr) -> str:
        """The name under which a column travels: an event time travels as ``$t``."""
        name: str = column.name
        if self._is_time(name):
            return self.query.inputs[self.columns[name].input].time_name
        return name

    def _names(self, expression: exp.Expr) -> set[str]:
        return {self._carried_name(c) for c in expression.find_all(exp.Column) if c.name != TP_DELTA}

    # -- operators -------------------------------------------------------------------------------------------------

    def _place(self, node: Node, needed: set[str], stages: list[PhysicalOperator]) -> set[str]:
        """Add the operators of a tree, inner ones first; the columns that come out come back."""
        if isinstance(node, Leaf):
            # a query over one stream: nothing to join, rows are handed on
            given = tuple(sorted(needed)) or (node.input.time_name,)
            self._bring(node.input.index, set(given), 0, (), 0)
            feed = Feed(node.input.index, None, 0, (node.input.time_name,))
            forward = Forward(given, node.input.time_name)
            stages.append(
                PhysicalOperator("forward", forward, [feed], given, False, single_bucket=True, routed_by=[()])
            )
            return set(given)
        number = self.joins.index(node)
        side_columns = []
        for side, key in ((node.left, "left"), (node.right, "right")):
            condition = {getattr(each, key) for each in self.keys[number]}
            for term in self.residuals[number]:
                condition |= self._of_side(self._names(term), side)
            for i, j, _ in node.loose:
                other = i if key == "left" else j
                condition.add(self.query.inputs[other].time_name)
            output = self._of_side(needed, side) if side.visible <= node.visible else set()
            side_columns.append((condition, output))
        feeds = []
        sides = []
        slack = 0
        for which, (side, (condition, output)) in enumerate(zip((node.left, node.right), side_columns, strict=True)):
            leaders = (node.time_inputs[which], *node.fallbacks[which])
            times = tuple(self.query.inputs[leader].time_name for leader in leaders)
            time = times[0] if len(times) == 1 else None
            route = self.routes[number][which]
            if isinstance(side, Leaf):
                self._bring(side.input.index, (condition | output) - {time}, which, route, node.grace)
                feeds.append(Feed(side.input.index, None, 0, times))
                slack = max(slack, self.inputs[side.input.index].delay)
            else:
                self._place(side, condition | output | {*times, *route}, stages)
                lag = latest_lag(side, leaders)
                feeds.append(Feed(None, len(stages) - 1, lag, times))
                slack = max(slack, lag or 0)
            sides.append(Side(tuple(sorted(output)), tuple(sorted(condition - {time})), time))
        weighted_inputs = frozenset(
            which for which, feed in enumerate(feeds) if feed.operator is not None and stages[feed.operator].weighted
        )
        corrects = self.query.emit is EmitMode.CHANGELOG and node.kind.corrects
        weighted = corrects or bool(weighted_inputs)
        gives_ids = bool(weighted_inputs) or (corrects and node is not self.query.root)
        join = IntervalJoin(
            kind=node.kind,
            left=sides[0],
            right=sides[1] if node.kind.pairs else Side((), sides[1].condition, sides[1].time),
            keys=tuple(self.keys[number]),
            lower=node.bounds.lower,
            upper=node.bounds.upper,
            residual=self._residual_sql(number, node),
            emit=EmitMode.CHANGELOG if corrects else EmitMode.FINAL,
            gives_ids=gives_ids,
            slack=slack,
        )
        output_names = (*join.left.output, *join.right.output)
        kernel: Kernel = CorrectedJoin(join, weighted_inputs) if weighted_inputs else join
        for feed in feeds:
            if feed.operator is None and feed.source is not None:
                self.inputs[feed.source].operator = len(stages)
        stages.append(
            PhysicalOperator(
                f"join_{number + 1}",
                kernel,
                feeds,
                output_names,
                weighted,
                gives_ids,
                not node.keys,
                list(self.routes[number]),
            )
        )
        return set(output_names)

    def _of_side(self, names: set[str], side: Node) -> set[str]:
        aliases = {self.query.inputs[i].alias for i in side.inputs}
        return {name for name in names if name.split(":", 1)[0] in aliases or self._owner(name) in side.inputs}

    def _owner(self, name: str) -> int:
        known = self.columns.get(name)
        return known.input if known is not None else -1

    def _bring(self, index: int, columns: set[str], number: int, route: tuple[str, ...], grace: int) -> None:
        part = self.inputs[index]
        part.number, part.routed_by, part.grace = number, route, grace
        part.carried = sorted(columns - {part.input.time_name})

    def _residual_sql(self, number: int, node: JoinNode) -> str | None:
        # a side's time on the axis is one input's own time, unless it is taken from several
        leaders = [None if others else leader for leader, others in zip(node.time_inputs, node.fallbacks, strict=True)]

        def column_sql(name: str) -> str:
            carried = self._carried_name(exp.column(name))
            input = self.columns[name].input
            on_left = input in node.left.inputs
            alias, leader = ("l", leaders[0]) if on_left else ("r", leaders[1])
            if not self._is_time(name):
                return f'{alias}."{carried}"'
            return _time_sql(self.query.inputs[input], f'{alias}."{TIME if input == leader else carried}"')

        terms = [f"({render(condition, column_sql)})" for condition in self.residuals[number]]
        for i, j, interval in node.loose:
            left, right = (
                f'{alias}."{TIME if input == leader else self.query.inputs[input].time_name}"'
                for alias, input, leader in (("l", i, leaders[0]), ("r", j, leaders[1]))
            )
            terms.append(
                f"({left} IS NULL OR {right} IS NULL OR {right} - {left} BETWEEN {interval.lower} AND {interval.upper})"
            )
        return " AND ".join(terms) or None


def _time_sql(input: Input, axis: str) -> str:
    """DuckDB SQL of an event-time column's own value, from its time on the axis."""
    if input.time.unit is TimeUnit.TIMESTAMP:
        return f"CAST(make_timestamp({axis}) AS TIMESTAMPTZ)"
    return axis if input.time.unit.scale == 1 else f"({axis} // {input.time.unit.scale})"
