"""The interface of kernels.

A kernel computes from stored rows, new rows and frontiers what to emit, what to store and what to forget.  It keeps
nothing between two steps, and changes no stored row itself; its tables are dropped when the step ends.  It knows Arrow,
DuckDB SQL, event times as int64, weights and frontiers; it knows nothing of Spark, frames or durability.  So the same
kernel runs in Spark and in the test harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from watersmeet.kernels.homes import Homes

if TYPE_CHECKING:  # a script is parsed without them: an error of syntax comes sooner
    import duckdb
    import pyarrow as pa

    from watersmeet.kernels.step_tables import StepTables

#: The ends of internal event time: nothing reported yet, and end of input.
NEVER = -(2**63)
FOREVER = 2**63 - 1

#: From this many rows on, what a step makes of them is made piece by piece: a hot key may have any number of results.
MANY_ROWS = 4_096
#: So many results of fewer rows are made at once; if there are more, they are made again, piece by piece.  With little
#: memory it is a sixteenth: rows of a hundred columns take some kilobytes.
MANY_RESULTS = 65_536
#: A step of many rows keeps MANY_ROWS pairs as a table, and so many more for each new row: see ``most_kept``.
PAIRS_PER_ROW = 16

#: Suffix of a relation that lists, by ``$rid``, the rows of another relation that were retracted or replaced.
GONE = "_gone"


class EmitMode(Enum):
    """When results are emitted: once they are final, or at once, with retractions when they change."""

    FINAL = "FINAL"
    CHANGELOG = "CHANGELOG"


class Side(Enum):
    """A side of a join.  Its value is also the name of the relation that stores its rows."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def index(self) -> int:
        """The number of the kernel's input."""
        return 0 if self is Side.LEFT else 1

    @property
    def alias(self) -> str:
        """The alias of its rows in SQL: ``l`` or ``r``."""
        return self.value[0]

    @property
    def other(self) -> Side:
        """The opposite side."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class JoinKind(Enum):
    """The kinds of join: what each emits and must remember."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    MARK = "mark"  # left rows alone, all of them, and whether they have a partner

    def emits_unmatched(self, side: Side) -> bool:
        """Whether rows of that side without a partner are emitted."""
        if side is Side.LEFT:
            return self in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI, JoinKind.MARK)
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    def emits_alone(self, *, matched: bool) -> bool:
        """Whether left rows are emitted without columns of the right side: those with a partner, or those without."""
        return self in (JoinKind.MARK, JoinKind.SEMI if matched else JoinKind.ANTI)

    def outputs(self, side: Side) -> bool:
        """Whether results have columns of that side."""
        return self.pairs or side is Side.LEFT

    def pads(self, side: Side) -> bool:
        """Whether results may have NULLs in place of a row of that side."""
        return self.outputs(side) and self.emits_unmatched(side.other)

    def tracks_matches(self, side: Side) -> bool:
        """Whether the state must record which rows of that side have found a partner."""
        return self.emits_unmatched(side) or (self is JoinKind.SEMI and side is Side.LEFT)

    @property
    def pairs(self) -> bool:
        """Whether results are pairs of rows, padded or not; otherwise they are rows of the left side."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.MARK)

    @property
    def retracts(self) -> bool:
        """Whether results that are emitted at once may have to be retracted."""
        return self.emits_unmatched(Side.LEFT) or self.emits_unmatched(Side.RIGHT)


@dataclass(frozen=True, slots=True)
class Mark:
    """The column of a mark join that says which rows pass: those with a partner; if ``negated``, those without.

    Its name says whether it is negated: checkpoints note it of the join that reads it.
    """

    name: str
    negated: bool


def shift(frontier: int, by: int | None) -> int:
    """Return ``frontier + by``; NEVER and FOREVER stay, and without a bound (None) the result is NEVER.

    >>> shift(100, -5), shift(FOREVER, -5) == FOREVER, shift(100, None) == NEVER
    (95, True, True)
    """
    if frontier in (NEVER, FOREVER):
        return frontier
    if by is None:
        return NEVER
    return max(NEVER, min(FOREVER, frontier + by))


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A step as a part of its batch, which may take several.

    - ``first_rid``: the id of the first row of the batch; all rows with this or a greater one are of the batch.
    - ``is_first``: no rows of the batch have come before.
    - ``is_last``: no more rows of the batch come.  Before, no row may be evicted: others may still match it, and in
      another attempt they may come in another order.
    """

    first_rid: int
    is_first: bool = True
    is_last: bool = True


class StateView(Protocol):
    """The stored rows of an operator's bucket, as relations that the kernel names.

    Methods that return SQL return a table expression, valid until the step ends, or None if no row is stored.
    """

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection that holds the rows."""

    @property
    def tables(self) -> StepTables:
        """Temporary tables, which are dropped when the step ends: what is made in pieces may read them until then."""

    @property
    def has_little_memory(self) -> bool:
        """Whether queries should take little memory rather than little time."""

    @property
    def statistics(self) -> Mapping[str, Any]:
        """What the kernel last stored as ``StepResult.statistics``; empty before it has."""

    @property
    def max_bytes(self) -> int | None:
        """How many bytes the bucket may hold after the batch, if the kernel evicts rows (None: any number)."""

    @property
    def batch(self) -> BatchPart:
        """Which part of its batch the step is."""

    def register(self, rows: pa.Table) -> str:
        """Return a name by which SQL finds these rows until the step ends."""

    def query(self, sql: str, *, joins_as_written: bool = False) -> pa.Table:
        """Return the rows of a query.

        With ``joins_as_written``, DuckDB keeps the order of joins, and builds hash tables over second relations.
        """

    def stream(self, sql: str, *, joins_as_written: bool = False) -> Iterator[pa.Table]:
        """Yield the rows of a query as they are made, at least one piece, which may be empty.

        The query runs when the first piece is asked for.  Until the last one is there, no other may run.
        """

    def scan(self, relation: str, low: int = NEVER, high: int = FOREVER) -> str | None:
        """Return SQL for all stored rows with ``low <= $t <= high``."""

    def parts(self, relation: str) -> list[str]:
        """Return SQL for all stored rows, divided into parts of which each has about 32 MB, or one segment."""

    def few_rows(self, relation: str, low: int = NEVER, high: int = FOREVER) -> list[pa.Table] | None:
        """Return what ``scan`` does as Arrow tables; None if some of these rows may be in large segments."""

    def rows_with_keys(
        self, relation: str, by: Sequence[str], probes: pa.Table | str, low: int = NEVER, high: int = FOREVER
    ) -> str | None:
        """Return SQL for stored rows with ``low <= $t <= high``.

        The result contains every row whose ``by`` columns equal a probe's; it may contain others.  NULL equals NULL,
        and without ``by`` columns every row equals every probe.

        ``probes`` has the columns ``by``, of their types.  An Arrow table, whose columns are in the order of ``by``, is
        hashed; SQL of a table expression is joined in DuckDB.  The cost follows the probes and the rows found, not the
        rows stored; where a scan is as fast, the result is a scan.
        """

    def rows_as_of(self, relation: str, by: Sequence[str], probes: str) -> str | None:
        """Return SQL for stored rows as of the times of probes.

        The result contains, for each probe, the newest rows with equal ``by`` columns at or before its ``$t``; it may
        contain others.  NULL equals nothing.  ``probes`` is SQL of a table expression with the columns ``by`` and
        ``$t``.  The cost follows the probes, not the rows stored.
        """

    def stored_bytes(self, relation: str, low: int) -> int:
        """Return what a relation takes in segments that hold rows with ``$t >= low`` (kernels/row_bytes.py)."""

    def most_rows(self, relation: str, low: int = NEVER, high: int = FOREVER) -> int:
        """Return how many rows ``scan`` returns at most: it costs nothing, as no row is read."""

    def count(self, relation: str, low: int) -> int:
        """Return how many stored rows of a relation have ``$t >= low``."""

    def spend_scan_budget(self, relation: str, rows: int) -> bool:
        """Return whether a step may scan all rows of a relation.

        Every call adds ``rows`` to the relation's budget.  A budget that covers all stored rows is spent, and the
        result is True.  So n stored rows are scanned once in n / rows steps.  The budget is lost when the bucket moves
        to another process.
        """


@dataclass(frozen=True, slots=True)
class StepFrontiers:
    """The operator's frontier before the batch and after it, and each input's own frontier after it and before it."""

    before: int
    after: int
    inputs: tuple[int, ...]
    inputs_before: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Evicted:
    """Rows of an input that were evicted from the state, as they were stored, and why."""

    input: int
    reason: str
    rows: Rows


#: Rows that are there, or that are made piece by piece when they are taken.
Rows: TypeAlias = "pa.Table | Iterator[pa.Table]"


def made(state: StateView, sql: str, of_rows: int, *, joins_as_written: bool = False) -> Rows:
    """Return the rows of a query, in pieces if they are or may be many; it reads or returns about ``of_rows``."""
    if of_rows < MANY_ROWS and (rows := few(state, sql, joins_as_written=joins_as_written)) is not None:
        return rows
    return state.stream(sql, joins_as_written=joins_as_written)


def few(state: StateView, sql: str, *, joins_as_written: bool = False) -> pa.Table | None:
    """Return the rows of a query; None if they are many."""
    most = _many_results(state)
    rows = state.query(f"{sql} LIMIT {most}", joins_as_written=joins_as_written)
    return rows if rows.num_rows < most else None


def _many_results(state: StateView) -> int:
    return MANY_RESULTS // 16 if state.has_little_memory else MANY_RESULTS


def in_one_table(
    state: StateView, sql: str, of_rows: int, most: int | None = None, *, joins_as_written: bool = False
) -> str:
    """Return where the rows of a query over so many rows are read from: a table, if they are many and memory little.

    More than ``most`` are not kept, but made each time that they are read.

    DuckDB reads each part of a UNION in a pipeline of its own.  Above it, each pipeline has buffers of its own for what
    is grouped, sorted or hashed, all of them until the last has ended: some megabytes for each segment.
    """
    if of_rows < MANY_ROWS or not state.has_little_memory:
        return f"({sql})"
    name, rows = state.tables.add(sql if most is None else f"{sql} LIMIT {most}", joins_as_written=joins_as_written)
    if most is None or rows < most:
        return name
    state.tables.drop(name)
    return f"({sql})"


def made_in_turn(state: StateView, selects: Iterable[str], of_rows: int, *, joins_as_written: bool = False) -> Rows:
    """Return the rows of several queries, at least one; over many rows with little memory, one after the other.

    DuckDB builds the hash tables of all parts of a UNION before it reads the first.
    """
    if of_rows < MANY_ROWS or not state.has_little_memory:
        return made(state, " UNION ALL ".join(selects), of_rows, joins_as_written=joins_as_written)
    in_turn = (made(state, each, of_rows, joins_as_written=joins_as_written) for each in selects)
    return chain.from_iterable(map(pieces_of, in_turn))


def most_kept(state: StateView, new_rows: int) -> int:
    """Return how many pairs of so many new rows are kept as a table; more are made each time that they are read."""
    return _many_results(state) if new_rows < MANY_ROWS else MANY_ROWS + PAIRS_PER_ROW * new_rows


def pieces_of(rows: Rows) -> Iterator[pa.Table]:
    """Yield rows as they are made."""
    return iter([rows]) if hasattr(rows, "schema") else rows  # Arrow is imported for its types alone


def followed_by(*parts: Rows) -> Rows:
    """Return rows of the same columns, one part after the other."""
    return chain.from_iterable(map(pieces_of, parts))


@dataclass(slots=True)
class StepResult:
    """The result of one step.

    - ``changes``: rows to emit, with a ``$w`` column in a changelog.
    - ``further``: rows to emit for each further query that the operator serves, in their order.
    - ``store``: rows to add to the state, by relation.
    - ``forget``: by relation, the ``$t`` below which rows will never be read again.
    - ``replace``: rows that replace all rows of a relation.  They are made after ``changes``, before the rows that they
      replace are dropped, and may read these.
    - ``store_made``: further rows to add, made when ``replace`` is.
    - ``evict``: by relation, tables of the step with the ``$rid`` and ``$t`` of stored rows to remove, as ``rid`` and
      ``t``; ids of rows that are not there are ignored.
    - ``evicted``: the rows among them that the side output keeps, made after ``changes``; and ``evicted_bytes``, what
      those took that left for lack of bytes.
    - ``counters``: increments of the operator's counters, by name.
    - ``statistics``: what the kernel has learned of its inputs, as JSON values (None: as before).  No result may depend
      on it.  Numbers under ``gauges`` are reported with the counters.
    """

    changes: Rows | None = None
    further: list[Rows] = field(default_factory=list)
    store: dict[str, pa.Table] = field(default_factory=dict)
    forget: dict[str, int] = field(default_factory=dict)
    replace: dict[str, Rows] = field(default_factory=dict)
    store_made: dict[str, Rows] = field(default_factory=dict)
    evict: dict[str, list[str]] = field(default_factory=dict)
    evicted: list[Evicted] = field(default_factory=list)
    evicted_bytes: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    statistics: dict[str, Any] | None = None


class Kernel(Protocol):
    """One operator's computation over one bucket."""

    @property
    def partition_width(self) -> int | None:
        """The width of a time partition of stored rows, in units of ``$t`` (None: rows have no bound in time)."""

    @property
    def homes(self) -> Homes | None:
        """Where the rows of each relation belong; None if what is stored has no keys, so that it stays where it is."""

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the relations whose rows count as state, and the event time from which each row counts.

        A join whose keys may be spread (engine/hot_keys.py) has one for each input, in their order.
        """

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply the new rows of each input; none of them is late.  Row ids from ``first_rid`` on are free."""


def quote(name: str) -> str:
    """Quote a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


def order_sql(columns: Iterable[tuple[str, bool]]) -> str:
    """Return ORDER BY terms of (column, descending): NULLs are first in ascending order, last in descending order."""
    return ", ".join(
        f"{quote(name)} {'DESC NULLS LAST' if descending else 'ASC NULLS FIRST'}" for name, descending in columns
    )
