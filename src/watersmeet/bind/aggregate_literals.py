"""Arguments of aggregate functions that are literals: the separator of listagg, the percentages of percentile."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.aggregate.functions import Function

_MEDIAN = 0.5


def given_of(node: exp.Expr, function: Function, text: str) -> tuple[tuple[str | float, ...], bool]:
    """Return the literal arguments of a call, and whether they are an array of percentages.

    Raises ``BindError`` for percentages and accuracies that are none, and ``UnsupportedError`` for what is no literal.
    """
    if function.joins_texts:
        return (_separator(node, text),), False
    if not function.is_percentile:
        return (), False
    if isinstance(node, exp.Median):
        return (_MEDIAN,), False
    _check_accuracy(node, text)
    given = node.args.get("quantile")
    if given is None:
        raise BindError(f"{text} needs a percentage", hint="as in percentile(x, 0.5)", position=position_of(node))
    items = given.expressions if isinstance(given, exp.Array) else [given]
    if not items:
        raise BindError(f"{text}: the array of percentages is empty", position=position_of(given) or position_of(node))
    return tuple(_percentage(item, node, text) for item in items), isinstance(given, exp.Array)


def _separator(node: exp.Expr, text: str) -> str:
    given = node.args.get("separator")
    if given is None or isinstance(given, exp.Null):
        return ""
    if node.args.get("on_overflow") is not None or not (isinstance(given, exp.Literal) and given.is_string):
        raise UnsupportedError(
            f"{text}: listagg takes an expression and a separator, a text in quotes",
            position=position_of(given) or position_of(node),
        )
    return str(given.name)


def _percentage(item: exp.Expr, node: exp.Expr, text: str) -> float:
    """Return the value of a percentage; 0.5D and CAST(0.5 AS DOUBLE) are literals too."""
    inner = item.unnest()
    while isinstance(inner, exp.Cast | exp.TryCast | exp.Paren):
        inner = inner.this
    position = position_of(item) or position_of(node)
    if not isinstance(inner, exp.Literal) or inner.is_string:
        raise UnsupportedError(
            f"{text}: {plain_sql(item)} is no literal",
            hint="write the percentage as a number from 0 to 1, or an array of them",
            position=position,
        )
    value = float(inner.name)
    if not 0 <= value <= 1:
        raise BindError(f"{text}: a percentage is from 0 to 1, not {plain_sql(item)}", position=position)
    return value


def _check_accuracy(node: exp.Expr, text: str) -> None:
    """Raise an error unless an accuracy is valid; results are exact with any."""
    given = node.args.get("accuracy")
    surplus = node.args.get("weight")
    valid = given is None or (isinstance(given, exp.Literal) and given.is_int and int(given.name) > 0)
    if surplus is not None or not valid:
        raise BindError(
            f"{text}: after the percentage comes at most an accuracy, a whole number greater than 0",
            hint="leave it out: results are exact",
            position=position_of(surplus or given) or position_of(node),
        )
