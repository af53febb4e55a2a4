"""Window functions with several PARTITION BYs or ORDER BYs: a chain of queries, one for each.

    SELECT k, sum(x) OVER (PARTITION BY k) AS s, ROW_NUMBER() OVER (ORDER BY y) AS n FROM a
    SELECT k, $over AS s, ROW_NUMBER() OVER (ORDER BY y) AS n
    FROM (SELECT k, y, sum(x) OVER (PARTITION BY k) AS $over FROM a)

Each query adds its values to the rows of the one below.  The last one may leave rows out: it has the rank with a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.bind.over import windows_of
from watersmeet.bind.relations import Relation
from watersmeet.bind.window_functions import call_of, is_rank
from watersmeet.columns import TP_DELTA
from watersmeet.plan.logical.query import OutputColumn
from watersmeet.plan.logical.tree import Input, InputColumn

_COMPARED = (exp.LT, exp.LTE, exp.EQ, exp.GT, exp.GTE)


@dataclass(frozen=True, slots=True)
class Link:
    """The first query of a chain: what it returns, and by these expressions the names that they have there."""

    outputs: tuple[OutputColumn, ...]
    names: tuple[tuple[exp.Expr, str], ...]

    def over(self, expression: exp.Expr, relation: Relation) -> exp.Expr:
        """An expression over the rows below, as one over the results of this query."""

        def replaced(node: exp.Expr) -> exp.Expr:
            name = next((name for known, name in self.names if known == node), None)
            if name is None:
                return node
            found = relation.columns[name].copy()
            found.meta.update({key: value for key, value in node.meta.items() if key in ("line", "col")})
            return found

        result: exp.Expr = expression.copy().transform(replaced, copy=False)
        return result


def first_link(
    outputs: Sequence[OutputColumn],
    tests: Sequence[exp.Expr],
    columns: Mapping[str, InputColumn],
    inputs: Sequence[Input],
    limit: tuple[str, int] | None,
) -> Link | None:
    """The first query of the chain that a select needs; None if one query computes all of its window functions.

    ``tests`` are the conditions of QUALIFY.  ``limit`` is what the query around it sets on a rank, as ``bind_over``
    takes it.  Raises as ``bind_over`` does for functions that are not supported.
    """
    expressions = [*(each.expression for each in outputs), *tests]
    windows = list(windows_of(expressions))
    for window in windows:
        call_of(window, "", columns, inputs)
    places = list(dict.fromkeys(map(_place, windows)))
    if len(places) < 2:
        return None
    last = next((_place(each) for each in _limited(outputs, tests, limit)), places[-1])
    first = next(place for place in places if place != last)
    values: list[exp.Expr] = []
    for window in windows:
        if _place(window) == first and window not in values:
            values.append(window)
    names: list[tuple[exp.Expr, str]] = []
    for column in _read(expressions, values):
        if all(column != known for known, _ in names):
            names.append((column, unique_name(columns[column.name].column, [name for _, name in names])))
    for value in values:
        names.append((value, unique_name("$over", [name for _, name in names])))
    return Link(tuple(OutputColumn(name, expression.copy()) for expression, name in names), tuple(names))


def _place(window: exp.Window) -> str:
    """PARTITION BY and ORDER BY, as text."""
    order = window.args.get("order")
    return ", ".join(each.sql() for each in window.args.get("partition_by") or ()) + f" {order.sql() if order else ''}"


def _limited(
    outputs: Sequence[OutputColumn], tests: Sequence[exp.Expr], limit: tuple[str, int] | None
) -> Iterator[exp.Window]:
    """The ranks that have a limit, or are compared with something."""
    for each in outputs:
        if limit is not None and each.name.lower() == limit[0] and isinstance(each.expression, exp.Window):
            yield each.expression
    for test in tests:
        for side in (test.this, test.expression) if isinstance(test, _COMPARED) else ():
            if is_rank(side):
                yield side


def _read(expressions: Sequence[exp.Expr], values: Sequence[exp.Expr]) -> Iterator[exp.Column]:
    """The columns that expressions read beside the values."""
    for expression in expressions:
        for node in expression.walk(prune=lambda each: any(each == value for value in values)):
            if isinstance(node, exp.Column) and node.name != TP_DELTA:
                yield node


def unique_name(name: str, taken: Sequence[str]) -> str:
    """The name, with a number after it if it is taken."""
    lowered, found, number = {each.lower() for each in taken}, name, 2
    while found.lower() in lowered:
        found, number = f"{name}_{number}", number + 1
    return found
