"""Analysis of conditions: their terms, the inputs they read, and their event times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.expressions.times import time_after
from watersmeet.plan.logical.time_bounds import TimeColumns
from watersmeet.plan.logical.tree import Input, InputColumn


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the terms of an AND without enclosing parentheses; BETWEEN counts as two terms."""
    found: list[exp.Expr] = []
    left = [] if condition is None else [condition]
    while left:  # not recursive: there may be a thousand
        term = left.pop().unnest()
        if isinstance(term, exp.And):
            left += [term.expression, term.this]
        elif isinstance(term, exp.Between) and not term.args.get("symmetric"):
            found.append(exp.GTE(this=term.this, expression=term.args["low"]))
            found.append(exp.LTE(this=term.this.copy(), expression=term.args["high"]))
        else:
            found.append(term)
    return found


def inputs_of(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> frozenset[int]:
    """Return the inputs whose columns an expression reads."""
    return frozenset(columns[column.name].input for column in expression.find_all(exp.Column) if column.name in columns)


def in_event_times(condition: exp.Expr, inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> exp.Expr:
    """Return a condition in which columns that lie a fixed time after an event time are computed from that."""

    def computed(node: exp.Expr) -> exp.Expr:
        known = columns.get(node.name) if isinstance(node, exp.Column) else None
        if known is None or not (distance := inputs[known.input].distance_of(known.column)):
            return node
        time = inputs[known.input].time
        column = exp.column(exp.to_identifier(inputs[known.input].physical(time.column), quoted=True))
        return exp.paren(time_after(column, distance, time.unit), copy=False)

    found: exp.Expr = condition.copy().transform(computed, copy=False)
    return found


def time_columns(inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> TimeColumns:
    """Return a function that identifies event-time columns by their physical name (see time_bounds.py)."""

    def time_of(column: exp.Column) -> tuple[int, int, bool] | None:
        known = columns.get(column.name)
        if known is None or not inputs[known.input].is_time(known.column):
            return None
        unit = inputs[known.input].time.unit
        return known.input, unit.scale, unit.is_integer

    return time_of
