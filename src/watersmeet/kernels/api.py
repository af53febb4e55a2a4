"""What every kernel takes and gives.

A kernel computes from (stored rows, new rows, frontiers) what comes out, what to store and what to forget.  It keeps
nothing between two steps and changes no stored row itself; the temporary tables of a step are gone when it ends, also
where it fails.  It knows Arrow, DuckDB SQL, event times as int64, weights and frontiers; it knows nothing of Spark,
frames or durability.  So the same kernel runs in Spark and in the test harness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import duckdb
import pyarrow as pa

#: The ends of the event-time axis: nothing heard yet, and end of input.
NEVER = -(2**63)
FOREVER = 2**63 - 1

#: What ends the name of a relation whose rows name (by ``$rid``) rows of another one that have gone.
GONE = "_gone"


class EmitMode(Enum):
    """When results come out: once they can no longer change, or at once, to be retracted where they do."""

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
        """What stands for a row of it in SQL: ``l`` or ``r``."""
        return self.value[0]

    @property
    def other(self) -> Side:
        """The side across."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT


class JoinKind(Enum):
    """The kinds of join, and what each of them gives and must remember."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    def keeps(self, side: Side) -> bool:
        """Rows of that side without a partner come out."""
        if side is Side.LEFT:
            return self in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI)
        return self in (JoinKind.RIGHT, JoinKind.FULL)

    def shows(self, side: Side) -> bool:
        """Results hold columns of that side."""
        return self.pairs or side is Side.LEFT

    def pads(self, side: Side) -> bool:
        """Results may hold NULLs in place of a row of that side."""
        return self.shows(side) and self.keeps(side.other)

    def tracks(self, side: Side) -> bool:
        """It must be known which rows of that side have found a partner."""
        return self.keeps(side) or (self is JoinKind.SEMI and side is Side.LEFT)

    @property
    def pairs(self) -> bool:
        """Results are pairs of rows, padded or not; else they are rows of the left side."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def retracts(self) -> bool:
        """Results given at once may have to be retracted."""
        return self.keeps(Side.LEFT) or self.keeps(Side.RIGHT)


def shift(frontier: int, by: int | None) -> int:
    """``frontier + by`` on the axis; its ends stay where they are, and without a bound (None) nothing is ever past.

    >>> shift(100, -5), shift(FOREVER, -5) == FOREVER, shift(100, None) == NEVER
    (95, True, True)
    """
    if frontier in (NEVER, FOREVER):
        return frontier
    if by is None:
        return NEVER
    return max(NEVER, min(FOREVER, frontier + by))


class StateView(Protocol):
    """Stored rows of an operator's bucket, as relations of the kernel's own naming."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection that holds them."""

    def show(self, rows: pa.Table) -> str:
        """The name by which SQL finds these rows, until the step ends."""

    def scan(self, relation: str, low: int, high: int) -> str | None:
        """SQL of a table expression over the stored rows with ``low <= $t <= high``; None where there are none."""

    def matching(self, relation: str, by: Sequence[str], probes: pa.Table, low: int, high: int) -> str | None:
        """SQL over stored rows with ``low <= $t <= high``, among them all whose columns ``by`` equal those of a probe.

        ``probes`` has columns of the types of ``by``, in their order; NULL equals NULL.  Where it has few rows, it
        costs what they cost, not what is stored.  Without columns all rows are equal.
        """

    def count(self, relation: str, low: int) -> int:
        """How many rows are stored of a relation with ``$t >= low``."""

    def may_scan(self, relation: str, rows: int) -> bool:
        """Whether a step may look at all rows of a relation, where each that asks has ``rows`` of them to spend on it.

        What is not spent is kept for the steps to come, while the bucket stays in this process.
        """

    def near(self, relation: str, by: Sequence[str], probes: str) -> str | None:
        """SQL over stored rows among which are the newest with equal ``by`` at or before ``$t`` of each probe.

        ``probes`` is a relation with the columns ``by`` and ``$t``.  It costs what the probes cost, not what is stored.
        """

    def of_keys(self, relation: str, by: Sequence[str], probes: str) -> str | None:
        """SQL over stored rows among which are all with columns ``by`` equal to those of one of ``probes``."""


@dataclass(frozen=True, slots=True)
class StepFrontiers:
    """The operator's frontier as it stood before the batch and as it stands after it, and each input's own."""

    before: int
    after: int
    inputs: tuple[int, ...]


@dataclass(slots=True)
class StepResult:
    """What one step gives.

    ``changes`` are result rows (with a ``$w`` column in a changelog); ``store`` are rows to add to the state, by
    relation; ``forget`` says for a relation that rows with ``$t`` below the value will never be asked for again.
    ``replace`` are rows that take the place of all that a relation holds.  ``counters`` are added to those that the
    operator keeps; the operator's spec names them.
    """

    changes: pa.Table | None = None
    store: dict[str, pa.Table] = field(default_factory=dict)
    forget: dict[str, int] = field(default_factory=dict)
    replace: dict[str, pa.Table] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


class Kernel(Protocol):
    """One operator's computation over one bucket."""

    @property
    def partition_width(self) -> int | None:
        """How wide a time partition of the stored rows should be (None: they have no bound in time)."""

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Relations of the state that hold rows, and the event time from which their rows still count."""

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply the new rows of each input; none of them is late.  New rows are numbered from ``first_rid``."""


def quote(name: str) -> str:
    """A DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'
