"""Windows that rows close for themselves, as in ``b.ts BETWEEN a.ts AND a.expires``.

The last time at which a row may find a partner is computed from its own columns.  The row is stored under that time:
its ``$t`` is the expiry, and its event time is a column like others.  So it is final once ``$t < F``, and falls out of
the state with its partition, whatever its event time was.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER, Side, StateView, quote
from watersmeet.kernels.match import MatchOrAlternative, WindowMatch, clamped, time_range

_EXPIRY = "$expiry"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringMatch(MatchOrAlternative):
    """A windowed join with a side, or two, whose rows expire.

    ``expiries``: for each side, DuckDB SQL over a row, a HUGEINT: the last event time of a partner, NULL if there is
    none.  None instead of SQL: the side's rows do not expire, and bounds decide.  ``times`` name both event times.
    """

    expiries: tuple[str | None, str | None]
    times: tuple[str, str]

    def expires(self, side: Side) -> bool:
        """Whether the rows of a side are stored under the time at which they expire."""
        return self.expiries[side.index] is not None

    def time_column(self, side: Side) -> str:
        """Return the column that has the event time of a side's rows."""
        return self.times[side.index] if self.expires(side) else TIME

    def arriving(self, side: Side, rows: pa.Table, state: StateView) -> pa.Table:
        """Return new rows with the time at which they expire as ``$t``; NULL: they match nothing."""
        computed = self.expiries[side.index]
        if computed is None:
            return rows
        expiry = quote(_EXPIRY)
        return state.query(
            f"SELECT * EXCLUDE ({expiry}) REPLACE ({clamped(expiry)} AS {quote(TIME)}),"
            f" {quote(TIME)} AS {quote(self.times[side.index])}"
            f" FROM (SELECT *, {computed} AS {expiry} FROM {state.register(rows)})"
        )

    @property
    def partition_width(self) -> int | None:
        """A width that is widened to the rows there are (state/compaction_plan.py): expiries may be any time ahead."""
        closes = self.expires(Side.LEFT) or self.upper is not None, self.expires(Side.RIGHT) or self.lower is not None
        return max(self.slack // 8, 1) if all(closes) else None

    def closed_before(self, side: Side, frontier: int) -> int:
        """Return the ``$t`` below which rows of a side have all their partners at ``frontier``."""
        return frontier if self.expires(side) else WindowMatch.closed_before(self, side, frontier)

    def partner_times(self, side: Side, others: pa.Table) -> tuple[int, int]:
        """Return the least and greatest ``$t`` of a side's rows that may match some rows of the other side."""
        low, high = time_range(others, self.time_column(side.other))
        if self.expires(side):
            return (low, FOREVER) if low <= high else (FOREVER, NEVER)
        first, last = self.times_between(side, low, high)
        return (first, min(last, time_range(others)[1])) if self.expires(side.other) else (first, last)
