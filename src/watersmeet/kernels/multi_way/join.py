"""Inner and left joins of three inputs and more in one operator.

Matches      a row of each input, if their common keys are equal, the times of each pair lie within its bounds, and all
             other conditions are true
LEFT JOIN    adds a row of its input to the rows of those before it, or NULLs where there is none that matches
Ties         every result is formed once, whatever the order of arrival and the cut of batches
NULL keys    match nothing, unless the key is null-safe (``IS NOT DISTINCT FROM``)
Late rows    never reach the kernel
Final        every result at once, if it has a row of each input; if it lacks some, as soon as no row of theirs can
             match any more
State        the rows of each input while they can still be in a new result: no intermediate result is stored

Example, three inputs, all within 10 of each other: a@5, c@7 and b@14 form a result when the last of them comes, in
whichever order.  At F = 16 no row at or after F is within 10 of a@5, so a@5 is forgotten; c@7 stays until F = 18.

Each row is stored, and probes the stores of the other inputs.  A result is formed once, by its latest row in one total
order: (step, input).  With new rows ``new`` and stored rows ``old``, a step of three inputs forms::

    a_new x (b_old + b_new) x (c_old + c_new)        results whose latest step is this one and that have a new a
    a_old x  b_new          x (c_old + c_new)        ... that have no new a, but a new b
    a_old x  b_old          x  c_new                 ... that have a new c alone

So a probe that comes late meets what came before it, and a row that is stored late meets, as a probe, all that waited
for it.  Event times may be equal or in any order: arrival decides who forms a result, time whether there is one.

With LEFT JOIN, a result may lack a row of an input.  It is padded for good once the frontier has passed the last time
at which a row of that input could join the first input's row.  This counts as something new, like a row::

    FROM a LEFT JOIN b LEFT JOIN c, each within 10 after a:   a@5 is stored, then c@7
    F = 15   b@15 can still come: nothing
    F = 16   no b can: a@5 is padded, which is new, and meets c@7:  (a@5, NULL, c@7)

A term takes padded rows of before in place of ``old`` rows, those that are padded from this step on in place of ``new``
ones, and both in place of ``old + new``.  So each result is formed in the step in which the last of its rows comes or
the last of its paddings is for good.  The first input's row stays until then, and so do all rows that it may match.

Stores and probes for joins of many streams: CLASH (Dossinger and Michel, "Optimizing Multiple Multi-Way Stream Joins",
ICDE 2021); the terms of a step are those of incremental view maintenance over n inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernels.api import StateView, StepFrontiers, StepResult
from watersmeet.kernels.homes import ByKey, Homes
from watersmeet.kernels.multi_way import step
from watersmeet.kernels.multi_way.match import MultiWayMatch
from watersmeet.kernels.multi_way.rows import StepRows
from watersmeet.kernels.multi_way.stores import Store, relation


@dataclass(frozen=True, slots=True)
class MultiWayJoin:
    """The kernel, for append-only inputs."""

    match: MultiWayMatch

    @property
    def partition_width(self) -> int | None:
        """The partition width of the match."""
        return self.match.partition_width

    @property
    def homes(self) -> Homes | None:
        """The rows of each input."""
        return {relation(input): ByKey(input) for input in range(len(self.match.inputs))}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return all inputs, each from the time at which a partner may still arrive."""
        return {relation(input): self.match.closed_before(input, frontier) for input in range(len(self.match.inputs))}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join new rows with each other and with stored rows."""
        del first_rid  # no row needs an id: none is retracted or marked
        match, result = self.match, StepResult()
        stores = own_stores(match)
        rows = StepRows(match, state, inputs, frontiers, stores)
        result.changes, result.statistics = step.results(rows, state.statistics)
        for number, (input, store) in enumerate(zip(match.inputs, stores, strict=True)):
            closed = match.closed_before(number, frontiers.after)
            step.keep(result, store.relation, inputs[number], input.stored, closed)
        return result


def own_stores(match: MultiWayMatch) -> list[Store]:
    """Return the stores of a join that shares none: one for each input, whose columns have the input's names."""
    return [
        Store(relation(number), tuple((name, name) for name in input.stored))
        for number, input in enumerate(match.inputs)
    ]
