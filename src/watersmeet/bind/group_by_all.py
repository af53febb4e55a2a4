"""GROUP BY ALL: the keys are all items of the SELECT list that do not aggregate."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregate, is_apart
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of


def with_keys(select: exp.Select) -> exp.Select:
    """The select with the keys in place of ALL, or without GROUP BY where each item aggregates.

    Raises ``UnsupportedError`` if ``*`` is one of the items.
    """
    group = select.args.get("group")
    if group is None or not group.args.get("all"):
        return select
    if (star := next((item for item in select.expressions if item.is_star), None)) is not None:
        raise UnsupportedError(
            "GROUP BY ALL does not say which columns * stands for",
            hint="name them in the SELECT list",
            position=position_of(star),
        )
    keys = [_key(item, number) for number, item in enumerate(select.expressions, 1) if not _aggregates(item)]
    found: exp.Select = select.copy()
    grouped: exp.Group = group.copy()
    grouped.set("all", None)
    grouped.set("expressions", keys)
    found.set("group", grouped if keys else None)
    return found


def _aggregates(item: exp.Expr) -> bool:
    return any(is_aggregate(node) for node in item.walk(prune=is_apart))


def _key(item: exp.Expr, number: int) -> exp.Expr:
    """An item as a key: itself, but a literal by its number, since a number would mean another item."""
    value = item.unalias()
    if not isinstance(value, exp.Literal):
        return value.copy()
    key = exp.Literal.number(number)
    key.meta.update(value.meta)
    return key
