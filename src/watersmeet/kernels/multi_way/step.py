"""One step of the multi-way join, as DuckDB SQL over new and stored rows (join.py says what it computes)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult
from watersmeet.kernels.multi_way.match import MultiWayMatch


def relation(input: int) -> str:
    """Return the name of the relation that stores an input's rows."""
    return f"input_{input}"


def run(match: MultiWayMatch, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers) -> StepResult:
    """Form the results that have a new row, and store the new rows that may be in later ones."""
    step = _Step(match, state, inputs)
    result = StepResult(changes=state.query(" UNION ALL ".join(step.terms()) or step.nothing()))
    for number, input in enumerate(match.inputs):
        closed = match.closed_before(number, frontiers.after)
        rows = inputs[number].select([*input.stored, TIME])
        result.store[relation(number)] = rows.filter(pc.greater_equal(rows[TIME], closed))
        result.forget[relation(number)] = closed
    return result


@dataclass(slots=True)
class _Step:
    """New rows, and the stored rows that may form a result with them."""

    match: MultiWayMatch
    state: StateView
    new: Mapping[int, pa.Table]
    fresh: dict[int, str] = field(default_factory=dict)
    old: dict[int, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for input in range(len(self.match.inputs)):
            times = self.match.partner_times(input, self.new)
            probes = self.match.probes(input, self.new)
            self.fresh[input] = self.state.register(self.new[input])
            self.old[input] = (
                self.state.rows_with_keys(relation(input), self.match.inputs[input].keys, probes, *times)
                if any(rows.num_rows for other, rows in self.new.items() if other != input)
                else None
            )

    def terms(self) -> Iterator[str]:
        """Yield SQL for the results whose first new row is one of each input."""
        for newest in range(len(self.match.inputs)):
            if self.new[newest].num_rows and (relations := self.relations(newest)) is not None:
                yield self.join(newest, relations)

    def relations(self, newest: int) -> dict[int, str] | None:
        """Return the rows of each input that join with new rows of one; None where an input has none."""
        found = {}
        for input in range(len(self.match.inputs)):
            stored = [old] if input != newest and (old := self.old[input]) is not None else []
            added = [self.fresh[input]] if input >= newest and self.new[input].num_rows else []
            if not (stored or added):
                return None
            found[input] = " UNION ALL ".join(self.match.rows_sql(input, rows) for rows in (*stored, *added))
        return found

    def join(self, newest: int, relations: Mapping[int, str]) -> str:
        """Return SQL that probes the other inputs, one after the other, with the new rows of one."""
        joined = [newest]
        text = f"SELECT {self.match.output_sql} FROM ({relations[newest]})"
        for input in relations:
            if input != newest:
                text += f" JOIN ({relations[input]}) ON {self.match.condition_sql(joined, input)}"
                joined.append(input)
        return text

    def nothing(self) -> str:
        """Return SQL for no result, with the columns of one."""
        joined = " CROSS JOIN ".join(f"({self.match.rows_sql(input, rows)})" for input, rows in self.fresh.items())
        return f"SELECT {self.match.output_sql} FROM {joined} WHERE FALSE"
