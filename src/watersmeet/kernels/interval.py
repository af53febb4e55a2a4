"""The windowed (interval) join of two streams, of every kind.

Matches      keys equal, residual true, and ``lower <= r.$t - l.$t <= upper`` (either bound may be missing)
Ties         every pair is formed once, whatever the arrival order and however batches are cut
NULL keys    match nothing, unless the key is null-safe (``IS NOT DISTINCT FROM``)
NULL times   (padded rows of an earlier join) match nothing
Late rows    never reach the kernel
Final        l when ``l.$t + upper < F``, r when ``r.$t - lower < F``, F being the operator's frontier after the batch
State        rows that are not final, and marks of the rows among them that have found a partner

Example, FINAL, left join, bounds ±10, F from 0 to 15: l@5 without a partner is still open at F = 15, since an r@15 may
come and 5 + 10 < 15 is false; at F = 16 it comes out padded.  It found a partner at r@14?  Then its mark, not the
other side's memory, says so, even when r has been forgotten.

A step, with new rows ``new`` and stored rows ``old``::

    pairs   = l_new x (r_old + r_new)  +  l_old x r_new
    matched = rows of a tracked side that stand in pairs            (outer, semi and anti joins track)
    FINAL:      + pairs; when final, rows that never matched come out padded (anti: as they are)
    CHANGELOG:  + pairs; + padding of new rows without a partner; - padding of stored rows at their first partner
    semi:       + rows at their first partner, in both modes

The symmetric join with a match mark per row is that of Spark's StreamingSymmetricHashJoinExec; that a row needs a
mark of its own is SPARK-26154's lesson.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernels import interval_step
from watersmeet.kernels.api import EmitMode, JoinKind, StateView, StepFrontiers, StepResult, shift


@dataclass(frozen=True, slots=True)
class Side:
    """One input: the columns that results need of it, and those that the condition needs (keys, residual).

    ``time`` is the name under which results carry the input's event time, where they do.
    """

    output: tuple[str, ...]
    condition: tuple[str, ...] = ()
    time: str | None = None

    @property
    def stored(self) -> tuple[str, ...]:
        """What the state must hold of a row, beside its event time."""
        return tuple(name for name in dict.fromkeys((*self.condition, *self.output)) if name != self.time)


@dataclass(frozen=True, slots=True)
class Key:
    """An equality of a column of each side; null-safe: NULL equals NULL."""

    left: str
    right: str
    null_safe: bool = False


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """The kernel; input 0 is the left stream, input 1 the right one.

    ``residual`` is DuckDB SQL over ``l`` and ``r``, rendered by the planner from a bound expression.  The output has
    the columns of ``left.output`` and then of ``right.output`` (semi and anti: of the left side only).  With
    ``gives_ids`` a changelog names in ``$id`` what it takes back, for a join that follows (corrected.py).
    ``slack`` is how far the frontier is expected to lie behind the newest rows.
    """

    kind: JoinKind
    left: Side
    right: Side
    keys: tuple[Key, ...]
    lower: int | None
    upper: int | None
    residual: str | None
    emit: EmitMode
    gives_ids: bool = False
    slack: int = 0

    @property
    def partition_width(self) -> int | None:
        """How wide a time partition of the state should be: an eighth of what rows lie apart."""
        if self.lower is None or self.upper is None:
            return None
        return max((self.upper - self.lower + self.slack) // 8, 1)

    def dead_before(self, input: int, frontier: int) -> int:
        """Rows of an input with ``$t`` below this are final at ``frontier``."""
        if input == 0:
            return shift(frontier, None if self.upper is None else -self.upper)
        return shift(frontier, self.lower)

    def live_relations(self, frontier: int) -> dict[str, int]:
        """For each relation of the state that holds rows: the event time from which they still count."""
        return {"left": self.dead_before(0, frontier), "right": self.dead_before(1, frontier)}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join new rows with each other and with stored ones (interval_step.py)."""
        return interval_step.run(self, state, inputs[0], inputs[1], frontiers, first_rid)
