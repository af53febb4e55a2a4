"""ORDER BY: an event time or the lead of a declared order, in rising order, then what breaks ties."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.bind.inputs import Inputs
from watersmeet.bind.scope import Scope
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import NESTED
from watersmeet.plan.logical.conditions import inputs_of
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import Ordering, OutputColumn
from watersmeet.plan.logical.tree import Input, Node, timed


def bind_ordering(
    order: exp.Expr | None, node: Node, outputs: Sequence[OutputColumn], scope: Scope, names: Inputs
) -> Ordering | None:
    """Resolve ORDER BY over the results of ``node``.

    Terms may name ``outputs``. Raises ``UnsupportedError`` unless the first term is an event time, or the first column
    of a declared order, in rising order, and each of the others reads one stream.
    """
    if order is None:
        return None
    named = {column.name.lower(): column.expression for column in outputs}
    terms = []
    for term in order.expressions:
        column = term.this
        alias = isinstance(column, exp.Column) and not column.table and named.get(column.name.lower())
        terms.append((alias or scope.substitute(column), bool(term.args.get("desc")), position_of(term)))
    first, descending, position = terms[0]
    known = names.columns.get(first.name) if isinstance(first, exp.Column) else None
    if known is None or not _is_rising(names.inputs[known.input], known.column) or descending:
        inputs = [names.inputs[i] for i in sorted(timed(node))]
        times = [f"{each.alias}.{time.column}" for each in inputs for time in (each.time, each.stream.lead) if time]
        raise UnsupportedError(
            f"ORDER BY on a stream needs an event time in rising order first, not {plain_sql(order.expressions[0])}",
            hint=f"order by {' or '.join(times)}",
            position=position,
        )
    for term in order.expressions:
        if bool(term.args.get("nulls_first")) == bool(term.args.get("desc")):
            raise UnsupportedError(
                "ORDER BY sorts NULLs first in ascending order, last in descending order",
                hint="leave out NULLS FIRST and NULLS LAST",
                position=position_of(term),
            )
    ties = tuple((expression, desc) for expression, desc, _ in terms[1:])
    for expression, _ in ties:
        read = inputs_of(expression, names.columns)
        is_computed_outside = not isinstance(expression, exp.Column) and any(
            names.inputs[i].stream.outside for i in read
        )
        if len(read) != 1 or is_computed_outside:
            raise UnsupportedError(
                f"ORDER BY takes columns, and expressions over one stream, not {plain_sql(expression)}",
                position=position_of(expression) or position,
            )
        kind = type_of(expression, names.columns)
        if kind.is_type(*NESTED):
            raise UnsupportedError(
                f"ORDER BY {plain_sql(expression)}: values of type {kind.sql('spark')} are in no order",
                hint="order by a field or an element of it",
                position=position_of(expression) or position,
            )
    return Ordering(known.input, known.column, ties, position)


def _is_rising(input: Input, column: str) -> bool:
    """Whether a column may order the rows of a stream."""
    lead = input.stream.lead
    return input.is_time(column) or (lead is not None and lead.column.lower() == column.lower())
