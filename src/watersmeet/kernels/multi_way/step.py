"""One step of the multi-way join, as DuckDB SQL over new and stored rows (join.py says what it computes)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.multi_way.match import MultiWayMatch


def relation(input: int) -> str:
    """Return the name of the relation that stores an input's rows."""
    return f"input_{input}"


def run(match: MultiWayMatch, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers) -> StepResult:
    """Form the results that are new in this step, and store the new rows that may be in later ones."""
    step = _Step(match, state, inputs, frontiers)
    result = StepResult(changes=state.query(" UNION ALL ".join(step.terms()) or step.nothing()))
    for number, input in enumerate(match.inputs):
        closed = match.closed_before(number, frontiers.after)
        rows = inputs[number].select([*input.stored, TIME])
        result.store[relation(number)] = rows.filter(pc.greater_equal(rows[TIME], closed))
        result.forget[relation(number)] = closed
    return result


@dataclass(slots=True)
class _Step:
    """New rows, the stored rows that may form a result with them, and those that are padded from this step on."""

    match: MultiWayMatch
    state: StateView
    new: Mapping[int, pa.Table]
    frontiers: StepFrontiers
    fresh: dict[int, str] = field(default_factory=dict)
    old: dict[int, str | None] = field(default_factory=dict)
    due: dict[int, str] = field(default_factory=dict)  # by optional input: stored first rows that lack it from now on

    def __post_init__(self) -> None:
        for input, joined in enumerate(self.match.inputs):
            times = self.match.due_times(input, self.frontiers.before, self.frontiers.after)
            if joined.optional and times[0] <= times[1] and (rows := self.state.scan(relation(0), *times)) is not None:
                self.due[input] = rows
        due = self.due_rows()
        for input in range(len(self.match.inputs)):
            self.fresh[input] = self.state.register(self.new[input])
            self.old[input] = self.stored(input, due)

    def due_rows(self) -> pa.Table | None:
        """Return keys and times of the stored first rows that are due."""
        if not self.due:
            return None
        columns = ", ".join(quote(name) for name in (*self.match.inputs[0].keys, TIME))
        return self.state.query(" UNION ALL ".join(f"SELECT {columns} FROM {rows}" for rows in self.due.values()))

    def stored(self, input: int, due: pa.Table | None) -> str | None:
        """Return SQL for the stored rows of an input that this step reads, with others of their keys."""
        is_probed = any(rows.num_rows for other, rows in self.new.items() if other != input)
        if not is_probed and (due is None or input == 0):
            return None
        probes = self.match.probes(input, self.new, due)
        times = self.match.partner_times(input, self.new, due)
        return self.state.rows_with_keys(relation(input), self.match.inputs[input].keys, probes, *times)

    # -- results ---------------------------------------------------------------------------------------------------

    def terms(self) -> Iterator[str]:
        """Yield SQL for the results that each input is the first to have something new for: a row, or a padding."""
        for first, input in enumerate(self.match.inputs):
            if self.new[first].num_rows and (joined := self.joined(first)) is not None:
                yield joined
            if input.optional and first in self.due and (joined := self.joined(first, pads=True)) is not None:
                yield joined

    def joined(self, first: int, *, pads: bool = False) -> str | None:
        """Return SQL for results of old rows before ``first``, of a new one of it, and of any rows after it.

        With ``pads``, the results lack a row of ``first``, and could have had one until this step.  None where there
        can be no result.
        """
        text = ""
        joined: list[int] = []
        for number in self.probe_order(first):
            rows = self.rows(number, is_old=number < first, is_new=number == first and not pads)
            if pads and number == 0:
                rows = self.match.rows_sql(0, self.due[first])
            must_match = self.must_match(number, first, pads=pads)
            if rows is None and must_match:
                return None
            rows = rows or f"{self.match.rows_sql(number, self.fresh[number])} WHERE FALSE"
            if not joined:
                text = f"FROM ({rows})"
            elif must_match:
                text += f" JOIN ({rows}) ON {self.match.condition_sql(joined, number)}"
            else:
                kept = self.kept(number, is_old=number < first, is_due=number == first)
                on = self.match.condition_sql(joined, number)
                padded = f"SELECT * {text} LEFT JOIN ({rows}) ON {on} WHERE {kept}"
                if any(self.must_match(later, first, pads=pads) for later in range(number + 1, len(self.match.inputs))):
                    # DuckDB 2.0 would move conditions of that join into this one, and fail if a column is always NULL
                    padded = f"WITH padded AS MATERIALIZED ({padded}) SELECT * FROM padded"
                text = f"FROM ({padded})"
            joined.append(number)
        return f"SELECT {self.match.output_sql} {text}"

    def must_match(self, input: int, first: int, *, pads: bool) -> bool:
        """Return whether results that ``first`` is the first to have something new for must have a row of an input."""
        return not self.match.inputs[input].optional or (input == first and not pads)

    def probe_order(self, first: int) -> list[int]:
        """Return the inputs in the order in which they are joined: of inner joins, the new rows first."""
        inputs = range(len(self.match.inputs))
        return [*inputs] if self.match.pads else [first, *(input for input in inputs if input != first)]

    def rows(self, input: int, *, is_old: bool, is_new: bool) -> str | None:
        """Return SQL for the rows of an input: old ones, new ones, or both; None if there are none."""
        stored = [old] if not is_new and (old := self.old[input]) is not None else []
        added = [self.fresh[input]] if not is_old and self.new[input].num_rows else []
        return " UNION ALL ".join(self.match.rows_sql(input, rows) for rows in (*stored, *added)) or None

    def kept(self, input: int, *, is_old: bool, is_due: bool) -> str:
        """Return which rows stay after a LEFT JOIN: those that match, and those that are padded for good."""
        lacks = f"{quote(self.match.inputs[input].time)} IS NULL"
        before, after = (
            self.match.is_final_sql(input, frontier) for frontier in (self.frontiers.before, self.frontiers.after)
        )
        if is_due:
            return f"{lacks} AND {after} AND NOT {before}"
        return f"NOT {lacks} OR {before if is_old else after}"

    def nothing(self) -> str:
        """Return SQL for no result, with the columns of one."""
        joined = " CROSS JOIN ".join(f"({self.match.rows_sql(input, rows)})" for input, rows in self.fresh.items())
        return f"SELECT {self.match.output_sql} FROM {joined} WHERE FALSE"
