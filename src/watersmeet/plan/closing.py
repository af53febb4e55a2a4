"""Which groups become final: those that contain a window, or an event time, that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.engine.specs import RowEnd
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.kernels.api import EmitMode
from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import GroupKey, LogicalQuery
from watersmeet.plan.logical.tree import Input, nullable


@dataclass(frozen=True, slots=True)
class Closing:
    """A key that closes its groups: once ``value + before_end <= F``, no row of the group can come.

    The value is that of the key in units of internal event time, and F the frontier of the ``input`` that it is
    computed from.
    """

    key: GroupKey
    input: int
    unit: TimeUnit
    before_end: int

    @property
    def lag(self) -> int:
        """How far the value of a group that changes, or becomes final, may lie behind the frontier."""
        return max(self.before_end - 1, 0)


def row_end(closing: Closing, input: Input) -> RowEnd | None:
    """When a row of a window is late: once the window has ended, however long ago the row's own time is."""
    column = closing.key.expression
    if not isinstance(column, exp.Column) or input.window_of(input.declared(column.name)) is None:
        return None
    return RowEnd(column.name, closing.unit.scale, closing.before_end)


def closing_of(query: LogicalQuery) -> Closing | None:
    """The key that closes the groups of an aggregation, or the partitions of window functions; None where none does.

    Windows close them; an event time that is no bound of a window, only where EMIT FINAL asks for it.
    """
    return min(closings_of(query), key=lambda each: each.before_end, default=None)


def _keys(query: LogicalQuery) -> Sequence[GroupKey]:
    if query.aggregation is not None:
        return query.aggregation.keys
    return query.over.partition if query.over is not None else ()


def closings_of(query: LogicalQuery) -> Iterator[Closing]:
    """All keys that close groups or partitions."""
    padded = nullable(query.root)
    for key in _keys(query):
        known = query.columns.get(key.expression.name) if isinstance(key.expression, exp.Column) else None
        if known is None or known.input in padded or lag_of(query.root, known.input) is None:
            continue
        input = query.inputs[known.input]
        if input.stream.changes:  # a retraction has the time of what it retracts, however old
            continue
        unit = input.time.unit
        if (window := input.window_of(known.column)) is not None:
            yield Closing(key, input.index, unit, window[0].before_end(window[1], unit))
        elif input.is_windowed or query.text.emit is EmitMode.FINAL:
            distance = input.distance_of(known.column)
            if distance is not None:
                yield Closing(key, input.index, unit, (unit.scale if unit.is_integer else 1) - distance)
