"""Window functions in the order of event time: whether each row's values are final once the frontier has passed it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from watersmeet.plan.logical.lags import lag_of
from watersmeet.plan.logical.query import LogicalQuery, OverCall
from watersmeet.plan.logical.tree import changing, nullable


@dataclass(frozen=True, slots=True)
class InTime:
    """The event time that orders rows first: the ``column`` of an ``input``."""

    input: int
    column: str


def in_time(query: LogicalQuery) -> InTime | None:
    """The event time in whose order the window functions of a query are computed, if all its values become final."""
    return None if obstacle(query) is not None else _time(query)


def obstacle(query: LogicalQuery) -> str | None:
    """Why values of window functions change with later rows; None where they do not."""
    over = query.over
    if over is None:
        return "there are no window functions"
    if changed := changing(query.root):
        return f"rows of {changed[0].alias} change"
    if _time(query) is None:
        return "its order does not begin with an event time, ascending, so rows may come before those that are there"
    return next((reason for call in over.calls if (reason := _obstacle_of(call)) is not None), None)


def _obstacle_of(call: OverCall) -> str | None:
    if call.function == "lead" and call.offset:
        return f"{call.text} reads a row that comes later"
    if call.frame is not None and (call.frame.end is None or call.frame.end > 0):
        return f"{call.text} reads rows that come later"
    if call.frame is not None and call.frame.start is None and call.frame.end != 0:
        return f"{call.text} begins with the partition, and then has to end with the CURRENT ROW"
    return None


def _time(query: LogicalQuery) -> InTime | None:
    over = query.over
    if over is None or not over.by:
        return None
    term, descending = over.by[0]
    known = query.columns.get(term.name) if isinstance(term, exp.Column) else None
    if known is None or descending or known.input in nullable(query.root):
        return None
    input = query.inputs[known.input]
    if not input.is_time(known.column) or lag_of(query.root, known.input) is None:
        return None
    return InTime(known.input, known.column)
