"""Names that an alias gives to the columns of a query, as in ``q(a, b)``: those of its SELECT list from then on."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.errors import BindError
from watersmeet.expressions.positions import position_of


def take_column_names(tree: exp.Expr) -> None:
    """Move the names from aliases of common table expressions and subqueries into their SELECT lists.

    They stay where they are over ``*``, and over a query whose own clauses use names of its SELECT list or the new
    ones: such aliases are refused later.  Raises ``BindError`` where an alias has other than as many names as the query
    has columns, or one twice.
    """
    for source in tree.find_all(exp.CTE, exp.Subquery):
        alias = source.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.columns and _has_taken(source.this, alias):
            alias.set("columns", None)


def _has_taken(query: exp.Expr, alias: exp.TableAlias) -> bool:
    """Give the columns of a query the names of an alias; False where it cannot be done."""
    levels = list(_first_branches(query))
    select = levels[-1]
    if not isinstance(select, exp.Select) or any(each.is_star for each in select.expressions):
        return False
    if len(select.expressions) != len(alias.columns):
        raise BindError(
            f"{alias.name} names {_count(len(alias.columns))}, but its query has {len(select.expressions)}",
            position=position_of(alias.columns[0]),
        )
    given = [each.name.lower() for each in alias.columns]
    if (twice := next((each for each in alias.columns if given.count(each.name.lower()) > 1), None)) is not None:
        raise BindError(f"{alias.name} names two columns {twice.name}", position=position_of(twice))
    names = {each.alias_or_name.lower() for each in select.expressions}
    aliases = {each.alias.lower() for each in select.expressions if isinstance(each, exp.Alias)}
    if any(_reads(level, ("order",), names) for level in levels):
        return False
    if _reads(select, ("group", "having", "qualify"), aliases):
        return False
    named = list(zip(select.expressions, alias.columns, strict=True))
    # a clause that means a column of the input would find the new name instead
    new = {name.name.lower() for each, name in named if each.alias_or_name.lower() != name.name.lower()}
    if any(_reads(level, ("order", "having", "qualify"), new) for level in levels):
        return False
    select.set("expressions", [exp.Alias(this=each.unalias(), alias=name) for each, name in named])
    return True


def _first_branches(query: exp.Expr) -> Iterator[exp.Expr]:
    """Yield a query, its first branch, the first branch of that …: the last one names the columns."""
    yield query
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
        yield query


def _reads(query: exp.Expr, clauses: tuple[str, ...], names: set[str]) -> bool:
    found = (clause for name in clauses if (clause := query.args.get(name)) is not None)
    return any(
        not column.table and column.name.lower() in names for each in found for column in each.find_all(exp.Column)
    )


def _count(columns: int) -> str:
    return f"{columns} column{'s' if columns != 1 else ''}"
