"""The frame of a window function: which rows around its own it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.times import interval_micros
from watersmeet.expressions.type_groups import NUMBERS
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import Frame
from watersmeet.plan.logical.tree import Input, InputColumn

_TIMES = exp.DataType.TEMPORAL_TYPES
#: An edge as written: a text or a distance, and PRECEDING or FOLLOWING.
_Edge = tuple[object, str]


def frame_of(
    window: exp.Window, text: str, columns: Mapping[str, InputColumn], inputs: Sequence[Input]
) -> Frame | None:
    """The frame as written; None where there is none.

    Raises ``UnsupportedError`` for frames that are not supported, ``BindError`` for edges that do not fit the order.
    """
    spec = window.args.get("spec")
    if spec is None:
        return None
    position = position_of(window)
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise UnsupportedError(f"{text}: a frame is of ROWS or RANGE, without EXCLUDE", position=position)
    start, end = (
        (spec.args.get("start"), str(spec.args.get("start_side") or "").upper()),
        (spec.args.get("end") or "CURRENT ROW", str(spec.args.get("end_side") or "").upper()),
    )
    if start == ("UNBOUNDED", "FOLLOWING") or end == ("UNBOUNDED", "PRECEDING"):
        raise BindError(f"{text}: the frame ends before it begins", position=position)
    by_rows = kind == "ROWS"
    scale, in_time = (1, False) if by_rows else _range_unit(window, text, (start, end), columns, inputs)
    return Frame(by_rows, _distance(start, text, scale), _distance(end, text, scale), in_time)


def _range_unit(
    window: exp.Window,
    text: str,
    edges: tuple[_Edge, _Edge],
    columns: Mapping[str, InputColumn],
    inputs: Sequence[Input],
) -> tuple[int, bool]:
    """The microseconds in one unit of the order, where INTERVAL counts in it, and whether the order is a time."""
    given = [value for value, _ in edges if isinstance(value, exp.Expr)]
    if not given:
        return 1, False
    order = window.args.get("order")
    terms: list[exp.Expr] = [] if order is None else order.expressions
    if len(terms) != 1:
        raise BindError(f"{text}: RANGE with a distance needs ORDER BY one term", position=position_of(window))
    by = terms[0].this
    kind = type_of(by, columns)
    are_intervals = all(isinstance(value, exp.Interval) for value in given)
    if kind.is_type(*_TIMES) and are_intervals:
        return 1, True
    if kind.is_type(*NUMBERS) and not any(isinstance(value, exp.Interval) for value in given):
        return 1, False
    unit = _time_unit(by, columns, inputs)
    if unit is not None and unit.is_integer and unit is not TimeUnit.ROWS and are_intervals:
        return unit.scale, False
    wanted = "an INTERVAL" if kind.is_type(*_TIMES) else "a number" if kind.is_type(*NUMBERS) else "CURRENT ROW"
    raise BindError(
        f"{text}: RANGE over {kind.sql(dialect='spark')} takes {wanted} or UNBOUNDED",
        position=position_of(given[0]) or position_of(window),
    )


def _time_unit(by: exp.Expr, columns: Mapping[str, InputColumn], inputs: Sequence[Input]) -> TimeUnit | None:
    """The unit of the event time that an expression is; None for others."""
    known = columns.get(by.name) if isinstance(by, exp.Column) else None
    if known is None or not inputs[known.input].is_time(known.column):
        return None
    return inputs[known.input].time.unit


def _distance(edge: _Edge, text: str, scale: int) -> int | None:
    """An edge as a distance from the current row, negative before it; None if it is unbounded."""
    value, side = edge
    sign = 1 if side == "FOLLOWING" else -1
    if isinstance(value, str):
        return 0 if value.upper() == "CURRENT ROW" else None
    if isinstance(value, exp.Interval):
        micros = interval_micros(value)
        if micros >= 0 and micros % scale == 0:
            return sign * micros // scale
    elif isinstance(value, exp.Literal) and value.is_int:
        return sign * int(value.name)
    raise UnsupportedError(
        f"{text}: the edge of a frame is UNBOUNDED, CURRENT ROW, or a whole number or an INTERVAL from 0 on",
        position=position_of(value) if isinstance(value, exp.Expr) else None,
    )
