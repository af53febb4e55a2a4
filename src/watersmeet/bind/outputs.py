"""The SELECT list: stars and column names; and the clauses that queries over streams do not support."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.bind.aggregate_functions import call_name
from watersmeet.bind.scope import Scope
from watersmeet.errors import BindError, UnsupportedError, did_you_mean
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.logical.query import OutputColumn

_REFUSED = {
    "pivots": "PIVOT",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
}


def refuse_clauses(select: exp.Select) -> None:
    """Raise ``UnsupportedError`` for clauses that are not supported over streams."""
    for arg, clause in _REFUSED.items():
        node = select.args.get(arg)
        if node:
            first = node[0] if isinstance(node, list) else node
            raise UnsupportedError(
                f"{clause} over streams is not supported",
                hint="do this on the join's result as a Spark DataFrame",
                position=position_of(first) or position_of(select),
            )


def output_columns(select: exp.Select, scope: Scope) -> list[OutputColumn]:
    """Return the columns of a select; a repeated name becomes ``alias_column``."""
    found: list[tuple[str, str, exp.Expr]] = []
    for number, item in enumerate(select.expressions, 1):
        if is_star(item):
            found += _starred(item, scope)
            continue
        inner = item.this if isinstance(item, exp.Alias) else item
        name = item.alias if isinstance(item, exp.Alias) else call_name(item) or item.name or f"column_{number}"
        qualifier = inner.table if isinstance(inner, exp.Column) else ""
        found.append((name, qualifier or _owner(inner, scope), scope.substitute(inner)))
    columns: list[OutputColumn] = []
    taken: set[str] = set()
    for name, alias, expression in found:
        unique = name
        if unique.lower() in taken and alias:
            unique = f"{alias}_{name}"
        suffix = 2
        while unique.lower() in taken:
            unique, suffix = f"{alias or 'column'}_{name}_{suffix}", suffix + 1
        taken.add(unique.lower())
        columns.append(OutputColumn(unique, expression, name if unique != name else None))
    return columns


def is_star(item: exp.Expr) -> bool:
    """Whether an item of the SELECT list is ``*`` or ``alias.*``."""
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def _starred(item: exp.Expr, scope: Scope) -> list[tuple[str, str, exp.Expr]]:
    """The columns that a star stands for, with the alias of each."""
    star = item if isinstance(item, exp.Star) else item.this
    if star.args.get("replace"):
        raise UnsupportedError(
            "* REPLACE is not supported",
            hint="leave the column out, and select what takes its place: * EXCEPT (price), price * 2 AS price",
            position=position_of(item),
        )
    if not isinstance(item, exp.Column):
        return _without(scope.visible(), star)
    relation = scope.relation(item.table)
    if relation is None:
        raise BindError(f"there is no stream or alias {item.table} here", position=position_of(item))
    return _without([(name, relation.alias, expression) for name, expression in relation.columns.items()], star)


def _without(columns: list[tuple[str, str, exp.Expr]], star: exp.Star) -> list[tuple[str, str, exp.Expr]]:
    """The columns of a star without those that EXCEPT names, each of them one."""
    left = columns
    for column in star.args.get("except_") or ():
        named = [each for each in columns if _is_named(each, column)]
        if len(named) > 1:
            raise BindError(
                f"column {column.name} is ambiguous",
                detail=f"it is in {' and in '.join(alias for _, alias, _ in named)}",
                hint=f"write EXCEPT ({named[0][1]}.{column.name})",
                position=position_of(column),
            )
        if not named:
            raise BindError(
                f"* has no column {plain_sql(column)} here",
                hint=did_you_mean(column.name, [name for name, _, _ in columns]),
                position=position_of(column),
            )
        left = [each for each in left if each is not named[0]]
    if not left:
        raise BindError("* EXCEPT leaves no column", position=position_of(star))
    return left


def _is_named(found: tuple[str, str, exp.Expr], column: exp.Expr) -> bool:
    name, alias, _ = found
    is_own = not column.args.get("db") and column.text("table").lower() in ("", alias.lower())
    return is_own and column.name.lower() == name.lower()


def _owner(column: exp.Expr, scope: Scope) -> str:
    """Return the alias of the relation that an unqualified column belongs to."""
    if not isinstance(column, exp.Column):
        return ""
    return next((relation.alias for relation in scope.relations if relation.find(column.name) is not None), "")
