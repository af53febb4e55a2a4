"""The join as of a time under EMIT FINAL: each left row, once, with the one right row of its key that holds.

Matches      keys equal, |l.$t - r.$t| <= tolerance, and nearest in time:
             BACKWARD  r.$t <= l.$t, the newest     (strict: r.$t < l.$t)
             FORWARD   r.$t >= l.$t, the oldest     (strict: r.$t > l.$t)
             NEAREST   the nearer of both; at equal distance the earlier
Residual     tested on that one row: a left row whose nearest row fails it has no partner
Ties         of right rows with equal key and time, the last in the order of their source counts
Deletes      see ``Versions`` in match.py
NULL keys    match nothing, unless the key is null-safe; NULL times (padded rows of an earlier join) match nothing
Several      if the key does not name one entity (a table with a primary key is joined by other columns), the left row
             matches every version that has the key and holds at its time
Late rows    never reach the kernel
Final        once no nearer right row can arrive, F being the operator's frontier after the batch (where right rows
             come in order: that of the right side, if it is ahead):
             BACKWARD  l.$t < F
             FORWARD   r.$t < F, or l.$t + tolerance < F
             NEAREST   the same for the later neighbor r, or 2 l.$t - b.$t < F for the earlier neighbor b
State        left rows that are not final; right rows at or after F, and the newest below F of each key (FORWARD: none)
Other times  where left rows ask for versions of other times than their own (``Asked``), their ``$t`` is that time, and
             right rows are kept as long as they may be asked for (``VersionTimes``)

A temporal join in event time (FOR SYSTEM_TIME AS OF) is this join BACKWARD, with the versions on the right side.  It
must keep the newest version below the frontier for each key: see RisingWave's issue 25939.

Example, NEAREST: l@10 has the neighbors b@7 and r@15.  b is 3 away, r is 5 away.  At F = 14, 2 * 10 - 7 = 13 < 14: a
row that still arrives is at least 4 away, so l is emitted with b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, Side, StateView, StepFrontiers, StepResult, made, quote
from watersmeet.kernels.asof.left_rows import arriving, homes_of_versions, right_bounds
from watersmeet.kernels.asof.match import AsofMatch, Direction
from watersmeet.kernels.asof.step import AsofStep
from watersmeet.kernels.homes import ByKey, Homes


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """The kernel; it emits each left row in the step that makes it final."""

    match: AsofMatch

    @property
    def partition_width(self) -> int | None:
        """None: rows have no bound in time."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Waiting left rows, and versions."""
        return {"left": ByKey(Side.LEFT.index), **homes_of_versions()}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return all stored rows: all are needed, whatever the frontier."""
        return {"left": NEVER, "right": NEVER, "settled": NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Emit the left rows that have become final; store the others, and the right rows that later ones may match."""
        result = StepResult()
        left = arriving(self.match, state, inputs, frontiers, first_rid, result)
        floor, high = right_bounds(self.match, state, left, frontiers.after, result)
        is_forward = self.match.direction is Direction.FORWARD
        low = frontiers.before if is_forward else NEVER
        step = AsofStep(self.match, state, state.register(inputs[Side.RIGHT.index]), floor, low, high)
        _Step(step, state.register(left), frontiers).run(result)
        return result


class _Step:
    def __init__(self, step: AsofStep, left_new: str, frontiers: StepFrontiers) -> None:
        self.step = step
        self.match = step.match
        self.left_new = left_new
        right = Side.RIGHT.index
        self.frontier = self.match.times.right_final_before(frontiers.after, frontiers.inputs[right])
        self.is_backward = self.match.direction is Direction.BACKWARD
        # left rows below this have been emitted, though segments may still hold them
        emitted = self.match.times.right_final_before(frontiers.before, frontiers.inputs_before[right])
        self.low_left = emitted if self.is_backward else NEVER

    def run(self, result: StepResult) -> None:
        state = self.step.state
        waiting = state.tables.make("waiting", self._waiting())
        self.step.find_candidates(waiting)
        result.changes = made(state, f"{self.step.results_sql()} AND {self._is_final()}", waiting)
        self._keep_left(result, waiting)
        self.step.keep_right(result)

    def _waiting(self) -> str:
        """Return SQL for the left rows that may have become final."""
        high = FOREVER
        if self.is_backward and self.frontier != FOREVER:
            high = self.frontier - 1
        rows = f"SELECT * FROM {self.left_new} WHERE {quote(TIME)} IS NULL OR {quote(TIME)} <= {high}"
        stored = self.step.state.scan("left", self.low_left, high)
        return rows if stored is None else f"{rows} UNION ALL BY NAME SELECT * FROM {stored}"

    def _is_final(self) -> str:
        return "TRUE" if self.is_backward else is_final(self.match, self.frontier)

    def _keep_left(self, result: StepResult, waiting: int) -> None:
        names = (TIME, RID, *self.match.left.stored)
        if self.is_backward:
            columns = ", ".join(quote(name) for name in names)
            result.store["left"] = self.step.state.query(
                f"SELECT {columns} FROM {self.left_new} WHERE {quote(TIME)} >= {self.frontier}"
            )
            result.forget["left"] = self.frontier
            return
        columns = ", ".join(f"l.{quote(name)}" for name in names)
        # stored rows that still wait are written again
        waits = f"SELECT {columns} FROM {self.step.joined()} WHERE ({self._is_final()}) IS NOT TRUE"
        result.replace["left"] = made(self.step.state, waits, waiting)


def is_final(match: AsofMatch, frontier: int, partner: str | None = None) -> str:
    """Return SQL over ``AsofStep.joined``: no right row at or after the frontier can be nearer than the row found.

    ``partner`` is SQL for the time of the row found, if it is not that of ``joined``.
    """
    time = f"l.{quote(TIME)}"
    if frontier == FOREVER:
        return "TRUE"
    found = [f"{time} IS NULL"]
    if match.direction is Direction.BACKWARD:
        return f"({' OR '.join([*found, f'{time} < {frontier}'])})"
    if match.tolerance is not None:
        found.append(f"{time} < {max(NEVER, frontier - match.tolerance)}")
    if match.direction is Direction.FORWARD:
        found.append(f"{partner or f'r.{quote(TIME)}'} < {frontier}")
    elif partner is None:
        found += [f"n.after < {frontier}", f"{time} - n.before + {time} < {frontier}"]
    else:
        after = f"({partner} >= {time} AND {partner} < {frontier})"
        found.append(f"({after} OR ({partner} < {time} AND {time} - {partner} + {time} < {frontier}))")
    return f"coalesce({' OR '.join(found)}, FALSE)"
