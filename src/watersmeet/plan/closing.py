"""Which groups become final: those of a window that has ended, of an event time, or of what rises with one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.engine.specs import RowEnd
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.api import FOREVER, NEVER, EmitMode, quote
from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import GroupKey, LogicalQuery
from watersmeet.plan.logical.tree import Input, InputColumn, nullable
from watersmeet.plan.rising import Rising, as_number, rising_of


@dataclass(frozen=True, slots=True)
class Closing:
    """A key that closes its groups: once ``value + before_end <= F``, no row of the group can come.

    The value is that of the ``column`` in units of internal event time, and F the frontier of its ``input``.  The key
    is the column, or ``rising`` with it: then the value is the last at which the function has the key's value.
    """

    key: GroupKey
    column: InputColumn
    unit: TimeUnit
    before_end: int
    rising: Rising | None = None

    @property
    def input(self) -> int:
        """The input whose frontier counts."""
        return self.column.input

    @property
    def is_time(self) -> bool:
        """Whether the key's values are event times, of which those of a group are not later than its end."""
        return self.rising is None or self.rising.cuts

    @property
    def width(self) -> int:
        """How long before its end a group may begin, or, if it is a time, its value may lie, at most."""
        if self.rising is None:
            return self.before_end
        longest = self.rising.width if self.rising.reach is None else self.rising.reach
        return self.before_end + (longest - 1) * (self.unit.scale if self.unit.is_integer else 1)

    @property
    def zoned(self) -> exp.Expr | None:
        """What of the key depends on the session's time zone, if anything."""
        return None if self.rising is None else self.rising.zoned

    @property
    def lag(self) -> int:
        """How far the value of a group that changes, or becomes final, may lie behind the frontier."""
        return max(self.width - 1, 0)

    def end(self, key: str) -> str:
        """DuckDB SQL over a key: the internal event time from which on no row of its group comes."""
        return self._end(as_number(key, self.key.type) if self.rising is None else f"{self.rising.above(key)} - 1")

    def _end(self, number: str) -> str:
        """The same for a number that the column reaches last."""
        scaled = f"({number}) * {self.unit.scale}" if self.unit.is_integer else number
        return f"CAST(greatest(least({scaled} + {self.before_end}, {FOREVER - 1}), {NEVER + 1}) AS BIGINT)"

    def row_end(self, input: Input) -> RowEnd | None:
        """When a row is late: once its group has ended, however long ago the row's own time is.

        None for a group of one time, which ends with it.
        """
        name, kind = self.column.name, self.column.type
        if self.rising is not None:
            return RowEnd(name, self._end(f"{self.rising.above_own(quote(name), kind)} - 1"))
        if input.window_of(self.column.column) is None:
            return None
        return RowEnd(name, self._end(as_number(quote(name), kind)))


def closing_of(query: LogicalQuery) -> Closing | None:
    """The key that closes the groups of an aggregation, or the partitions of window functions; None where none does.

    Windows close them; an event time that is no bound of a window, or a function of a time, only where EMIT FINAL asks
    for it, there or, for aggregates, of a query above.
    """
    return min(closings_of(query), key=lambda each: (each.zoned is not None, each.width), default=None)


def _keys(query: LogicalQuery) -> Sequence[GroupKey]:
    if query.aggregation is not None:
        return query.aggregation.keys
    return query.over.partition if query.over is not None else ()


def closings_of(query: LogicalQuery) -> Iterator[Closing]:
    """All keys that close groups or partitions."""
    padded = nullable(query.root)
    is_final = query.text.emit is EmitMode.FINAL or (query.text.within_final and query.aggregation is not None)
    for key in _keys(query):
        rising = None
        name = key.expression.name if isinstance(key.expression, exp.Column) else None
        if name is None and is_final and query.aggregation is not None and query.aggregation.calls:
            rising = rising_of(key.expression, query.columns)
            name = None if rising is None else rising.name
        known = None if name is None else query.columns.get(name)
        if known is None or known.input in padded or lag_of(query.root, known.input) is None:
            continue
        input = query.inputs[known.input]
        if input.stream.changes:  # a retraction has the time of what it retracts, however old
            continue
        unit, found = input.time.unit, None
        if rising is None and (window := input.window_of(known.column)) is not None:
            found = window[0].before_end(window[1], unit)
        elif (input.is_windowed or is_final) and (distance := input.distance_of(known.column)) is not None:
            found = (unit.scale if unit.is_integer else 1) - distance
        if found is not None:
            yield Closing(key, known, unit, found, rising)
