"""GROUP BY ALL: the keys are all items of the SELECT list that read columns and do not aggregate."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregate, is_apart
from watersmeet.bind.outputs import is_star
from watersmeet.columns import TP_DELTA
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of


def with_keys(select: exp.Select) -> exp.Select:
    """The select with the numbers of the keys in place of ALL, or without GROUP BY where each item aggregates.

    Items that read no column are keys only if there are no others.  Raises ``UnsupportedError`` if ``*`` is an item.
    """
    group = select.args.get("group")
    if group is None or not group.args.get("all"):
        return select
    if (star := next((item for item in select.expressions if is_star(item)), None)) is not None:
        raise UnsupportedError(
            "GROUP BY ALL does not say which columns * stands for",
            hint="name them in the SELECT list",
            position=position_of(star),
        )
    items = [(item, _key(item, number)) for number, item in enumerate(select.expressions, 1) if _is_plain(item)]
    keys = [key for item, key in items if _reads(item)] or [key for _, key in items]
    found: exp.Select = select.copy()
    grouped: exp.Group = group.copy()
    grouped.set("all", None)
    grouped.set("expressions", keys)
    found.set("group", grouped if keys else None)
    return found


def _is_plain(item: exp.Expr) -> bool:
    """Whether an item is of the rows, and not of their group: it has no aggregate, nor the delta of the result."""
    nodes = list(item.walk(prune=is_apart))
    is_delta = any(isinstance(node, exp.Column) and node.name.lower() == TP_DELTA for node in nodes)
    return not is_delta and not any(is_aggregate(node) for node in nodes)


def _reads(item: exp.Expr) -> bool:
    return any(isinstance(node, exp.Column) for node in item.walk(prune=is_apart))


def _key(item: exp.Expr, number: int) -> exp.Expr:
    key = exp.Literal.number(number)
    if (position := position_of(item)) is not None:
        key.meta.update(line=position.line, col=position.col)
    return key
