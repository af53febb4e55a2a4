"""The SELECT list: stars and column names; and the clauses that queries over streams do not support."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.bind.aggregate_functions import call_name
from watersmeet.bind.scope import Scope
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.plan.logical.query import OutputColumn

_REFUSED = {
    "windows": "WINDOW",
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
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
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


def _starred(item: exp.Expr, scope: Scope) -> list[tuple[str, str, exp.Expr]]:
    """The columns that a star stands for, with the alias of each."""
    star = item if isinstance(item, exp.Star) else item.this
    if star.args.get("except_") or star.args.get("replace") or star.args.get("except"):
        raise UnsupportedError("* EXCEPT and * REPLACE are not supported", position=position_of(item))
    if not isinstance(item, exp.Column):
        return scope.visible()
    relation = scope.relation(item.table)
    if relation is None:
        raise BindError(f"there is no stream or alias {item.table} here", position=position_of(item))
    return [(name, relation.alias, expression) for name, expression in relation.columns.items()]


def _owner(column: exp.Expr, scope: Scope) -> str:
    """Return the alias of the relation that an unqualified column belongs to."""
    if not isinstance(column, exp.Column):
        return ""
    return next((relation.alias for relation in scope.relations if relation.find(column.name) is not None), "")
