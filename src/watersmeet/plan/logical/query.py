"""A bound query: its tree of joins, and the columns, aggregates and order of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.errors import Position
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.aggregate.functions import Function
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.logical.tree import Input, InputColumn, Node, leaves_of
from watersmeet.settings.query_settings import QuerySettings


@dataclass(frozen=True, slots=True)
class Ordering:
    """ORDER BY: the input and its ``column`` that orders rows, and what breaks ties (expression, descending).

    The column is the time of the input's rows, after the pass ``choose_times``.
    """

    input: int
    column: str
    ties: tuple[tuple[exp.Expr, bool], ...]
    position: Position | None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A key of GROUP BY; the SELECT list reads it from the column ``name``."""

    name: str
    expression: exp.Expr
    type: exp.DataType


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A function over the rows of a group that meet the ``condition``; ``name`` is the column of its value.

    Without arguments it counts rows; several arguments form one value, or the second orders the first (max_by).
    ``type`` is the type of the first. ``time`` is the input whose event time orders the values, for functions that need
    that. ``given`` are arguments that are literals: a separator, or percentages, of which ``many`` make an array.
    ``text`` is the call as written.
    """

    name: str
    function: Function
    arguments: tuple[exp.Expr, ...]
    type: exp.DataType
    condition: exp.Expr | None
    time: int | None
    text: str
    position: Position | None = field(compare=False)
    given: tuple[str | float, ...] = ()
    many: bool = False

    @property
    def computes(self) -> tuple[object, ...]:
        """What it computes: calls that compute the same have the same value."""
        return self.function, self.arguments, self.condition, self.given, self.many


@dataclass(frozen=True, slots=True)
class Aggregation:
    """GROUP BY and the functions, over rows that meet the ``conditions`` (WHERE)."""

    keys: tuple[GroupKey, ...]
    calls: tuple[AggregateCall, ...]
    conditions: tuple[exp.Expr, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows that a window function reads, from ``start`` to ``end``: distances from its own row, negative before it.

    They count rows, or with RANGE units of the order: microseconds if the order is ``in_time``. None is unbounded.
    """

    by_rows: bool
    start: int | None
    end: int | None
    in_time: bool = False

    @property
    def sql(self) -> str:
        """The frame in DuckDB's SQL."""
        kind = "ROWS" if self.by_rows else "RANGE"
        start = "UNBOUNDED PRECEDING" if self.start is None else self._edge(self.start)
        end = "UNBOUNDED FOLLOWING" if self.end is None else self._edge(self.end)
        return f"{kind} BETWEEN {start} AND {end}"

    def _edge(self, distance: int) -> str:
        if distance == 0:
            return "CURRENT ROW"
        length = f"INTERVAL {abs(distance)} MICROSECONDS" if self.in_time else str(abs(distance))
        return f"{length} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"


@dataclass(frozen=True, slots=True)
class OverCall:
    """A window function; the SELECT list reads its value from the column ``name``, if it does (``shown``).

    ``call`` is that of ``function`` in DuckDB, over arguments ``{0}``, ``{1}`` …; ``{order}`` is an order without ties.
    ``frame`` is None where none is written. If it is ``tied``, rows that the order does not tell apart are ordered by
    their other columns. ``offset`` is how many rows lag and lead are away. ``text`` is the call as written.
    """

    name: str
    function: str
    call: str
    arguments: tuple[exp.Expr, ...]
    type: exp.DataType
    frame: Frame | None
    tied: bool
    shown: bool
    text: str
    position: Position | None = field(compare=False)
    offset: int = 0

    def reads_after(self, *, peers: bool) -> bool:
        """Whether the value takes rows after its own; with ``peers``, also if only those of the same place."""
        if self.function == "lead":
            return True
        if self.function in ("row_number", "rank", "dense_rank", "lag"):
            return False
        by_rows, end = (False, 0) if self.frame is None else (self.frame.by_rows, self.frame.end)
        return end is None or end > 0 or (peers and end == 0 and not by_rows)


@dataclass(frozen=True, slots=True)
class Over:
    """Window functions over the rows of each ``partition``, in the order ``by`` (expression, descending).

    Rows are those that meet the ``conditions`` (WHERE). With a ``limit`` on the first call, a rank, only rows up to it
    are results, without those ``skipped`` before.  Without ``by`` these are the rows that come first (LIMIT without
    ORDER BY).
    """

    partition: tuple[GroupKey, ...]
    by: tuple[tuple[exp.Expr, bool], ...]
    calls: tuple[OverCall, ...]
    limit: int | None
    conditions: tuple[exp.Expr, ...]
    skipped: int = 0

    @property
    def by_arrival(self) -> bool:
        """Whether the rows within the limit are those that come first: of rows that only come, they stay the first."""
        return self.limit is not None and not self.by

    @property
    def reads_behind(self) -> bool:
        """Whether a value of a row within the limit may take rows behind it.

        ROW_NUMBER may set the limit between rows of one place.
        """
        between = self.limit is not None and self.calls[0].function == "row_number"
        return self.limit is not None and any(call.reads_after(peers=between) for call in self.calls[1:])


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """The rows of the tree with their sessions: those of one ``partition`` and no more than a ``gap`` apart.

    The event time is that of ``input``, and the gap is in its internal units. Rows are those that meet the
    ``conditions``. The bounds of sessions are the columns ``$window_start``, ``$window_end`` and ``$window_time``.
    """

    partition: tuple[GroupKey, ...]
    input: int
    gap: int
    conditions: tuple[exp.Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result: its name and its expression over physical columns."""

    name: str
    expression: exp.Expr
    renamed_from: str | None = None


@dataclass(frozen=True, slots=True)
class QueryText:
    """The select, the clauses at the end of the query, and their positions, for error messages.

    A query ``within_final`` is below one that is asked for EMIT FINAL.
    """

    select: exp.Expr
    position: Position
    emit: EmitMode | None = None
    emit_position: Position | None = None
    settings_positions: Mapping[str, Position] = field(default_factory=dict)
    within_final: bool = False


@dataclass(frozen=True, slots=True)
class LogicalQuery:
    """A query with every name resolved; those in its subqueries are inputs of it (tree.py).

    Over the rows of the tree stand an ``aggregation``, functions ``over`` partitions or ``sessions``, or none of them.
    ``filters`` are conditions over the results: WHERE, or what is tested after those, which then hold WHERE. Passes
    move WHERE down the tree as far as possible. A query that ``shares_stores`` with others has its joins in one
    operator, even if there is only one. The results of an ``inner`` query are the input of another.
    """

    root: Node
    columns: Mapping[str, InputColumn]
    outputs: tuple[OutputColumn, ...]
    filters: tuple[exp.Expr, ...]
    ordering: Ordering | None
    aggregation: Aggregation | None
    settings: QuerySettings
    text: QueryText
    shares_stores: bool = False
    over: Over | None = None
    sessions: SessionWindows | None = None
    inner: bool = False

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs, in the order of the text; an input's index is its position here."""
        return tuple(sorted((leaf.input for leaf in leaves_of(self.root)), key=lambda input: input.index))

    @property
    def is_plain(self) -> bool:
        """Whether results are rows of the tree as they are."""
        return self.aggregation is None and self.over is None and self.sessions is None

    @property
    def row_counting_input(self) -> Input | None:
        """The first input whose event time counts rows."""
        return next((input for input in self.inputs if input.time.unit is TimeUnit.ROWS), None)
