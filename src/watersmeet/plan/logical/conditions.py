"""Analysis of conditions: their terms, the inputs they read, and their event times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.plan.logical.time_bounds import TimeColumns
from watersmeet.plan.logical.tree import Input, InputColumn


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the terms of an AND without enclosing parentheses; BETWEEN counts as two terms."""
    if condition is None:
        return []
    condition = condition.unnest()
    if isinstance(condition, exp.Between) and not condition.args.get("symmetric"):
        value = condition.this
        return [
            exp.GTE(this=value, expression=condition.args["low"]),
            exp.LTE(this=value.copy(), expression=condition.args["high"]),
        ]
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.this), *conjuncts(condition.expression)]
    return [condition]


def inputs_of(expression: exp.Expr, columns: Mapping[str, InputColumn]) -> frozenset[int]:
    """Return the inputs whose columns an expression reads."""
    return frozenset(columns[column.name].input for column in expression.find_all(exp.Column) if column.name in columns)


def time_columns(inputs: Sequence[Input], columns: Mapping[str, InputColumn]) -> TimeColumns:
    """Return a function that identifies event-time columns by their physical name (see time_bounds.py)."""

    def time_of(column: exp.Column) -> tuple[int, int, bool] | None:
        known = columns.get(column.name)
        if known is None or not inputs[known.input].is_time(known.column):
            return None
        unit = inputs[known.input].time.unit
        return known.input, unit.scale, unit.is_integer

    return time_of
