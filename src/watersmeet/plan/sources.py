"""What each source is asked to bring, collected while joins and operators are planned.

Whatever reads one input only is computed at its source before rows are packed: keys of mixed types, one-sided parts of
conditions, the hashes that choose buckets.  An event time travels as ``$t``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp

from watersmeet.columns import ID, TIME, TP_DELTA, WEIGHT
from watersmeet.engine.gathering import Gathering
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.plan.external_tables import computed_key
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import LogicalQuery
from watersmeet.plan.logical.tree import NO_GRACE, Grace, Input, InputColumn, Node, changing
from watersmeet.plan.max_future import max_future
from watersmeet.plan.physical_plan import PhysicalInput, TieTerm, restorable


@dataclass(slots=True)
class _Part:
    """The requests to one source so far."""

    computed: dict[str, exp.Expr] = field(default_factory=dict)
    hashes: dict[str, Sequence[exp.Expr]] = field(default_factory=dict)
    passes: str | None = None
    grace: Grace = NO_GRACE
    routed_by: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    gathering: Gathering | None = None


class Sources:
    """Requests to the sources of one query; ``freeze`` returns them as the plan's inputs."""

    def __init__(self, query: LogicalQuery) -> None:
        self._query = query
        self.inputs = query.inputs
        self.columns = dict(query.columns)
        self.external = frozenset(input.index for input in self.inputs if input.stream.outside)
        self._parts = [_Part() for _ in self.inputs]
        for input in changing(query.root):
            if input.stream.changes:
                self._test_newest(input)

    def freeze(self) -> tuple[PhysicalInput, ...]:
        """The inputs of the plan, external tables left out."""
        return tuple(
            PhysicalInput(
                input=input,
                grace=part.grace,
                computed=part.computed,
                hashes=part.hashes,
                passes=part.passes,
                routed_by=part.routed_by,
                carried=part.carried,
                max_future=max_future(input, self._query),
                gathering=part.gathering,
                ties=_ties(input, part),
            )
            for input, part in zip(self.inputs, self._parts, strict=True)
            if input.index not in self.external
        )

    def number(self, input: Input) -> int:
        """The place of an input among the plan's sources."""
        return sum(other.index < input.index for other in self.inputs if other.index not in self.external)

    # -- requests --------------------------------------------------------------------------------------------------

    def compute(self, input: int, expression: exp.Expr) -> str:
        """Have an expression computed at its source; returns the name of the column."""
        part = self._parts[input]
        name = self.inputs[input].physical(f"$e{len(part.computed)}")
        part.computed[name] = expression
        return name

    def carried(self, input: int, expression: exp.Expr) -> exp.Column:
        """The column that carries an expression over an input; it is computed at the source, once."""
        computed = self._parts[input].computed
        name = next((name for name, each in computed.items() if each == expression), None)
        if name is None:
            name = self.compute(input, expression)
        self.columns.setdefault(name, InputColumn(name, input, "", type_of(expression, self.columns)))
        return quoted_column(name)

    def condition(self, input: int, condition: exp.Expr) -> exp.Column:
        """Have a condition computed at a source, even one that reads no column; returns the column that holds it."""
        name = self.compute(input, condition)
        self.columns[name] = InputColumn(name, input, "", exp.DataType.build("BOOLEAN"))
        return quoted_column(name)

    def key(self, expression: exp.Expr, kind: exp.DataType, name: str) -> str:
        """The column that holds a key in the type ``kind``; one named ``name`` is computed where none does.

        Raises ``UnsupportedError`` for a key that is computed from an external table's columns.
        """
        (input,) = inputs_of(expression, self.columns)
        if isinstance(expression, exp.Column):
            known = self.columns[expression.name]
            if known.type == kind and not self.is_time(expression.name):
                return self.carried_name(expression)
        if input in self.external:
            raise computed_key(expression)
        full = self.inputs[input].physical(name)
        self._parts[input].computed[full] = exp.cast(expression.copy(), kind)
        return full

    def hash(self, input: int, name: str, keys: Sequence[exp.Expr]) -> str:
        """Have keys hashed at their source; returns the name of the column."""
        full = self.inputs[input].physical(name)
        self._parts[input].hashes[full] = keys
        return full

    def require(self, input: Input, columns: Iterable[str], *, routed_by: tuple[str, ...], grace: Grace) -> None:
        """Have columns of an input travel to the operator that reads it."""
        part = self._parts[input.index]
        part.routed_by, part.grace = routed_by, grace
        part.carried = tuple(sorted(set(columns) - {input.time_name}))
        if input.results is not None and input.results.weighted:  # a row and its retraction come in one step: by hash
            part.carried = (*part.carried, *(name for name in routed_by if name not in part.carried), WEIGHT, ID)

    def gather(self, input: Input, gathering: Gathering) -> None:
        """Have rows of an input travel gathered."""
        self._parts[input.index].gathering = gathering

    def delay(self, input: Input) -> int:
        """How far the watermark of an input stays behind its newest row."""
        return input.time.delay + self._parts[input.index].grace.total

    def newest(self, input: Input) -> Newest:
        """How the rows of a changing stream replace each other."""
        by = [input.physical(name) for name in input.stream.primary_key]
        return Newest(
            by=tuple(TIME if self.is_time(name) else name for name in by),
            sequence=input.physical("$seq"),
            weight=input.physical(TP_DELTA),
            passes=self._parts[input.index].passes,
            alias=input.alias,
        )

    def _test_newest(self, input: Input) -> None:
        """A filter over a changing stream tests the newest row of a key: a row that fails it retracts an older one."""
        if input.filters:
            part = self._parts[input.index]
            part.passes = input.physical("$pass")
            part.computed[part.passes] = exp.and_(*input.filters)

    # -- names of columns on their way -----------------------------------------------------------------------------

    def is_time(self, name: str) -> bool:
        """Whether a column travels as its input's ``$t``."""
        known = self.columns.get(name)
        if known is None:
            return False
        input = self.inputs[known.input]
        return input.is_time(known.column) and restorable(input)

    def carried_name(self, column: exp.Expr) -> str:
        """The name under which a column travels."""
        name: str = column.name
        return self.inputs[self.columns[name].input].time_name if self.is_time(name) else name

    def carried_names(self, expression: exp.Expr) -> set[str]:
        """The names under which the columns of an expression travel."""
        return {self.carried_name(column) for column in expression.find_all(exp.Column) if column.name != TP_DELTA}

    def of_side(self, names: Iterable[str], side: Node) -> set[str]:
        """Those of the names that are columns of a subtree."""
        aliases = {self.inputs[i].alias for i in side.inputs}
        return {name for name in names if name.split(":", 1)[0] in aliases or self._owner(name) in side.inputs}

    def _owner(self, name: str) -> int:
        known = self.columns.get(name)
        return known.input if known is not None else -1

    def value(self, name: str, internal_time: Callable[[int], exp.Column], table: str | None = None) -> exp.Expr:
        """DuckDB's expression for a column where it arrives; event times are computed from ``internal_time``."""
        if not self.is_time(name):
            return quoted_column(name, table)
        input = self.columns[name].input
        return time_value(self.inputs[input], internal_time(input))


def _ties(input: Input, part: _Part) -> tuple[TieTerm, ...]:
    """Further terms of the declared order of an input; none where its rows may come out of that order."""
    stream = input.stream
    if len(stream.ordered_by) < 2 or not input.is_time(stream.ordered_by[0].expression):
        return ()
    if input.time.delay or part.grace.total or part.grace.lateness:
        return ()

    def physical(node: exp.Expr) -> exp.Expr:
        known = stream.column(node.name) if isinstance(node, exp.Column) else None
        return node if known is None else quoted_column(input.physical(known.name))

    terms = [sqlglot.parse_one(each.expression, dialect="spark").transform(physical) for each in stream.ordered_by[1:]]
    return tuple(
        TieTerm(input.physical(f"$o{number}"), term, each.descending)
        for number, (term, each) in enumerate(zip(terms, stream.ordered_by[1:], strict=True))
    )


def quoted_column(name: str, table: str | None = None) -> exp.Column:
    """A column, its name quoted."""
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def time_value(input: Input, internal_time: exp.Column) -> exp.Expr:
    """An event-time column's own value, from the internal event time, for DuckDB."""
    if input.time.unit is TimeUnit.TIMESTAMP:
        return exp.cast(exp.Anonymous(this="make_timestamp", expressions=[internal_time]), "TIMESTAMPTZ")
    if input.time.unit.scale == 1:
        return internal_time
    return exp.paren(exp.IntDiv(this=internal_time, expression=exp.Literal.number(input.time.unit.scale)))
