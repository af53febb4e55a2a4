"""The windowed (interval) join of two streams, of every kind.

Matches      keys equal, residual true, and ``lower <= r.$t - l.$t <= upper`` (either bound may be missing)
Ties         every pair is formed once, whatever the arrival order and however batches are cut
NULL keys    match nothing, unless the key is null-safe (``IS NOT DISTINCT FROM``)
NULL times   (padded rows of an earlier join) match nothing
Late rows    never reach the kernel
Final        l when ``l.$t + upper < F``, r when ``r.$t - lower < F``, F being the operator's frontier after the batch
State        rows that are not final, and marks of the rows among them that have found a partner; semi and anti joins
             keep no left row that had one when it came

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
from watersmeet.kernels.api import EmitMode, Side, StateView, StepFrontiers, StepResult
from watersmeet.kernels.match import WindowMatch


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """The kernel, over inputs that only ever bring rows (changelog.py is for those that retract some).

    Under ``emit`` CHANGELOG results carry ``$w``, and with ``gives_ids`` also ``$id``, the name under which a row is
    retracted, for a join that follows.
    """

    match: WindowMatch
    emit: EmitMode
    gives_ids: bool = False

    @property
    def partition_width(self) -> int | None:
        """That of the window."""
        return self.match.partition_width

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Both sides, each from the time at which a partner may still come."""
        return {side.value: self.match.closed_before(side, frontier) for side in Side}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join new rows with each other and with stored ones."""
        return interval_step.run(
            self.match,
            self.emit,
            gives_ids=self.gives_ids,
            state=state,
            inputs=inputs,
            frontiers=frontiers,
            first_rid=first_rid,
        )
