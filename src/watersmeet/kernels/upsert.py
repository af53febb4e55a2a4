"""Upsert: turns a changing stream into a changelog, -1 of the replaced row and +1 of the row that replaces it.

Which row of a key holds, and what filters and tombstones do: see changelog/newest.py.

Emits      for each key whose row differs after the step, the old row with -1 and the new row with +1.  Both carry
           the ``$id`` by which a following join retracts the old row
Late rows  only if the stream declares a WATERMARK
Final      never: a newer row of the key may still arrive
State      one row per key

Example: (k, 1) at 10:00 and (k, 2) at 10:05 in two steps emit + (k, 1), then - (k, 1) and + (k, 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, made, quote
from watersmeet.kernels.changelog.newest import OLD, OLD_THERE, SAME, THERE, Newest, passed_tombstones
from watersmeet.kernels.changelog.stored_rows import StoredRows
from watersmeet.kernels.homes import Homes
from watersmeet.kernels.match import number_rows

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Upsert:
    """The kernel; it emits its one input's rows with the columns of ``output``.

    ``time`` names the event time in results.
    """

    newest: Newest
    output: tuple[str, ...]
    time: str

    @property
    def partition_width(self) -> int | None:
        """None: rows have no bound in time."""
        return None

    @property
    def homes(self) -> Homes | None:
        """The newest changes, and the log of those that they replaced."""
        return StoredRows.homes_of(_ROWS)

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the newest change of every key."""
        return {_ROWS: NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Emit the rows that hold now, and retract those that they replace."""
        stored, result = StoredRows(state, _ROWS), StepResult()
        changes = number_rows(inputs[0], first_rid)
        emitted = tuple(TIME if name == self.time else name for name in self.output)
        result.counters = self.newest.find(stored, changes, emitted, "winning")
        differs = f"NOT {quote(SAME)}"
        went = f"SELECT {quote(OLD)} FROM winning WHERE {quote(OLD_THERE)} AND {differs}"
        result.changes = made(
            state,
            f"{self._results('winning_current', -1)} WHERE {quote(RID)} IN ({went}) UNION ALL "
            f"{self._results('winning', 1)} WHERE {quote(THERE)} AND {differs}",
            changes.num_rows,
        )
        columns = dict.fromkeys((RID, ID, TIME, THERE, *self.newest.stored, *emitted))
        result.store = {
            stored.relation: state.query(f"SELECT {', '.join(map(quote, columns))} FROM winning"),
            stored.gone: state.query(
                f"SELECT {quote(OLD)} AS {quote(RID)}, {quote(TIME)} FROM winning WHERE {quote(OLD)} IS NOT NULL"
            ),
        }
        stored.rewrite_if_due(result, "TRUE", passed_tombstones(frontiers.after))
        return result

    def _results(self, rows: str, weight: int) -> str:
        columns = [f"{quote(TIME if name == self.time else name)} AS {quote(name)}" for name in self.output]
        columns += [f"CAST({weight} AS TINYINT) AS {quote(WEIGHT)}", quote(ID)]
        return f"SELECT {', '.join(columns)} FROM {rows}"
