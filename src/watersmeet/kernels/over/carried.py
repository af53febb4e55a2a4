"""Running values over all rows of a partition so far: what is kept of them from step to step.

kept of the partition   c     count 3, sum 12
rows that are due       f     1, 5, 2
count                         c + (1, 2, 3)   = 4, 5, 6      now 6
sum                           c + (1, 6, 8)   = 13, 18, 20   now 20
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import RID
from watersmeet.kernels.api import quote

#: Functions that number rows, whatever their arguments.
RANKS = ("row_number", "rank", "dense_rank")
_LESS = {"min": "<", "max": ">"}


@dataclass(frozen=True, slots=True)
class Running:
    """A value over all rows of a partition up to the current one: the column ``name``, of a ``type``.

    ``function`` is its name in DuckDB, ``argument`` SQL over kept columns (None: ranks and ``count(*)``), and
    ``adds_as`` the type in which arguments are added up.  If ``by_rows``, the value ends with the row itself,
    otherwise with the rows of the same place in the order.
    """

    name: str
    function: str
    argument: str | None
    by_rows: bool
    type: pa.DataType
    sql_type: str
    adds_as: str = ""

    @property
    def frame(self) -> str:
        """The frame of its value over the rows that are due; ranks have none."""
        if self.function in RANKS:
            return ""
        return f"{'ROWS' if self.by_rows else 'RANGE'} BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"

    def totals(self, place: str, order: str) -> list[tuple[str, str]]:
        """What is kept of it, over due rows: columns and aggregates; ``place`` is a row's place in the ``order``."""
        match self.function:
            case "dense_rank":
                return [(self._kept(0), f"count(DISTINCT {place})")]
            case "first_value":
                return [(self._kept(0), f"first({self.argument} ORDER BY {order})")]
            case "row_number" | "rank":
                return [(self._kept(0), "count(*)")]
            case _:
                return [(self._kept(i), self._aggregate(part)) for i, part in enumerate(self._parts)]

    def over_due(self, over: str) -> list[tuple[str, str]]:
        """The same for each due row, as columns and window functions."""
        if self.function in RANKS:
            return [(self._now(0), f"{self.function}() {over}")]
        if self.function == "first_value":
            return [(self._now(0), f"first_value({self.argument}) {over}")]
        return [(self._now(i), self._aggregate(part, over)) for i, part in enumerate(self._parts)]

    @property
    def value(self) -> str:
        """SQL of the value of a due row ``f`` of a partition of which ``c`` is kept."""
        parts = [self._together(part, f"f.{quote(self._now(i))}", i) for i, part in enumerate(self._parts)]
        if self.function == "avg":
            return f"CAST({parts[0]} AS DOUBLE) / nullif({parts[1]}, 0)"
        return f"CAST({parts[0]} AS {self.sql_type})" if self.sql_type else parts[0]

    def kept_now(self) -> list[tuple[str, str]]:
        """What is kept with the due rows: columns, and SQL over totals ``f`` of them and what was kept, ``c``."""
        return [
            (self._kept(i), self._together(part, f"f.{quote(self._kept(i))}", i)) for i, part in enumerate(self._parts)
        ]

    @property
    def _parts(self) -> tuple[str, ...]:
        return ("sum", "count") if self.function == "avg" else (self.function,)

    def _aggregate(self, part: str, over: str = "") -> str:
        value = f"{part}({self.argument or '*'}) {over}"
        return f"CAST({value} AS {self.adds_as})" if part == "sum" else value

    def _together(self, part: str, due: str, place: int) -> str:
        kept = f"c.{quote(self._kept(place))}"
        if part in _LESS:
            is_due = f"{kept} IS NULL OR {due} {_LESS[part]} {kept}"
            return f"CASE WHEN {due} IS NOT NULL AND ({is_due}) THEN {due} ELSE {kept} END"
        if part == "first_value":
            return f"CASE WHEN c.{quote(RID)} IS NULL THEN {due} ELSE {kept} END"
        return f"coalesce({kept} + {due}, {kept}, {due})"

    def _kept(self, place: int) -> str:
        return f"{self.name}_{place}"

    def _now(self, place: int) -> str:
        return f"{self.name}_due{place}"


def totals_of(values: Sequence[Running], place: str, order: str) -> list[str]:
    """Return SQL items for what is kept of values, over due rows."""
    return [f"{sql} AS {quote(name)}" for each in values for name, sql in each.totals(place, order)]
