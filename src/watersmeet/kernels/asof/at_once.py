"""The join as of a time that emits at once and never revises.

Matches      over the right rows known when the left row arrives, those of its step included:
             BACKWARD (``SETTINGS temporal_wait = 'none'``)  r.$t <= l.$t, the newest
             CURRENT (``AS OF PROCTIME()``)                  the newest, whatever its time
Residual, ties, deletes, NULL keys: as in final.py
Late rows    never reach the kernel.  A right row is behind if its time is at or before the newest left row already
             joined in its bucket: then some left row may have missed it, and it is counted
Final        at once
State        no left rows.  Right rows at or after F, and the newest below F of each key, F being the lower of both
             sides' frontiers (CURRENT: the right side's); BACKWARD also the newest left time joined
Other times  as in final.py

The right side's frontier does not hold the operator back (``InputSpec.holds_back``).

Example, BACKWARD: rate 1.1 at 10:00 is stored.  An order at 10:07 is emitted with 1.1; rate 1.2 at 10:05 comes in a
later step, does not revise it, and is counted as behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import NEVER, Side, StateView, StepFrontiers, StepResult, made, quote
from watersmeet.kernels.asof.left_rows import arriving, homes_of_versions, right_bounds
from watersmeet.kernels.asof.match import AsofMatch, Direction
from watersmeet.kernels.asof.step import AsofStep
from watersmeet.kernels.homes import Everywhere, Homes

_JOINED = "joined"


@dataclass(frozen=True, slots=True)
class AsofAtOnce:
    """The kernel; ``behind`` names the counter of versions that came too late for left rows already joined."""

    match: AsofMatch
    behind: str = "behind"

    @property
    def partition_width(self) -> int | None:
        """None: rows have no bound in time."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Versions; of the newest left rows joined in several buckets, the greatest time counts."""
        return {**homes_of_versions(), _JOINED: Everywhere()}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the right rows: all are needed, whatever the frontier."""
        return {"right": NEVER, "settled": NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join the new left rows with all right rows, new ones included."""
        is_current = self.match.direction is Direction.CURRENT
        result = StepResult()
        left = arriving(self.match, state, inputs, frontiers, first_rid, result)
        right = frontiers.inputs[Side.RIGHT.index]
        frontier = right if is_current else min(right, frontiers.after)
        floor, high = right_bounds(self.match, state, left, frontier, result)
        step = AsofStep(self.match, state, state.register(inputs[1]), floor, high_right=high)
        state.tables.make("waiting", f"SELECT * FROM {state.register(left)}")
        step.find_candidates(left.num_rows)
        result.changes = made(state, step.results_sql(), left.num_rows)
        step.keep_right(result)
        if not is_current:
            self._count_behind(step, left, inputs[Side.RIGHT.index], result)
        return result

    def _count_behind(self, step: AsofStep, left: pa.Table, right: pa.Table, result: StepResult) -> None:
        stored = step.state.scan(_JOINED)
        joined = step.rows(f"SELECT max({quote(TIME)}) FROM {stored}")[0][0] if stored else NEVER
        behind = pc.sum(pc.less_equal(right[TIME], joined)).as_py() or 0
        result.counters[self.behind] = behind
        newest = pc.max(left[TIME]).as_py()
        if newest is not None and newest > joined:
            result.store[_JOINED] = pa.table({TIME: pa.array([newest], pa.int64())})
            result.forget[_JOINED] = newest
