"""Subqueries in HAVING, and among the results of an aggregation: a query over the results of the groups.

    SELECT k, count(*) AS n FROM a GROUP BY k HAVING sum(x) > (SELECT max(y) FROM b)
    SELECT k, n FROM (SELECT k, count(*) AS n, sum(x) AS $h0, k AS $h1 FROM a GROUP BY k)
    WHERE $h0 > (SELECT max(y) FROM b)

A subquery may read keys by the names that they have in FROM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.bind.aggregate_functions import NULL_CLAUSES, call_name, is_aggregate
from watersmeet.bind.relations import Relation
from watersmeet.bind.scope import Scope
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import is_same
from watersmeet.plan.logical.conditions import conjuncts

#: The relation of the groups' results, in the query over them.
GROUPS = "$groups"


@dataclass(slots=True)
class OverGroups:
    """The query of the ``groups``, and the select ``above`` its results, which has no FROM.

    ``columns`` are the names of the results as the select has them, with their names in the query of the groups.
    ``keys``: (alias, column, the name in the query of the groups) of keys that are columns.
    """

    groups: exp.Select
    above: exp.Select
    columns: dict[str, str] = field(default_factory=dict)
    keys: list[tuple[str, str, str]] = field(default_factory=list)

    def scope(self, relation: Relation) -> Scope:
        """What is in scope above, if the relation has the results of the groups."""
        named = {name: relation.columns[column] for name, column in self.columns.items()}
        scope = Scope([Relation(GROUPS, named)])
        for alias, column, name in self.keys:
            known = scope.relation(alias)
            if known is None:
                known = Relation(alias, {})
                scope.relations.append(known)
            known.columns[column] = relation.columns[name]
        return scope


def over_groups(select: exp.Select) -> OverGroups | None:
    """An aggregation with subqueries over its results; None if it has none.

    Raises ``UnsupportedError`` for a subquery in GROUP BY.
    """
    having = select.args.get("having")
    terms = list(conjuncts(having.this if having is not None else None))
    tests = [term for term in terms if term.find(exp.Select) is not None]
    if not tests and not any(_is_above(item) for item in select.expressions):
        return None
    groups, rest = select.copy(), [term.copy() for term in terms if term not in tests]
    groups.set("having", exp.Having(this=exp.and_(*rest, copy=False)) if rest else None)
    found = OverGroups(groups, exp.Select())
    group = select.args.get("group")
    aliases = {item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    keys = [_key(each, select, aliases) for each in _grouped(group)]
    hidden: list[exp.Expr] = []

    def kept(expression: exp.Expr) -> str:
        place = next((n for n, each in enumerate(hidden) if each == expression), len(hidden))
        if place == len(hidden):
            hidden.append(expression.copy())
        found.columns[f"$h{place}"] = f"$h{place}"
        return f"$h{place}"

    def above(expression: exp.Expr) -> exp.Expr:
        holder = exp.Paren(this=expression.copy())
        for name in [each for each in _pieces(holder, keys) if isinstance(each, exp.Column) and not each.table]:
            if name.name.lower() in aliases:
                name.replace(exp.paren(aliases[name.name.lower()].copy(), copy=False))
        for piece in list(_pieces(holder, keys)):
            piece.replace(_of_groups(kept(piece), piece))
        found: exp.Expr = holder.this
        return found

    items, below = [], []
    for number, item in enumerate(select.expressions, 1):
        if _is_above(item):
            name = item.alias or f"column_{number}"
            items.append(exp.alias_(above(item.unalias()), name, quoted=True, copy=False))
            below.append(exp.alias_(exp.Literal.number(1), f"$s{number}", quoted=True))
        else:
            name = item.alias or call_name(item) or item.name or f"column_{number}"
            found.columns[f"$c{number}"] = name
            items.append(exp.alias_(_of_groups(f"$c{number}", item), name, quoted=True, copy=False))
            below.append(item.copy())
    conditions = [above(term) for term in tests]
    source = None if select.args.get("joins") else select.args.get("from_")
    first = "" if source is None else source.this.alias_or_name
    for key in keys:
        if isinstance(key, exp.Column):
            found.keys.append((key.table or first, key.name, kept(key)))
    added = [exp.alias_(each, f"$h{number}", quoted=True, copy=False) for number, each in enumerate(hidden)]
    groups.set("expressions", [*below, *added])
    where = exp.Where(this=exp.and_(*conditions, copy=False)) if conditions else None
    found.above = exp.Select(expressions=items, where=where)
    found.above.meta.update(select.meta)
    return found


def _grouped(group: exp.Expr | None) -> Iterator[exp.Expr]:
    """The items of GROUP BY, also those of its sets."""
    for part in () if group is None else (group, *(group.args.get("grouping_sets") or ())):
        yield from part.expressions


def _key(item: exp.Expr, select: exp.Select, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    """The expression that an item of GROUP BY stands for: it may be a place or an alias of the SELECT list."""
    if item.find(exp.Select) is not None:
        raise UnsupportedError("GROUP BY cannot contain a subquery", position=position_of(item))
    if isinstance(item, exp.Literal) and item.is_int and 1 <= int(item.name) <= len(select.expressions):
        found: exp.Expr = select.expressions[int(item.name) - 1].unalias()
        return found
    is_name = isinstance(item, exp.Column) and not item.table
    return aliases.get(item.name.lower(), item) if is_name else item


def _is_above(item: exp.Expr) -> bool:
    """Whether an item of the SELECT list has a subquery that is in no aggregate's argument."""
    nodes = item.walk(prune=lambda each: isinstance(each, exp.Subquery) or is_aggregate(each))
    return any(isinstance(node, exp.Subquery) for node in nodes)


def _pieces(expression: exp.Expr, keys: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """The aggregates, keys and columns in an expression, outside of its subqueries."""

    def is_piece(node: exp.Expr) -> bool:
        call = node.this if isinstance(node, NULL_CLAUSES) else node
        if isinstance(node, exp.Column) or is_aggregate(call):
            return True
        return not isinstance(node, exp.Paren | exp.Query) and any(is_same(node, key) for key in keys)

    for node in expression.walk(prune=lambda each: isinstance(each, exp.Query) or is_piece(each)):
        if is_piece(node):
            yield node


def _of_groups(name: str, written: exp.Expr) -> exp.Expr:
    column = exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(GROUPS, quoted=True))
    column.meta.update({key: value for key, value in written.meta.items() if key in ("line", "col")})
    return column
