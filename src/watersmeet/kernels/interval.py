"""The windowed (interval) join of two streams, of every kind.

Matches      lower <= r.$t - l.$t <= upper (either bound may be missing), keys equal, residual true
Ties         every pair is formed once, whatever the order of arrival and the cut of batches
NULL keys    match nothing, unless the key is null-safe (``IS NOT DISTINCT FROM``)
NULL times   (padded rows of an earlier join) match nothing
Passing      left rows of a semi, anti or mark join that meet its alternative (``p OR EXISTS``) are emitted as they
             arrive; they match nothing
Late rows    never reach the kernel
Final        l if l.$t + upper < F, r if r.$t - lower < F, F being the operator's frontier after the batch; rows with a
             window of their own once it is below F (expiring_match.py)
State        rows that are not final, and marks of those that have found a partner.  Semi, anti and mark joins do not
             store a left row that had a partner when it arrived, nor one that passes

Example, FINAL, left join, bounds ±10: l@5 has no partner.  At F = 15 it is still open: r@15 may arrive, and 5 + 10 < 15
is false.  At F = 16 it is emitted padded.  Had it matched r@14, its mark would say so, even after r was forgotten.

A step, with new rows ``new`` and stored rows ``old``::

    pairs   = l_new x (r_old + r_new)  +  l_old x r_new
    matched = rows of a tracked side in pairs                       (outer, semi and anti joins track)
    FINAL:      + pairs; + rows that became final and never matched, padded (anti: alone)
    CHANGELOG:  + pairs; + padding of new rows without a partner; - padding of stored rows at their first partner
    semi:       + rows at their first partner, in both modes
    mark:       what a semi join gives, with TRUE, and what an anti join gives, with FALSE; if negated, the other way
    semi, anti, mark: + passing rows, which are taken out of ``new`` first

The symmetric join with a match mark per row is that of Spark's StreamingSymmetricHashJoinExec.  Why each row needs a
mark of its own: SPARK-26154.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernels import interval_step
from watersmeet.kernels.api import EmitMode, Side, StateView, StepFrontiers, StepResult
from watersmeet.kernels.homes import ByKey, Home, Homes, WithRow
from watersmeet.kernels.match import WindowMatch, marks_of


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """The kernel, for append-only inputs (for others see changelog/join.py).

    Under ``emit`` CHANGELOG, results carry ``$w``; with ``gives_ids`` also ``$id``, by which a following join knows the
    row that is retracted.
    """

    match: WindowMatch
    emit: EmitMode
    gives_ids: bool = False

    @property
    def partition_width(self) -> int | None:
        """The partition width of the window."""
        return self.match.partition_width

    @property
    def homes(self) -> Homes | None:
        """Rows of both sides, and the marks of those that found a partner."""
        return homes_of_sides()

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return both sides, each from the time at which a partner may still arrive."""
        return {side.value: self.match.closed_before(side, frontier) for side in Side}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join new rows with each other and with stored rows."""
        return interval_step.run(
            self.match,
            self.emit,
            gives_ids=self.gives_ids,
            state=state,
            inputs=inputs,
            frontiers=frontiers,
            first_rid=first_rid,
        )


def homes_of_sides() -> dict[str, Home]:
    """Where the rows of both sides of a join belong, and their marks."""
    rows: dict[str, Home] = {side.value: ByKey(side.index) for side in Side}
    marks: dict[str, Home] = {marks_of(side): WithRow((side.value,)) for side in Side}
    return {**rows, **marks}
