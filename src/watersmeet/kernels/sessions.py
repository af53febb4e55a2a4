"""Sessions: the rows of a key between two pauses that are longer than a gap.

Matches     rows of a key belong to one session if no two neighbours are more than ``gap`` apart: one that comes exactly
            ``gap`` after the last one continues its session, as in Spark and Flink
Emits       each row once its session is final, with the session's bounds: its first time, and its last one + gap
NULLs       in the keys form one key
Late rows   never reach the kernel
Final       end < F: a row at F would not continue it
State       the rows of sessions that are not final

    gap 5: rows at 1, 4, 20 arrive, F = 12     ⇒  the rows at 1 and 4, in [1, 9)
    a row at 25 arrives, F = 25                ⇒  nothing: 20 and 25 are one session, [20, 30)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, in_one_table, made, quote, shift
from watersmeet.kernels.changelog.stored_rows import StoredRows
from watersmeet.kernels.homes import Homes
from watersmeet.kernels.match import number_rows

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Sessions:
    """The kernel; ``keys`` are (name, SQL over the input rows, type), ``output`` (name, SQL) of the rows' columns.

    ``bounds`` are (name, SQL, type) of columns with a session's bounds; the SQL reads its start ``s`` and end ``e``.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    output: tuple[tuple[str, str], ...]
    bounds: tuple[tuple[str, str, pa.DataType], ...]
    gap: int
    where: str | None = None

    @property
    def partition_width(self) -> int | None:
        """None: a session may be of any length."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Rows have the columns of the keys; without keys there is one bucket."""
        return StoredRows.homes_of(_ROWS) if self.keys else None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the rows of sessions that are not final."""
        return {_ROWS: NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Store the new rows; emit those whose sessions have become final."""
        stored, result = StoredRows(state, _ROWS), StepResult()
        arrived = self._arrived(state, inputs[0], first_rid)
        if frontiers.before == frontiers.after:  # no row on time belongs to a session that was final before
            result.store[stored.relation] = arrived
            return result
        new = state.register(arrived)
        rid, time = quote(RID), quote(TIME)
        parts = [f"SELECT * FROM {new}"]
        columns = ", ".join((*(quote(name) for name, _, _ in self.keys), *self._kept, rid, time))
        high = shift(frontiers.after, -1)  # a row that continues a session whose end < F comes before F
        if (held := stored.between(NEVER, high)) is not None:
            parts.append(f"SELECT {columns} FROM {held}")
        rows = in_one_table(state, " UNION ALL ".join(parts), inputs[0].num_rows + state.most_rows(_ROWS, NEVER, high))
        due = f"SELECT * FROM ({self._with_bounds(rows)}) WHERE e < {frontiers.after}"
        ended = state.tables.make("ended", due)
        items = [f"{kept} AS {quote(name)}" for kept, (name, _) in zip(self._kept, self.output, strict=True)]
        items += [f"{sql} AS {quote(name)}" for name, sql, _ in self.bounds]
        result.changes = made(state, f"SELECT {', '.join(items)} FROM ended", ended)
        gone = f"SELECT {rid} FROM ended"
        result.store[stored.relation] = state.query(f"SELECT * FROM {new} WHERE {rid} NOT IN ({gone})")
        result.store[stored.gone] = state.query(
            f"SELECT {rid}, {time} FROM ended WHERE {rid} NOT IN (SELECT {rid} FROM {new})"
        )
        stored.rewrite_if_due(result, "TRUE")
        return result

    @property
    def _kept(self) -> tuple[str, ...]:
        """The quoted names under which result columns are stored: another column may have their own."""
        return tuple(quote(f"={name}") for name, _ in self.output)

    def _arrived(self, state: StateView, rows: pa.Table, first_rid: int) -> pa.Table:
        items = [f"{sql} AS {quote(name)}" for name, sql, _ in self.keys]
        items += [f"{sql} AS {kept}" for kept, (_, sql) in zip(self._kept, self.output, strict=True)]
        arriving = state.register(number_rows(rows, first_rid))
        where = self.where or "TRUE"
        return state.query(f"SELECT {', '.join((*items, quote(RID), quote(TIME)))} FROM {arriving} WHERE {where}")

    def _with_bounds(self, rows: str) -> str:
        """Return SQL for rows with the start ``s`` and the end ``e`` of their sessions, of which each has a number."""
        time = quote(TIME)
        by = ", ".join(quote(name) for name, _, _ in self.keys)
        partition = f"PARTITION BY {by} " if by else ""
        in_order = f"OVER ({partition}ORDER BY {time}, {quote(RID)})"
        begins = f"CASE WHEN {time} - lag({time}) {in_order} <= {self.gap} THEN 0 ELSE 1 END AS begins"
        numbered = f"SELECT *, sum(begins) {in_order} AS number FROM (SELECT *, {begins} FROM {rows})"
        session = f"OVER (PARTITION BY {', '.join((by, 'number') if by else ('number',))})"
        return f"SELECT *, min({time}) {session} AS s, max({time}) {session} + {self.gap} AS e FROM ({numbered})"
