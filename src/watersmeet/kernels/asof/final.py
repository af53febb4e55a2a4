"""The join as of a time under EMIT FINAL: each left row with the one right row of its key that holds, once it is sure.

Matches      keys equal; of the right rows on the side asked for, and within the tolerance, the one nearest in time:
             BACKWARD the newest at or before the left row's time, FORWARD the oldest at or after it, NEAREST the
             nearer of both (at equal distance the earlier).  ``strict`` leaves out equal times.
Residual     tested on that one row: a left row whose nearest fails it has no partner
Ties         of right rows with one key and time the last in the order of their source counts
Deletes      see ``Versions`` in match.py
NULL keys    match nothing, unless the key is null-safe; NULL times (padded rows of an earlier join) match nothing
Several      where the key is not that by which versions follow each other (a table with a primary key, joined by other
             columns), the row meets each version that holds at its time and has the key
Final        once no right row can come that is nearer: BACKWARD when l.$t < F; FORWARD when the one found lies below F
             or l.$t + tolerance < F; NEAREST when one of both holds, or the earlier one is nearer than F
State        left rows that are not final; right rows at or after F, and of each key the newest below F (FORWARD: none)

A temporal join in event time (FOR SYSTEM_TIME AS OF) is this join BACKWARD, the versions being the right side.
That the newest version below the frontier must be kept for each key is the lesson of RisingWave's issue 25939.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.asof.match import AsofMatch, Direction
from watersmeet.kernels.asof.step import AsofStep, step_tables
from watersmeet.kernels.match import number_rows


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """The kernel."""

    match: AsofMatch

    @property
    def partition_width(self) -> int | None:
        """Rows have no bound in time."""
        return None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """What is stored is needed, whatever the frontier."""
        return {"left": NEVER, "right": NEVER, "settled": NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Give the left rows that have become final; keep the rest, and what later ones may meet."""
        left, right = state.show(number_rows(inputs[0], first_rid)), state.show(inputs[1])
        with step_tables(state):
            return _Step(self.match, state, left, right, frontiers).run()


class _Step:
    def __init__(
        self, match: AsofMatch, state: StateView, left_new: str, right_new: str, frontiers: StepFrontiers
    ) -> None:
        self.match = match
        self.left_new = left_new
        self.frontier = frontiers.after
        self.is_backward = match.direction is Direction.BACKWARD
        # rows below these are done with, though segments may still hold them
        self.low_left = frontiers.before if self.is_backward else NEVER
        is_forward = match.direction is Direction.FORWARD
        self.step = AsofStep(match, state, right_new, self.frontier, frontiers.before if is_forward else NEVER)

    def run(self) -> StepResult:
        result = StepResult()
        self.step.execute(f"CREATE TEMP TABLE waiting AS {self._waiting()}")
        self.step.find_candidates()
        result.changes = self.step.table(f"{self.step.results_sql()} AND {self._is_final()}")
        self._keep_left(result)
        self.step.keep_right(result)
        return result

    def _waiting(self) -> str:
        """Left rows that may have become final."""
        high = FOREVER
        if self.is_backward and self.frontier != FOREVER:
            high = self.frontier - 1
        rows = f"SELECT * FROM {self.left_new} WHERE {quote(TIME)} IS NULL OR {quote(TIME)} <= {high}"
        stored = self.step.state.scan("left", self.low_left, high)
        return rows if stored is None else f"{rows} UNION ALL BY NAME SELECT * FROM {stored}"

    def _is_final(self) -> str:
        return "TRUE" if self.is_backward else is_final(self.match, self.frontier)

    def _keep_left(self, result: StepResult) -> None:
        names = (TIME, RID, *self.match.left.stored)
        if self.is_backward:
            columns = ", ".join(quote(name) for name in names)
            result.store["left"] = self.step.table(
                f"SELECT {columns} FROM {self.left_new} WHERE {quote(TIME)} >= {self.frontier}"
            )
            result.forget["left"] = self.frontier
            return
        columns = ", ".join(f"l.{quote(name)}" for name in names)
        result.store["left"] = self.step.table(
            f"SELECT {columns} FROM {self.step.joined()} WHERE ({self._is_final()}) IS NOT TRUE"
        )
        result.forget["left"] = FOREVER  # those stored before stand in the new rows, where they wait still


def is_final(match: AsofMatch, frontier: int, partner: str | None = None) -> str:
    """SQL over ``joined``: no right row that comes at or after the frontier is nearer than the one found.

    With ``partner``, a column with the time of the row found, in place of what ``joined`` has.
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
