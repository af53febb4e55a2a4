"""The logical plan: a tree of joins over inputs, with every name resolved.

Columns have physical names, unique in the query: ``o:amount`` is column ``amount`` of the input with alias ``o``.
Expressions are sqlglot trees over such columns.  Nested selects are inlined: a column of a subquery is an expression
over the columns of the inputs below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import Position
from watersmeet.expressions.nodes import Within
from watersmeet.expressions.times import EventTime
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.kernels.api import EmitMode, JoinKind, Side
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.logical.bounds import Differences, Interval, TimeColumns
from watersmeet.settings.query_settings import QuerySettings


@dataclass(slots=True)
class Input:
    """One use of a stream in a query; a self join has two inputs over one stream."""

    index: int
    alias: str
    stream: StreamDef
    position: Position | None = None
    filters: list[exp.Expr] = field(default_factory=list)

    @property
    def time(self) -> EventTime:
        """The event time of the stream."""
        return self.stream.event_time

    @property
    def time_name(self) -> str:
        """The physical name of the event time on the operators' axis."""
        return self.physical("$t")

    def is_time(self, column: str) -> bool:
        """Whether a declared column is the event time."""
        return column.lower() == self.time.column.lower()

    def physical(self, column: str) -> str:
        """The name, unique in the query, of one of its columns (or of a hidden one, which begins with ``$``)."""
        return f"{self.alias}:{column}"

    def declared(self, physical: str) -> str:
        """The declared name of a physical column of this input."""
        return physical.removeprefix(f"{self.alias}:")


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """A declared column of an input."""

    name: str
    input: int
    column: str
    type: exp.DataType


@dataclass(slots=True)
class Leaf:
    """A source of rows."""

    input: Input

    @property
    def visible(self) -> frozenset[int]:
        """Its own columns."""
        return frozenset({self.input.index})

    @property
    def inputs(self) -> frozenset[int]:
        """Itself."""
        return self.visible


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An equality of two expressions, each over one input: left side, right side."""

    left: exp.Expr
    right: exp.Expr
    null_safe: bool
    type: exp.DataType


@dataclass(frozen=True, slots=True)
class AsofClause:
    """Which one right row of its key a left row meets: the nearest in time in a direction (kernels/asof/match.py).

    ``left`` and ``right`` are the inputs whose event times are compared; the tolerance is in axis units.  ``of_table``:
    the right stream is a table (FOR SYSTEM_TIME AS OF), whose rows by primary key are versions of one thing.
    """

    left: int
    right: int
    direction: Direction
    strict: bool = False
    tolerance: int | None = None
    of_table: bool = False


@dataclass(frozen=True, slots=True)
class JoinAnalysis:
    """What follows from a join's conditions, its WITHIN, and the joins below it (plan/windows.py finds it out).

    ``keys``, ``bounds`` and ``residual`` are the conditions told apart.  The bounds are those of the right time minus
    the left time; ``leaders`` says for each side which inputs' times are meant: the first that is there, since a padded
    row may lack some.  ``loose`` are further bounds (i, j, time j - time i), which hold where neither time is NULL:
    WITHIN over a chain says nothing about a stream that a padded row lacks.

    ``exact`` are further bounds of the same form that hold like any other condition: with a NULL, not.

    ``grace`` is this join's GRACE PERIOD, or the one at the end of FROM that stands in for it, in axis units.  ``lags``
    says how far an input's event time in the results may lie behind the join's frontier (None: there is no bound), and
    ``differences`` how far event times in one result may lie apart.
    """

    keys: tuple[KeyPair, ...]
    residual: tuple[exp.Expr, ...]
    leaders: tuple[tuple[int, ...], tuple[int, ...]]
    bounds: Interval
    loose: tuple[tuple[int, int, Interval], ...]
    exact: tuple[tuple[int, int, Interval], ...]
    grace: int
    lags: Mapping[int, int | None]
    differences: Differences


@dataclass(slots=True, eq=False)
class JoinNode:
    """A join of two subtrees, as it is written.

    ``conditions`` are what ON (and for inner joins WHERE) says and no filter below took; ``within`` and ``grace`` are
    its own WITHIN and GRACE PERIOD (in axis units); ``tests`` are what WHERE says of the row that a join as of a time
    picked.  A ``null_aware`` join stands for NOT IN, where a comparison with
    NULL counts as a match: its condition is left whole, no part of it may become a key.  ``analysis`` is set once the
    whole tree is bound.
    """

    left: Node
    right: Node
    kind: JoinKind
    conditions: list[exp.Expr]
    position: Position | None
    within: Within | None = None
    grace: int = 0
    null_aware: bool = False
    from_subquery: bool = False  # EXISTS or IN
    asof: AsofClause | None = None  # ASOF JOIN, or FOR SYSTEM_TIME AS OF
    tests: list[exp.Expr] = field(default_factory=list)
    analysis: JoinAnalysis = field(init=False, repr=False)

    def child(self, side: Side) -> Node:
        """The subtree of one side."""
        return self.left if side is Side.LEFT else self.right

    @property
    def visible(self) -> frozenset[int]:
        """Inputs whose columns stand in the results."""
        return self.left.visible | self.right.visible if self.kind.pairs else self.left.visible

    @property
    def inputs(self) -> frozenset[int]:
        """All inputs below, also those whose columns a semi join leaves out."""
        return self.left.inputs | self.right.inputs


Node = Leaf | JoinNode


def nullable(node: Node) -> frozenset[int]:
    """The inputs that a row of ``node`` may lack, because a join below padded it."""
    if isinstance(node, Leaf):
        return frozenset()
    found: frozenset[int] = frozenset()
    for side in Side:
        if node.kind.shows(side):
            child = node.child(side)
            found |= child.visible if node.kind.pads(side) else nullable(child)
    return found


def timed(node: Node) -> frozenset[int]:
    """The visible inputs that have an event time: all but outside tables."""
    if isinstance(node, Leaf):
        return frozenset() if node.input.stream.outside else node.visible
    return timed(node.left) | timed(node.right) if node.kind.pairs else timed(node.left)


def met_in_time(node: Node) -> frozenset[int]:
    """The visible inputs whose event times say when a row of ``node`` was: not those that were joined as of a time."""
    if isinstance(node, Leaf):
        return timed(node)
    left = met_in_time(node.left)
    return left | met_in_time(node.right) if node.kind.pairs and node.asof is None else left


def changing(node: Node) -> list[Input]:
    """The inputs for whose sake results of ``node`` may be taken back: their rows replace and take away others.

    A table that is joined as of a time is none: what held at a time is found among its rows as they are.
    """
    if isinstance(node, Leaf):
        return [node.input] if node.input.stream.changes else []
    right = changing(node.right) if node.asof is None else []
    return [*changing(node.left), *right]


def joins_of(node: Node) -> Iterator[JoinNode]:
    """All joins below and at ``node``, inner ones first: the order in which rows meet them."""
    if isinstance(node, JoinNode):
        yield from joins_of(node.left)
        yield from joins_of(node.right)
        yield node


@dataclass(slots=True)
class Ordering:
    """ORDER BY: the input whose event time leads, and the columns that break ties (expression, descending)."""

    input: int
    ties: list[tuple[exp.Expr, bool]]
    position: Position | None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What rows of a group have in common; ``name`` is the column that the SELECT list finds it in."""

    name: str
    expression: exp.Expr
    type: exp.DataType


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A function over the rows of a group that meet the ``condition``; ``name`` is the column of its value.

    Without arguments it counts rows; several stand for one value of all of them.  ``type`` is that of the argument,
    ``time`` the input whose event time orders its values, where that counts; ``text`` is how it was written.
    """

    name: str
    function: Function
    arguments: tuple[exp.Expr, ...]
    type: exp.DataType
    condition: exp.Expr | None
    time: int | None
    text: str
    position: Position | None = field(compare=False)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """GROUP BY and the functions: over rows that meet the ``conditions``, which no filter below could take."""

    keys: tuple[GroupKey, ...]
    calls: tuple[AggregateCall, ...]
    conditions: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result: its name and its expression over physical columns."""

    name: str
    expression: exp.Expr
    renamed_from: str | None = None


@dataclass(slots=True)
class LogicalQuery:
    """A whole query, bound and analysed."""

    inputs: list[Input]
    columns: dict[str, PhysicalColumn]
    root: Node
    outputs: list[OutputColumn]
    post_filters: list[exp.Expr]
    ordering: Ordering | None
    emit: EmitMode
    emit_reason: str
    settings: QuerySettings
    max_state_bytes: int | None = None
    aggregation: Aggregation | None = None


def inputs_of(expression: exp.Expr, columns: dict[str, PhysicalColumn]) -> frozenset[int]:
    """The inputs whose columns an expression reads."""
    return frozenset(columns[column.name].input for column in expression.find_all(exp.Column) if column.name in columns)


def time_columns(inputs: Sequence[Input], columns: Mapping[str, PhysicalColumn]) -> TimeColumns:
    """Tells for a physical column that is an event time whose it is, and what it counts (see plan/bounds.py)."""

    def time_of(column: exp.Column) -> tuple[int, int, bool] | None:
        known = columns.get(column.name)
        if known is None or not inputs[known.input].is_time(known.column):
            return None
        unit = inputs[known.input].time.unit
        return known.input, unit.scale, unit.is_integer

    return time_of


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The terms of an AND, parentheses around them taken off; BETWEEN is two of them."""
    if condition is None:
        return []
    condition = condition.unnest()
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        value = condition.this
        return [
            exp.GTE(this=value, expression=condition.args["low"]),
            exp.LTE(this=value.copy(), expression=condition.args["high"]),
        ]
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.this), *conjuncts(condition.expression)]
    return [condition]
