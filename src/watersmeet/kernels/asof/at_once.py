"""The join as of a time that gives its results at once and never revises them; it keeps no left rows at all.

Matches, residual, ties, NULLs: as in final.py, over the right rows known at the step, its own among them.
BACKWARD     (``SETTINGS temporal_wait = 'none'``) the version that held at the left row's time.  A version that comes
             after a row has been joined that is as new, in the same bucket, is counted
CURRENT      (``AS OF PROCTIME()``) the newest version, whatever its time
State        right rows from the least frontier on to which rows may still come (CURRENT: the right side's own), and of
             each key the newest below it; BACKWARD also the newest time joined

The right side's frontier does not hold the operator back (see ``waits`` in engine/spec.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER, Side, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.asof.match import AsofMatch, Direction
from watersmeet.kernels.asof.step import AsofStep, step_tables
from watersmeet.kernels.match import number_rows

_JOINED = "joined"


@dataclass(frozen=True, slots=True)
class AsofAtOnce:
    """The kernel; ``behind`` names the counter of versions that came after rows that they would have met."""

    match: AsofMatch
    behind: str = "behind"

    @property
    def partition_width(self) -> int | None:
        """Rows have no bound in time."""
        return None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """No left rows; what is stored of the right side is needed, whatever the frontier."""
        return {"right": NEVER, "settled": NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply new right rows, then join the new left ones."""
        is_current = self.match.direction is Direction.CURRENT
        result = StepResult()
        left_new, right_new = state.show(number_rows(inputs[0], first_rid)), state.show(inputs[1])
        with step_tables(state):
            right = frontiers.inputs[Side.RIGHT.index]
            step = AsofStep(self.match, state, right_new, right if is_current else min(right, frontiers.after))
            step.execute(f"CREATE TEMP TABLE waiting AS SELECT * FROM {left_new}")
            step.find_candidates()
            result.changes = step.table(step.results_sql())
            step.keep_right(result)
            if not is_current:
                self._count_behind(step, inputs, result)
        return result

    def _count_behind(self, step: AsofStep, inputs: Mapping[int, pa.Table], result: StepResult) -> None:
        stored = step.state.scan(_JOINED, NEVER, FOREVER)
        joined = step.rows(f"SELECT max({quote(TIME)}) FROM {stored}")[0][0] if stored else NEVER
        behind = pc.sum(pc.less_equal(inputs[Side.RIGHT.index][TIME], joined)).as_py() or 0
        result.counters[self.behind] = behind
        newest = pc.max(inputs[Side.LEFT.index][TIME]).as_py()
        if newest is not None and newest > joined:
            result.store[_JOINED] = pa.table({TIME: pa.array([newest], pa.int64())})
            result.forget[_JOINED] = newest
