"""The matches of a small step of the interval join, in Arrow: what follows from a few pairs needs no statement.

Where pairs or stored rows are many, interval_step.py has the same computed by DuckDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import MATCHED, RID, TIME
from watersmeet.kernels.api import Side, StateView, StepFrontiers
from watersmeet.kernels.match import WindowMatch, marks_of, time_range

_MARKS = pa.schema([(RID, pa.int64()), (TIME, pa.int64())])


@dataclass(frozen=True, slots=True)
class FewMatches:
    """What a step has ``found``: pairs, or for a semi or anti join the left rows with a partner.

    For each side that tracks matches they have its row's id, its time and whether it had a partner before: ``lid``,
    ``ltime`` and ``lhad``, or ``rid``, ``rtime`` and ``rhad``.  New rows have ids from ``first_rid`` on.
    """

    match: WindowMatch
    state: StateView
    frontiers: StepFrontiers
    new: dict[Side, pa.Table]
    first_rid: int
    found: pa.Table

    def ids(self, side: Side) -> pa.ChunkedArray:
        """The ids of rows with a partner in this step."""
        return self.found[f"{side.alias}id"]

    def marks(self, side: Side) -> pa.Table | None:
        """Marks of stored rows that have their first partner and are not final yet; None if old marks are many."""
        ids, times = self.ids(side), self.found[f"{side.alias}time"]
        earlier = self.state.few_rows(marks_of(side), *time_range(self.found, f"{side.alias}time"))
        if earlier is None:
            return None
        is_first = pc.and_(pc.less(ids, self.first_rid), pc.invert(self.found[f"{side.alias}had"]))
        is_first = pc.and_(is_first, _not_in(ids, *(rows[RID] for rows in earlier)))
        is_first = pc.and_(is_first, pc.greater_equal(times, self.match.closed_before(side, self.frontiers.after)))
        unique, places = np.unique(ids.filter(is_first).to_numpy(), return_index=True)
        return pa.table([unique, times.filter(is_first).take(places)], schema=_MARKS)

    def padded(self, sides: Sequence[Side]) -> list[pa.Table] | None:
        """What EMIT FINAL gives beside ``found`` pairs: rows that are final now and have no partner, beside NULLs.

        None if stored rows or marks of that time are many.
        """
        padded = []
        for side in sides:
            stored = self._stored_without_partner(side)
            if stored is None:
                return None
            alone = [rows for rows in (self._new_without_partner(side), *stored) if rows.num_rows]
            padded += [self._beside_nulls(side, rows) for rows in alone]
        return padded

    def _new_without_partner(self, side: Side) -> pa.Table:
        rows = self.new[side]
        is_final = pc.fill_null(pc.less(rows[TIME], self.match.closed_before(side, self.frontiers.after)), True)
        return rows.filter(pc.and_(is_final, _not_in(rows[RID], self.ids(side))))

    def _stored_without_partner(self, side: Side) -> list[pa.Table] | None:
        due = self.match.due_times(side, self.frontiers)
        stored = self.state.few_rows(side.value, *due)
        marks = self.state.few_rows(marks_of(side), *due)
        if stored is None or marks is None:
            return None
        matched = [self.ids(side), *(rows[RID] for rows in marks)]
        return [rows.filter(pc.and_(pc.invert(rows[MATCHED]), _not_in(rows[RID], *matched))) for rows in stored]

    def _beside_nulls(self, side: Side, rows: pa.Table) -> pa.Table:
        """The rows as results, of the types that pairs have."""
        own = self.match.columns(side)
        named = rows.rename_columns([own.time if name == TIME and own.time else name for name in rows.column_names])
        schema = self.found.select(list(self.match.output)).schema
        columns = [
            named[field.name] if field.name in own.output else pa.nulls(rows.num_rows, field.type) for field in schema
        ]
        return pa.table(columns, names=schema.names).cast(schema)


def _not_in(ids: pa.ChunkedArray, *known: pa.ChunkedArray) -> pa.ChunkedArray:
    """A mask of the ids that are none of the known ones."""
    chunks = [chunk for each in known for chunk in each.chunks]
    return pc.invert(pc.is_in(ids, value_set=pa.chunked_array(chunks, pa.int64())))
