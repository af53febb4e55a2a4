"""The inner join of three inputs and more in one operator.

Matches      a row of each input, if their common keys are equal, the times of each pair lie within its bounds, and all
             other conditions are true
Ties         every result is formed once, whatever the order of arrival and the cut of batches
NULL keys    match nothing, unless the key is null-safe (``IS NOT DISTINCT FROM``)
Late rows    never reach the kernel
Final        every result, at once
State        the rows of each input while a row of another may still come that they can be in a result with: no
             intermediate result is stored

Example, three inputs, all within 10 of each other: a@5, c@7 and b@14 form a result when the last of them comes, in
whichever order.  At F = 16 no row at or after F is within 10 of a@5, so a@5 is forgotten; c@7 stays until F = 18.

Each row is stored, and probes the stores of the other inputs.  A result is formed once, by its latest row in one total
order: (step, input).  With new rows ``new`` and stored rows ``old``, a step of three inputs forms::

    a_new x (b_old + b_new) x (c_old + c_new)        results whose latest step is this one and that have a new a
    a_old x  b_new          x (c_old + c_new)        ... that have no new a, but a new b
    a_old x  b_old          x  c_new                 ... that have a new c alone

So a probe that comes late meets what came before it, and a row that is stored late meets, as a probe, all that waited
for it.  Event times may be equal or in any order: arrival decides who forms a result, time whether there is one.

Stores and probes for joins of many streams: CLASH (Dossinger and Michel, "Optimizing Multiple Multi-Way Stream Joins",
ICDE 2021); the terms of a step are those of incremental view maintenance over n inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernels.api import StateView, StepFrontiers, StepResult
from watersmeet.kernels.multi_way import step
from watersmeet.kernels.multi_way.match import MultiWayMatch


@dataclass(frozen=True, slots=True)
class MultiWayJoin:
    """The kernel, for append-only inputs."""

    match: MultiWayMatch

    @property
    def partition_width(self) -> int | None:
        """The partition width of the match."""
        return self.match.partition_width

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return all inputs, each from the time at which a partner may still arrive."""
        return {
            step.relation(input): self.match.closed_before(input, frontier) for input in range(len(self.match.inputs))
        }

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join new rows with each other and with stored rows."""
        del first_rid  # no row needs an id: none is retracted or marked
        return step.run(self.match, state, inputs, frontiers)
