"""Generators: functions that make rows of arrays, found where they may stand, and refused elsewhere.

LATERAL VIEW [OUTER] explode(items) t AS item          Spark
[, | JOIN] LATERAL explode(items) AS t(item)           Spark
[, | JOIN] UNNEST(items) [WITH ORDINALITY] AS t(item)  the standard
SELECT explode(items) AS item                          one in a SELECT list, rewritten as the first
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.bind.json_fields import json_fields
from watersmeet.bind.zips import stacked, unnested
from watersmeet.errors import BindError, Position, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql

#: The relation that a generator in a SELECT list becomes.
IN_SELECT = "$generated"
#: Spark's functions by name, where sqlglot has no node for them.
_INLINE_OUTER = "inline_outer"
_JSON_TUPLE = "json_tuple"
_OTHERS = {_JSON_TUPLE, "variant_explode", "variant_explode_outer"}
#: The clauses of a select in which no generator may stand.
_CLAUSES = {"where": "WHERE", "group": "GROUP BY", "having": "HAVING", "qualify": "QUALIFY", "order": "ORDER BY"}


@dataclass(frozen=True, slots=True)
class Generator:
    """One generator: its array, how its rows come, and what they are called.

    ``first`` is the number of the first element in the column of positions (None: there is no such column), which is
    the last column if it ``counts_last``.  Elements that are structs ``spread`` into columns: always (True), never
    (False), or as the names fit (None).  ``alias`` is None where none is written; ``names`` are those of the columns.
    ``on`` are the conditions of LEFT JOIN … ON: elements that do not meet them are none.  With
    ``values`` it makes one row of each row, whose columns they are.
    """

    call: exp.Expr
    array: exp.Expr
    outer: bool
    first: int | None
    counts_last: bool
    spread: bool | None
    alias: str | None = None
    names: tuple[exp.Identifier, ...] = ()
    on: tuple[exp.Expr, ...] = ()
    values: tuple[exp.Expr, ...] = ()

    @property
    def text(self) -> str:
        """The call as written."""
        return _text(self.call)


def _text(call: exp.Expr) -> str:
    """A call as its author would write it."""
    if isinstance(call, exp.Unnest):
        return f"UNNEST({', '.join(map(plain_sql, call.expressions))})"
    if isinstance(call, exp.Explode | exp.Inline):
        return f"{call.sql_name().lower()}({plain_sql(call.this)})"
    return plain_sql(call)


def is_generator(node: exp.Expr) -> bool:
    """Whether a node is a call that makes rows."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in {_INLINE_OUTER, *_OTHERS}
    return isinstance(node, exp.Explode | exp.Inline | exp.Unnest | exp.Stack)


def generator_in_from(source: exp.Expr) -> Generator | None:
    """The generator that a relation in FROM is; None for other relations.

    Raises ``UnsupportedError`` for LATERAL with anything else in it.
    """
    if isinstance(source, exp.Unnest):
        return _named(_unnest(source), source)
    if not isinstance(source, exp.Lateral):
        return None
    call = source.this
    if not isinstance(call, exp.Expr) or not is_generator(call):
        raise UnsupportedError(
            f"LATERAL takes a function that makes rows of an array, not {plain_sql(call)}",
            hint="write LATERAL explode(items) AS t(item); subqueries are correlated under EXISTS, IN, or as values",
            position=position_of(source),
        )
    found = _unnest(call) if isinstance(call, exp.Unnest) else _called(call)
    if source.args.get("ordinality") and found.first is None:
        found = replace(found, first=1, counts_last=True)
    return _named(replace(found, outer=found.outer or bool(source.args.get("outer"))), source)


def has_generators(select: exp.Select) -> bool:
    """Whether a select makes rows of arrays, in FROM or in its SELECT list."""
    if select.args.get("laterals"):
        return True
    return any(True for item in select.expressions for _ in _generators(item))


def with_generator_in_from(select: exp.Select) -> exp.Select:
    """The select with the generator of its SELECT list as a LATERAL VIEW, whose columns stand in its place.

    Raises ``BindError`` for a second one, and for one within an expression or in another clause.
    """
    _refuse_elsewhere(select)
    places = [place for place, item in enumerate(select.expressions) if any(True for _ in _generators(item))]
    if not places:
        return select
    for place in places:
        (call, *more), item = list(_generators(select.expressions[place])), select.expressions[place]
        if call is not _bare(item) or more:
            raise BindError(
                f"{_text(call)} makes rows, so it cannot stand in an expression",
                hint="compute over its column in a query around it: FROM (SELECT explode(items) AS item, … FROM …)",
                position=position_of(call),
            )
    if len(places) > 1:
        second = _bare(select.expressions[places[1]])
        raise BindError(
            f"a SELECT list has one generator; {_text(second)} is another",
            hint="write each as LATERAL VIEW after FROM: all pairs of their elements become rows",
            position=position_of(second),
        )
    return _rewritten(select, places[0])


def refuse_joins_after_views(select: exp.Select) -> None:
    """Raise ``BindError`` for a join that follows a LATERAL VIEW: in Spark it cannot."""
    views = [position_of(view) for view in select.args.get("laterals") or ()]
    for join in select.args.get("joins") or ():
        position = position_of(join)
        if position is not None and any(view is not None and _is_before(view, position) for view in views):
            raise BindError(
                "a JOIN cannot follow LATERAL VIEW",
                hint="write it before; to join by an element, FROM …, LATERAL explode(items) AS t(item) JOIN …",
                position=position,
            )


def _is_before(one: Position, other: Position) -> bool:
    return (one.line, one.col) < (other.line, other.col)


def _rewritten(select: exp.Select, place: int) -> exp.Select:
    found: exp.Select = select.copy()
    item = found.expressions[place]
    names: list[exp.Expr] = []
    if isinstance(item, exp.Aliases):
        names = [each.copy() for each in item.expressions]
    elif isinstance(item, exp.Alias):
        names = [item.args["alias"].copy()]
    alias = exp.TableAlias(this=exp.to_identifier(IN_SELECT, quoted=True), columns=names)
    view = exp.Lateral(this=_bare(item).copy(), view=True, outer=False, alias=alias)
    star = exp.Column(this=exp.Star(), table=exp.to_identifier(IN_SELECT, quoted=True))
    for node in (view, star):
        node.meta.update(_bare(item).meta)
    found.set("expressions", [star if number == place else each for number, each in enumerate(found.expressions)])
    found.set("laterals", [*(found.args.get("laterals") or ()), view])
    return found


def refuse_aggregated(select: exp.Select) -> None:
    """Raise ``BindError`` for a generator in a SELECT list with aggregates or window functions."""
    call = next((call for item in select.expressions for call in _generators(item)), None)
    if call is not None:
        raise BindError(
            f"{_text(call)} makes rows, and this query has aggregates or window functions over its rows",
            hint="to compute over elements, write FROM … LATERAL VIEW explode(items) t AS item; to explode results,"
            " SELECT explode(…) FROM (SELECT … GROUP BY …)",
            position=position_of(call),
        )


def first_generator(part: exp.Expr) -> exp.Expr | None:
    """Return the first generator in an expression; None if there is none."""
    return next(_generators(part), None)


def refuse_generators(part: exp.Expr) -> None:
    """Raise ``BindError`` for a generator in an expression."""
    if (call := first_generator(part)) is not None:
        raise BindError(
            f"{_text(call)} makes rows, so it cannot stand here",
            hint="write FROM …, LATERAL explode(items) AS t(item), and name its column here",
            position=position_of(call),
        )


def _refuse_elsewhere(select: exp.Select) -> None:
    for arg, clause in _CLAUSES.items():
        part = select.args.get(arg)
        call = next(_generators(part), None) if isinstance(part, exp.Expr) else None
        if call is not None:
            raise BindError(
                f"{_text(call)} makes rows, so it cannot stand in {clause}",
                hint="write FROM … LATERAL VIEW explode(items) t AS item, and name its column here",
                position=position_of(call),
            )


def _generators(part: exp.Expr) -> Iterator[exp.Expr]:
    """The generators in a part of a select, but for those of queries nested in it."""
    for node in part.walk(prune=lambda each: isinstance(each, exp.Query)):
        if is_generator(node):
            yield node


def _bare(item: exp.Expr) -> exp.Expr:
    """An item of a SELECT list without its names."""
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


# -- kinds of generators -----------------------------------------------------------------------------------------------


def _called(call: exp.Expr) -> Generator:
    if isinstance(call, exp.Anonymous) and call.name.lower() == _INLINE_OUTER and len(call.expressions) == 1:
        return Generator(call, call.expressions[0], True, None, False, True)
    if isinstance(call, exp.Anonymous) and call.name.lower() == _JSON_TUPLE:
        values = tuple(json_fields(call))
        return Generator(call, call.expressions[0], False, None, False, None, values=values)
    if isinstance(call, exp.Stack):
        return Generator(call, stacked(call), False, None, False, True)
    if isinstance(call, exp.Inline):
        return Generator(call, call.this, False, None, False, True)
    if isinstance(call, exp.Explode) and call.expressions:
        more = ", ".join(map(plain_sql, call.expressions))
        raise BindError(
            f"{call.sql_name().lower()} takes one array or map; {more} is one too many",
            hint="write a LATERAL VIEW for each array",
            position=position_of(call),
        )
    if not isinstance(call, exp.Explode):
        raise UnsupportedError(
            f"{_text(call)} is not supported: it makes rows of something else than arrays, maps and JSON",
            hint="explode, posexplode, inline, their _outer forms, stack, json_tuple and UNNEST are supported",
            position=position_of(call),
        )
    first = 0 if isinstance(call, exp.Posexplode) else None
    return Generator(call, call.this, isinstance(call, exp.ExplodeOuter | exp.PosexplodeOuter), first, False, False)


def _unnest(call: exp.Unnest) -> Generator:
    offset = call.args.get("offset")
    several = len(call.expressions) > 1
    array = unnested(call.expressions) if several else call.expressions[0]
    return Generator(call, array, False, 1 if offset else None, True, True if several else None)


def _named(found: Generator, source: exp.Expr) -> Generator:
    """The generator with the names that follow it."""
    alias = source.args.get("alias")
    names = list(alias.columns) if isinstance(alias, exp.TableAlias) else []
    own = found.call.args.get("offset") if isinstance(found.call, exp.Unnest) else None
    if isinstance(own, exp.Identifier):
        names.append(own)  # the parser puts the name of the ordinality there
    return replace(found, alias=(source.alias or None), names=tuple(names))
