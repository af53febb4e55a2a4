"""A query as a tree of joins over inputs.

Every column has a physical name, unique in the query: ``o:amount`` is column ``amount`` of the input with alias ``o``.
Expressions are sqlglot trees over such columns. A nested select that only joins is inlined: its columns are expressions
over the columns of the inputs below it. Any other is a query of its own, whose results are an input here: so a query is
a tree of queries, and each of them a tree of joins.

All nodes are immutable. A pass (``passes/``) returns a new tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import Position
from watersmeet.expressions.event_time import EventTime
from watersmeet.expressions.explodes import Explode
from watersmeet.expressions.windows import Window, WindowBound
from watersmeet.kernels.api import JoinKind, Mark, Side
from watersmeet.kernels.asof.match import Direction
from watersmeet.plan.logical.time_bounds import Bound, Differences, Interval

if TYPE_CHECKING:  # a tree's leaves hold queries, which hold trees
    from watersmeet.plan.logical.query import LogicalQuery


@dataclass(frozen=True, slots=True)
class Results:
    """What an input reads where it is no stream: the results of queries, each row of them once (UNION ALL).

    If they are ``weighted``, they carry retractions.  ``lags``: by query, how far the event time of a result may lie
    behind the query's frontier; None where results have no event time.  ``ends``: it is the end of a window, or another
    bound of it.  ``distances`` are the columns that lie a fixed time after it, and how long, in its internal units.
    """

    queries: tuple[LogicalQuery, ...]
    weighted: bool
    lags: tuple[int, ...] | None
    ends: bool = False
    distances: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Input:
    """One use of a stream in a query; a self join has two inputs over one stream.

    ``filters`` are conditions over this input alone, tested before its rows reach a join.  ``dated_by`` is the time of
    its rows in this query, where that is not the event time (passes/choose_times.py).  ``windows`` are those that its
    rows belong to, one row for each, and ``explodes`` the arrays of theirs, one row for each element; a later one may
    read the columns of those before it.  Windows are over the time ``windowed_by`` where that is no event time: a
    retraction has the time of what it retracts, however old.  An input over the ``results`` of other queries has a
    stream that describes them.  Of a versioned view, rows with equal columns ``versions_of`` are versions of one row
    (bind/versioned_views.py).
    """

    index: int
    alias: str
    stream: StreamDef
    position: Position | None = None
    filters: tuple[exp.Expr, ...] = ()
    dated_by: EventTime | None = None
    windows: tuple[Window, ...] = ()
    windowed_by: EventTime | None = None
    explodes: tuple[Explode, ...] = ()
    results: Results | None = None
    versions_of: tuple[str, ...] | None = None

    @property
    def changes(self) -> bool:
        """Whether its rows may be replaced or retracted."""
        return self.stream.changes or (self.results is not None and self.results.weighted)

    @property
    def entity_key(self) -> tuple[str, ...] | None:
        """The declared columns that say which rows of a table are versions of one; None where a join's key does."""
        return self.stream.primary_key if self.stream.changes else self.versions_of

    @property
    def is_windowed(self) -> bool:
        """Whether its event time is a bound of a window."""
        return self.results is not None and self.results.ends

    @property
    def is_timed(self) -> bool:
        """Whether its rows have an event time by which they may be late."""
        return self.results is None or self.results.lags is not None

    def distance_of(self, column: str) -> int | None:
        """How long after the event time a declared column lies, in internal units; None if that is not fixed."""
        if self.is_time(column):
            return 0
        return None if self.results is None else self.results.distances.get(column)

    def window_of(self, column: str) -> tuple[Window, WindowBound] | None:
        """The window over its event time of which a column is a bound, and which; None for other columns."""
        if self.windowed_by is not None:
            return None
        for number, window in enumerate(self.windows):
            for bound in WindowBound:
                if column == window_column(number, bound):
                    return window, bound
        return None

    @property
    def time(self) -> EventTime:
        """The time of its rows: as a rule, the event time of the stream."""
        return self.dated_by or self.stream.event_time

    @property
    def time_type(self) -> exp.DataType:
        """The type of the event time's column."""
        return self._type_of(self.time)

    @property
    def window_time(self) -> EventTime:
        """The time that says which windows its rows belong to: as a rule, the time of its rows."""
        return self.windowed_by or self.time

    @property
    def window_type(self) -> exp.DataType:
        """The type of the bounds of its windows."""
        return self._type_of(self.window_time)

    def _type_of(self, time: EventTime) -> exp.DataType:
        column = self.stream.column(time.column)
        return exp.DataType.build(column.type if column is not None else "TIMESTAMP", dialect="spark")

    @property
    def time_name(self) -> str:
        """The physical name of the internal event time."""
        return self.physical("$t")

    def is_time(self, column: str) -> bool:
        """Whether a declared column is that time."""
        return column.lower() == self.time.column.lower()

    def physical(self, column: str) -> str:
        """The query-wide name of a column (hidden columns begin with ``$``)."""
        return f"{self.alias}:{column}"

    def declared(self, physical: str) -> str:
        """The declared name of a physical column of this input."""
        return physical.removeprefix(f"{self.alias}:")


def window_column(number: int, bound: WindowBound) -> str:
    """The hidden column with a bound of an input's window of that number."""
    return f"${bound.value}" if number == 0 else f"${bound.value}_{number + 1}"


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A declared column of an input, or a hidden one that the planner computes at its source."""

    name: str
    input: int
    column: str
    type: exp.DataType


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An equality of two expressions, each over one input: left side, right side."""

    left: exp.Expr
    right: exp.Expr
    null_safe: bool
    type: exp.DataType


@dataclass(frozen=True, slots=True)
class Within:
    """WITHIN as written: t - before <= u <= t + after for a left row at t and a right row at u, in microseconds."""

    before: int
    after: int
    position: Position | None


@dataclass(frozen=True, slots=True)
class Grace:
    """How much longer than the delay late rows are accepted, in units of internal event time.

    Results wait for the ``period`` (GRACE PERIOD), and not for the ``lateness`` after it (ALLOWED LATENESS): rows that
    come then correct what was given.
    """

    period: int = 0
    lateness: int = 0

    @property
    def total(self) -> int:
        """How long rows are accepted."""
        return self.period + self.lateness


NO_GRACE = Grace()


@dataclass(frozen=True, slots=True)
class AsofClause:
    """Which right row of its key a left row matches: the nearest in a direction (kernels/asof/match.py).

    ``left`` and ``right`` are the inputs whose event times are compared. The tolerance is in units of internal event
    time. With ``of_table`` the right stream is a table (FOR SYSTEM_TIME AS OF): its rows are versions of their primary
    key. ``at`` is the time that the clause names, where that is not an event time. The rows of the right stream come
    ``in_order`` if it only appends and declares no delay.

    ``kept``: how far behind the frontier versions can be asked for, and ``corrected``: how far behind it changes of the
    table still correct results, in units of internal event time (None: however far).
    """

    left: int
    right: int
    direction: Direction
    strict: bool = False
    tolerance: int | None = None
    of_table: bool = False
    at: exp.Expr | None = None
    in_order: bool = False
    kept: int | None = 0
    corrected: int | None = 0


@dataclass(frozen=True, slots=True)
class Expiry:
    """When the window of a row closes, by its own columns: no later row of the other side can be its partner.

    The last event time of a partner is ``(the sum of each factor * its term + constant) / divisor``, in units of its
    column; NULL where the row matches nothing. It follows from ``condition``.
    """

    condition: exp.Expr
    terms: tuple[tuple[int, exp.Expr], ...]
    constant: int
    divisor: int


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """When two rows match, and what this implies for event times.

    At first every condition is in ``residual``. The pass ``apply_clauses`` adds the bounds of WITHIN, ``close_windows``
    those that are ``implied``, and ``find_windows`` splits ``residual``: equalities become ``keys``, inequalities over
    event times become ``bounds`` (of the right time minus the left time), the rest stays.

    ``leaders``: for each side, the inputs that date its rows: the first time that is not NULL, since a padded row may
    lack some. ``loose`` are more bounds (i, j, time j - time i) that apply where neither time is NULL: WITHIN over a
    chain does not constrain a stream that a padded row lacks. ``exact`` are bounds of the same form that fail on NULL,
    as any other condition does. ``implied`` are bounds that every result of the query meets because of other joins.
    ``expiries`` are, for each side without a bound, those that close the windows of its rows; the conditions themselves
    are in ``residual``. ``grace`` has the GRACE PERIOD and the ALLOWED LATENESS that apply. ``ttl`` is how far behind
    the frontier rows stay that no window bounds, in units of internal event time (None: no limit, or no such rows).

    ``lags``: how far an input's event time in the results may lie behind the join's frontier (None: no bound).
    ``differences``: how far apart event times in one result may lie.
    """

    residual: tuple[exp.Expr, ...] = ()
    keys: tuple[KeyPair, ...] = ()
    leaders: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    bounds: Interval = field(default_factory=Interval)
    loose: tuple[Bound, ...] = ()
    exact: tuple[Bound, ...] = ()
    implied: tuple[Bound, ...] = ()
    expiries: tuple[tuple[Expiry, ...], tuple[Expiry, ...]] = ((), ())
    grace: Grace = NO_GRACE
    ttl: int | None = None
    lags: Mapping[int, int | None] = field(default_factory=dict)
    differences: Differences = field(default_factory=Differences)


@dataclass(frozen=True, slots=True)
class CommonKey:
    """A key that all inputs of a group share: an expression over each, in the order of the group's inputs."""

    expressions: tuple[exp.Expr, ...]
    type: exp.DataType
    null_safe: bool


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Inner and left joins that one operator computes: its ``inputs``, and the conditions of all of its joins.

    ``optional`` are the inputs that left joins add, in a chain: each join adds one input to those before it.
    ``keys`` are common to all inputs; ``pairs`` are equalities beside them. ``residual`` are all other conditions, each
    with the join that it belongs to. ``differences`` hold every bound between two inputs that follows from others; in a
    chain with left joins, those against the first input, and those that are written.
    ``graces`` are the grace periods of the inputs, in their order.
    ``reaches``: how far behind the frontier a row may still be in a new result, by input (None: however far).
    """

    inputs: tuple[int, ...]
    keys: tuple[CommonKey, ...]
    pairs: tuple[KeyPair, ...]
    residual: tuple[tuple[Join, exp.Expr], ...]
    differences: Differences
    graces: tuple[Grace, ...]
    reaches: Mapping[int, int | None]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A source of rows."""

    input: Input

    @property
    def visible(self) -> frozenset[int]:
        """Its own columns."""
        return frozenset({self.input.index})

    @property
    def inputs(self) -> frozenset[int]:
        """The input itself."""
        return self.visible


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A join of two subtrees.

    ``within`` and ``grace`` are the clauses written on this join.
    ``where`` holds conditions of a subquery's WHERE over the join's results; ``push_filters`` moves them down.
    ``tests`` are conditions on the row that a join as of a time picked. A ``null_aware`` join stands for NOT IN, where
    a comparison with NULL counts as a match: no part of its condition may become a key. ``alternative`` is what OR
    combines with EXISTS or IN: left rows that meet it are results, whatever their partners. With a ``group``, one
    operator computes this join and all those below it. A sliding join has a ``probe`` side, which orders its results.
    A mark join has a ``mark``. Left rows for which ``passed_by`` is true, the mark of the join below, are results too,
    whatever their partners.
    """

    left: Node
    right: Node
    kind: JoinKind
    condition: JoinCondition = field(default_factory=JoinCondition)
    position: Position | None = None
    within: Within | None = None
    grace: Grace = NO_GRACE
    asof: AsofClause | None = None  # ASOF JOIN, or FOR SYSTEM_TIME AS OF
    where: tuple[exp.Expr, ...] = ()
    tests: tuple[exp.Expr, ...] = ()
    null_aware: bool = False
    mirrored: bool = False  # RIGHT SEMI or RIGHT ANTI: written with its sides swapped
    from_subquery: bool = False  # EXISTS or IN
    group: JoinGroup | None = None
    alternative: exp.Expr | None = None
    reordered: bool = False  # not where the text has it
    probe: Side | None = None
    mark: Mark | None = None
    passed_by: str | None = None

    def child(self, side: Side) -> Node:
        """The subtree of one side."""
        return self.left if side is Side.LEFT else self.right

    def keeps(self, side: Side) -> bool:
        """Whether rows of a side may be results without a match."""
        return self.kind.emits_unmatched(side) or (side is Side.LEFT and self.lets_pass)

    @property
    def lets_pass(self) -> bool:
        """Whether left rows may be results whatever their partners."""
        return self.alternative is not None or self.passed_by is not None

    @property
    def title(self) -> str:
        """What the text calls the kind."""
        return f"right {self.kind.value}" if self.mirrored else self.kind.value

    def written(self, side: Side) -> Side:
        """The side here of what the text has on a side; the same function leads back."""
        return side.other if self.mirrored else side

    @property
    def visible(self) -> frozenset[int]:
        """Inputs whose columns appear in the results."""
        return self.left.visible | self.right.visible if self.kind.pairs else self.left.visible

    @property
    def inputs(self) -> frozenset[int]:
        """All inputs below, including those whose columns a semi join drops."""
        return self.left.inputs | self.right.inputs


Node = Leaf | Join


def joins_of(node: Node) -> Iterator[Join]:
    """All joins at and below ``node``, inner ones first, in the order rows pass them."""
    if isinstance(node, Join):
        yield from joins_of(node.left)
        yield from joins_of(node.right)
        yield node


def operators_of(node: Node) -> Iterator[Join]:
    """All joins at and below ``node`` that have an operator, in the order rows pass them: of a group, the uppermost."""
    if isinstance(node, Join):
        if node.group is None:
            yield from operators_of(node.left)
            yield from operators_of(node.right)
        yield node


def leaves_of(node: Node) -> Iterator[Leaf]:
    """All leaves at and below ``node``, from left to right."""
    if isinstance(node, Leaf):
        yield node
    else:
        yield from leaves_of(node.left)
        yield from leaves_of(node.right)


def nullable(node: Node) -> frozenset[int]:
    """Return the inputs that a row of ``node`` may lack because a join padded it."""
    if isinstance(node, Leaf):
        return frozenset()
    found: frozenset[int] = frozenset()
    for side in Side:
        if node.kind.outputs(side):
            child = node.child(side)
            found |= child.visible if node.kind.pads(side) else nullable(child)
    return found


def padded(node: Node) -> frozenset[int]:
    """Return the inputs that a row may lack in ``node`` or below it, also those that its results do not show."""
    if isinstance(node, Leaf):
        return frozenset()
    return nullable(node) | padded(node.left) | padded(node.right)


def timed(node: Node) -> frozenset[int]:
    """Return the visible inputs that have an event time: all but external tables."""
    if isinstance(node, Leaf):
        return frozenset() if node.input.stream.outside else node.visible
    return timed(node.left) | timed(node.right) if node.kind.pairs else timed(node.left)


def met_in_time(node: Node) -> frozenset[int]:
    """Return the visible inputs whose event times date a row of ``node``: not those joined as of a time."""
    if isinstance(node, Leaf):
        return timed(node)
    left = met_in_time(node.left)
    return left | met_in_time(node.right) if node.kind.pairs and node.asof is None else left


def changing(node: Node) -> list[Input]:
    """Return the inputs whose changes may cause retractions of the results of ``node``.

    Tables joined as of a time do not count.
    """
    if isinstance(node, Leaf):
        return [node.input] if node.input.changes else []
    right = changing(node.right) if node.asof is None else []
    return [*changing(node.left), *right]
