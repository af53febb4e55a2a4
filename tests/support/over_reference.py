"""Window functions over all rows at once, by what their words say. Kernels are tested against it.

It is slow on purpose and shares no code with the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """``function(x)`` over a frame, whose edges are distances from the current row: of rows or of ``by``, None: all."""

    function: str
    rows: bool = False
    start: int | None = None
    end: int = 0
    offset: int = 1

    def sql(self, over: str) -> str:
        """The call in SQL; ``over`` is PARTITION BY and ORDER BY."""
        frame = f" {'ROWS' if self.rows else 'RANGE'} BETWEEN {_edge(self.start)} AND {_edge(self.end)}"
        if self.function in ("row_number", "rank", "dense_rank"):
            return f"{self.function}() OVER ({over})"
        if self.function == "lag":
            return f"lag(x, {self.offset}) OVER ({over})"
        return f"{'count(*)' if self.function == 'count_all' else f'{self.function}(x)'} OVER ({over}{frame})"


def _edge(distance: int | None) -> str:
    if distance is None:
        return "UNBOUNDED PRECEDING"
    return "CURRENT ROW" if distance == 0 else f"{abs(distance)} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"


def value_of(call: Call, rows: Sequence[Row], at: int, place: Callable[[Row], Any], by: str) -> Any:
    """The value of the row ``at`` of a partition, whose ``rows`` are in an order without ties.

    ``place`` is what ORDER BY says of a row; distances of RANGE are those of its first term, the column ``by``.
    """
    row, here = rows[at], place(rows[at])
    match call.function:
        case "row_number":
            return at + 1
        case "rank":
            return 1 + sum(place(each) < here for each in rows)
        case "dense_rank":
            return len({place(each) for each in rows if place(each) <= here})
        case "lag":
            return rows[at - call.offset]["x"] if at >= call.offset else None

    def is_in(other: int) -> bool:
        if call.rows:
            return (call.start is None or other - at >= call.start) and other - at <= call.end
        if call.start is None:
            return bool(place(rows[other]) <= here)
        return bool(call.start <= rows[other][by] - row[by] <= call.end)

    frame = [rows[other]["x"] for other in range(len(rows)) if is_in(other)]
    return _FUNCTIONS[call.function](frame, [value for value in frame if value is not None])


#: By name, over the values of a frame, and over those that are not NULL.
_FUNCTIONS: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "count_all": lambda frame, known: len(frame),
    "count": lambda frame, known: len(known),
    "sum": lambda frame, known: sum(known) if known else None,
    "avg": lambda frame, known: sum(known) / len(known) if known else None,
    "min": lambda frame, known: min(known, default=None),
    "max": lambda frame, known: max(known, default=None),
    "first_value": lambda frame, known: frame[0] if frame else None,
    "last_value": lambda frame, known: frame[-1] if frame else None,
}
