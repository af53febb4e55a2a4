"""Arrays side by side: arrays_zip with fields of certain names, and UNNEST of several arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from watersmeet.errors import BindError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql


def with_named_zips(expression: exp.Expr) -> exp.Expr:
    """The expression, where arrays_zip names the columns that it reads: inside Watersmeet they have other names."""

    def named(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.ArraysZip) or not any(isinstance(each, exp.Column) for each in node.expressions):
            return node
        arrays = [exp.Coalesce(this=with_named_zips(each)) for each in node.expressions]
        return zipped(arrays, _names(node.expressions, str))

    return expression.copy().transform(named, copy=False)


def unnested(arrays: Sequence[exp.Expr]) -> exp.Expr:
    """The array of structs that UNNEST of several arrays makes rows of; NULL has no elements."""
    names = _names(arrays, lambda place: f"column_{place + 1}")
    return zipped([exp.Coalesce(this=array.copy(), expressions=[exp.Array()]) for array in arrays], names)


def stacked(call: exp.Stack) -> exp.Expr:
    """The array of structs that ``stack(n, a, b, …)`` makes rows of: n rows of the values, padded with NULL.

    Raises ``BindError`` where n is no number of rows that these values can be.
    """
    rows, values = call.this, call.expressions
    count = int(rows.name) if isinstance(rows, exp.Literal) and rows.is_int else 0
    if not 1 <= count <= len(values):
        raise BindError(
            f"stack takes a number of rows and at least as many values, not {plain_sql(rows)} and {len(values)}",
            hint="write stack(2, a, b): two rows with one column",
            position=position_of(call),
        )
    width = -(-len(values) // count)
    padded = [*values, *(exp.Null() for _ in range(width * count - len(values)))]
    arrays = [exp.Array(expressions=[each.copy() for each in padded[place::width]]) for place in range(width)]
    return zipped(arrays, [f"col{place}" for place in range(width)])


def _names(arrays: Sequence[exp.Expr], other: Callable[[int], str]) -> list[str]:
    """Those of columns; that of its place for any other array, and for a column that is there twice."""
    names: list[str] = []
    for place, array in enumerate(arrays):
        is_new = isinstance(array, exp.Column) and array.name.lower() not in map(str.lower, names)
        names.append(array.name if is_new else other(place))
    return names


def zipped(arrays: Sequence[exp.Expr], names: Sequence[str]) -> exp.Expr:
    """Arrays that are no columns as one array of structs, padded with NULL; Spark numbers the fields of arrays_zip."""
    each = exp.to_identifier("z")
    fields = [
        exp.PropertyEQ(
            this=exp.to_identifier(name, quoted=True),
            expression=exp.Dot(this=each.copy(), expression=exp.to_identifier(str(place), quoted=True)),
        )
        for place, name in enumerate(names)
    ]
    function = exp.Lambda(this=exp.Struct(expressions=fields), expressions=[each])
    return exp.Transform(this=exp.ArraysZip(expressions=list(arrays)), expression=function)
