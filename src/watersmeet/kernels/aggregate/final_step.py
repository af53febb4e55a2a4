"""One step of an aggregate whose groups have an end: each is emitted once, when it has come (kernel.py).

    arrived     = input rows that pass ``where``, with keys, totals and bag values computed
    new_<...>   = what the step adds to each relation, as in step.py
    ended       = the groups, new and stored, with F before < end <= F
    emit        + the results of these groups, from their new and stored rows
    each relation: new rows of groups that have not ended are stored; stored rows with end <= F are forgotten

Nothing is computed for a group before its end but sums of what has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.kernels.aggregate.step import GROUP, TOTALS, Step, new_table, settled
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult, in_one_table, made, quote, shift

if TYPE_CHECKING:
    from watersmeet.kernels.aggregate.kernel import Aggregate


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
            self.result.changes = made(self.state, self.results(), ended)
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

    def results(self) -> str:
        """Return SQL for the results of the groups that end."""
        parts = [f"totals AS ({self.now_totals()})"]
        parts += [part for bag in self.kernel.bags for part in self.figures(bag)]
        parts.append(f"now AS ({self.now()})")
        items = [f"g.{quote(name)}" for name in self.keys] + [f"n.{quote(name)}" for name in self.outputs]
        return f"WITH {', '.join(parts)} SELECT {', '.join(items)} FROM ended AS g JOIN now AS n USING ({quote(GROUP)})"
