"""The sliding window hash join: one side is built, the other only probes, and results come in the probe side's order.

Matches      as in the interval join (interval.py): keys equal, ``lower <= r.$t - l.$t <= upper``, residual true
Emits        all results of a probe row at once, when all its partners are there; rows of the build side without a
             partner, where the kind emits them, when no probe row can match them any more
Order        results of probe rows by their time, then by the columns of ``order``, within a step and across steps.
             Rows of the build side without a partner are outside this order
NULL times   (padded rows of an earlier join) match nothing, and are emitted first in the step that brings them
Late rows    never reach the kernel: each side's are those behind its own frontier
Due          probe rows with t < F: the operator's frontier is the smaller of the probe side's own, and of that to which
             the build side's own has brought all partners, ``wait_for_partners`` behind it
State        probe rows with t >= F, which wait, and build rows in the window of a probe row that is not due

The interval join gives a pair as soon as both rows are there, so whoever needs order stores results.  Here only rows
are stored.

Example, r probes, l is within 10 before it: l@5, l@12, r@14 and r@13 arrive.  While r may still bring 13, or l 13, r@13
is not due.  When the frontiers of both are 15, both are due: r@13 with l@5 and l@12, then r@14 with l@5 and l@12.  l@5
stays, since r@15 may still come; at 16 it is pruned.  Were l within 10 after it, r@13 would wait until l's frontier is
24, however far r's is.

A step is one of the interval join whose new probe rows are those that are due, and are never stored.

Source: "Sliding Window Hash Join" (Synnada, 2023).  In the paper a batch of the probe side is in order; here rows come
in any order, and the frontier says what is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels import interval_step
from watersmeet.kernels.api import FOREVER, EmitMode, Side, StateView, StepFrontiers, StepResult
from watersmeet.kernels.homes import ByKey, Homes
from watersmeet.kernels.interval import homes_of_sides
from watersmeet.kernels.match import WindowMatch, fields_of

WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class _DueMatch(WindowMatch):
    """The match of a step: ``probe`` rows are complete when they come."""

    probe: Side

    @property
    def numbered(self) -> tuple[Side, Side]:
        """Stored rows keep their numbers, so those of the build side come first."""
        return self.probe.other, self.probe

    def closed_before(self, side: Side, frontier: int) -> int:
        """Return the time below which rows of a side have all their partners."""
        return FOREVER if side is self.probe else WindowMatch.closed_before(self, side, frontier)


@dataclass(frozen=True, slots=True)
class SlidingJoin:
    """The kernel, for append-only inputs and final results.

    ``order``: columns of the results, each with whether it descends; the time of the ``probe`` side comes first.
    Without any, results are in order from step to step, and the next operator sorts those of a step.
    """

    match: WindowMatch
    probe: Side
    order: tuple[tuple[str, bool], ...]

    @property
    def partition_width(self) -> int | None:
        """The partition width of the window."""
        return self.match.partition_width

    @property
    def homes(self) -> Homes | None:
        """The waiting probe rows, build rows, and the marks of those that found a partner."""
        return {**homes_of_sides(), WAITING: ByKey(self.probe.index)}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the waiting probe rows, and build rows from the time at which one may still be probed."""
        build = self.probe.other
        live = {self.probe: (WAITING, frontier), build: (build.value, self.match.closed_before(build, frontier))}
        return dict(live[side] for side in Side)

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Probe with the rows that have become due; store the others, and new build rows."""
        before, after = frontiers.before, frontiers.after
        new = inputs[self.probe.index]
        waits = pc.fill_null(pc.greater_equal(new[TIME], pa.scalar(after, pa.int64())), False)
        due = new.filter(pc.invert(waits))
        if (waited := state.scan(WAITING, before, after - 1)) is not None:
            stored = state.query(f"SELECT * FROM {waited}")
            due = pa.concat_tables([due, stored.select(due.column_names).cast(due.schema)])
        result = interval_step.run(
            _DueMatch(**fields_of(self.match), probe=self.probe),
            EmitMode.FINAL,
            gives_ids=False,
            state=state,
            inputs={self.probe.index: due, self.probe.other.index: inputs[self.probe.other.index]},
            frontiers=frontiers,
            first_rid=first_rid,
            order=self.order,
        )
        del result.store[self.probe.value]
        result.store[WAITING] = new.filter(waits)
        result.forget[WAITING] = after
        return result


def wait_for_partners(match: WindowMatch, probe: Side) -> int:
    """How far the operator's frontier stays behind that of the build side: so much newer may a row's partners be."""
    reach = match.upper if probe is Side.LEFT else None if match.lower is None else -match.lower
    assert reach is not None
    return max(reach, 0)
