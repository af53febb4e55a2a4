"""The normaliser: a stream that changes as a changelog, -1 of the row that held and +1 of the row that holds now.

What holds, what is older, filters and tombstones: see changelog/newest.py.

Comes out  for each key whose row is another one after the step: the old row with -1, the new one with +1, under ids by
           which a join that follows takes the old one back
Late rows  where the stream declares a WATERMARK; else no row is late
State      one row a key
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.changelog.newest import OLD, OLD_THERE, SAME, THERE, Newest, passed_tombstones
from watersmeet.kernels.changelog.stored import StoredRows
from watersmeet.kernels.match import number_rows

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Upsert:
    """The kernel; its one input's rows come out with the columns of ``output``.

    ``time`` is the name under which results carry the event time.
    """

    newest: Newest
    output: tuple[str, ...]
    time: str

    @property
    def partition_width(self) -> int | None:
        """Rows have no bound in time."""
        return None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """The newest change of every key."""
        return {_ROWS: NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Give what holds now in place of what held."""
        try:
            return self._applied(StoredRows(state, _ROWS), number_rows(inputs[0], first_rid), frontiers)
        finally:
            for name in ("winning", "winning_current", "winning_latest"):
                state.connection.execute(f"DROP TABLE IF EXISTS {name}")

    def _applied(self, stored: StoredRows, changes: pa.Table, frontiers: StepFrontiers) -> StepResult:
        result = StepResult()

        def fetch(sql: str) -> pa.Table:
            return stored.state.connection.sql(sql).to_arrow_table()

        shown = tuple(TIME if name == self.time else name for name in self.output)
        result.counters = self.newest.find(stored, changes, shown, "winning")
        differs = f"NOT {quote(SAME)}"
        went = f"SELECT {quote(OLD)} FROM winning WHERE {quote(OLD_THERE)} AND {differs}"
        result.changes = fetch(
            f"{self._results('winning_current', -1)} WHERE {quote(RID)} IN ({went}) UNION ALL "
            f"{self._results('winning', 1)} WHERE {quote(THERE)} AND {differs}"
        )
        columns = dict.fromkeys((RID, ID, TIME, THERE, *self.newest.stored, *shown))
        result.store = {
            stored.relation: fetch(f"SELECT {', '.join(map(quote, columns))} FROM winning"),
            stored.gone: fetch(
                f"SELECT {quote(OLD)} AS {quote(RID)}, {quote(TIME)} FROM winning WHERE {quote(OLD)} IS NOT NULL"
            ),
        }
        stored.write_anew(result, "TRUE", passed_tombstones(frontiers.after))
        return result

    def _results(self, rows: str, weight: int) -> str:
        columns = [f"{quote(TIME if name == self.time else name)} AS {quote(name)}" for name in self.output]
        columns += [f"CAST({weight} AS TINYINT) AS {quote(WEIGHT)}", quote(ID)]
        return f"SELECT {', '.join(columns)} FROM {rows}"
