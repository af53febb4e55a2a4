"""One step of an aggregate whose groups have an end: each is emitted once, when it has come (kernel.py).

    arrived     = input rows that pass ``where``, with keys, totals and bag values computed
    new_<...>   = what the step adds to each relation, as in step.py
    ended       = the groups, new and stored, with F before < end <= F
    emit        + the results of these groups, from their new and stored rows
                  with little memory, of some groups after the other: all that end at one time come in one step
    each relation: new rows of groups that have not ended are stored; stored rows with end <= F are forgotten

Nothing is computed for a group before its end but sums of what has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.kernels import api
from watersmeet.kernels.aggregate.step import GROUP, TOTALS, Step, new_table, settled
from watersmeet.kernels.api import (
    FOREVER,
    StateView,
    StepFrontiers,
    StepResult,
    in_one_table,
    made_in_turn,
    quote,
    shift,
)

if TYPE_CHECKING:
    from watersmeet.kernels.aggregate.kernel import Aggregate

#: With little memory, the groups of a query have about so many bytes.
_PART_BYTES = 32 << 20


def run_final(
    kernel: Aggregate, state: StateView, rows: pa.Table, first_rid: int, frontiers: StepFrontiers
) -> StepResult:
    """Apply new and retracted rows; emit the results of groups that end."""
    return FinalStep(kernel, state, state.register(rows), first_rid, frontiers).run()


@dataclass(slots=True)
class FinalStep(Step):
    """One step over the tables ``arrived``, ``new_...`` of each relation, and ``ended``.

    ``due`` are the rows of groups that end, by relation, as SQL.
    """

    numbered: str = "ended"
    due: dict[str, list[str]] = field(default_factory=dict)

    def run(self) -> StepResult:
        """Emit what has ended, and store the rest."""
        self.forget_ended()
        is_new = self.tables.make("arrived", self.arrived()) > 0
        if not is_new and self.frontiers.before == self.frontiers.after:
            return self.result
        self.tables.make(new_table(TOTALS), self.new_totals())
        for bag in self.kernel.bags:
            self.tables.make(new_table(bag.name), self.new_values(bag))
        if self.frontiers.before != self.frontiers.after:
            ended = self.tables.make("ended", self.ended())
            self.result.changes = made_in_turn(
                self.state, self.results_in_parts(ended), ended, joins_as_written=self.state.has_little_memory
            )
        if is_new:
            for relation in self.kernel.relations:
                self.keep(relation)
        return self.result

    def parts_now(self, relation: str) -> list[str]:
        """Return SQL for the new and stored rows of groups that end in this step, among others."""
        if relation not in self.due:
            self.due[relation] = list(self._parts(relation))
        return self.due[relation]

    def _parts(self, relation: str) -> Iterator[str]:
        low, high = shift(self.frontiers.before, 1), self.frontiers.after
        yield f"(SELECT * FROM {new_table(relation)} WHERE ({self.kernel.end}) <= {high})"
        for name in (relation, settled(relation)):
            if (stored := self.state.scan(name, low, high)) is not None:
                yield in_one_table(self.state, f"SELECT * FROM {stored}", self.state.most_rows(name, low, high))

    def ended(self) -> str:
        """Return SQL for the groups that end, with numbers."""
        keys = ", ".join(map(quote, self.keys))
        rows = " UNION ALL ".join(f"SELECT {keys} FROM {part}" for part in self.parts_now(TOTALS))
        return f"SELECT row_number() OVER () AS {quote(GROUP)}, * FROM (SELECT DISTINCT {keys} FROM ({rows}))"

    def results_in_parts(self, ended: int) -> Iterator[str]:
        """Yield SQL for the results of so many groups that end; with little memory, of some after the other."""
        parts = ceil(self.due_bytes() / _PART_BYTES) if self.state.has_little_memory else 1
        if ended < api.MANY_ROWS or parts <= 1:
            yield self.results()
            return
        size = ceil(ended / parts)
        for first in range(1, ended + 1, size):
            self.numbered = f"(SELECT * FROM ended WHERE {quote(GROUP)} BETWEEN {first} AND {first + size - 1})"
            yield self.results()

    def due_bytes(self) -> int:
        """Return about how many bytes are stored of the groups that end."""
        low, high = shift(self.frontiers.before, 1), self.frontiers.after
        names = [name for each in (TOTALS, *(bag.name for bag in self.kernel.bags)) for name in (each, settled(each))]
        rows, due = (sum(self.state.most_rows(name, low, until) for name in names) for until in (FOREVER, high))
        return sum(self.state.stored_bytes(name, low) for name in names) * due // max(rows, 1)

    def results(self) -> str:
        """Return SQL for the results of the groups ``numbered``."""
        parts = [f"totals AS ({self.now_totals()})"]
        parts += [part for bag in self.kernel.bags for part in self.figures(bag)]
        parts.append(f"now AS ({self.now()})")
        items = [f"g.{quote(name)}" for name in self.keys] + [f"n.{quote(name)}" for name in self.outputs]
        joined = f"{self.numbered} AS g JOIN now AS n USING ({quote(GROUP)})"
        return f"WITH {', '.join(parts)} SELECT {', '.join(items)} FROM {joined}"
