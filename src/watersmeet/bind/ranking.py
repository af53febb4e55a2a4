"""The first rows of a partition: ROW_NUMBER, RANK or DENSE_RANK in the SELECT list or in QUALIFY, with a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.bind.aggregate_functions import check_comparable
from watersmeet.bind.scope import Scope
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import NESTED
from watersmeet.plan.logical.certain_types import certain_type
from watersmeet.plan.logical.conditions import conjuncts
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import GroupKey, OutputColumn, RankFunction, Ranking
from watersmeet.plan.logical.tree import InputColumn

RANK = "$rank"
_FUNCTIONS = {
    exp.RowNumber: RankFunction.ROW_NUMBER,
    exp.Rank: RankFunction.RANK,
    exp.DenseRank: RankFunction.DENSE_RANK,
}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


def is_ranked(select: exp.Select) -> bool:
    """Whether a select numbers rows."""
    return bool(select.args.get("qualify")) or any(item.find(exp.Window) for item in select.expressions)


def rank_name(select: exp.Select) -> str | None:
    """The output column that is a rank; None if there is none."""
    for item in select.expressions:
        if isinstance(item.unalias(), exp.Window):
            return str(item.alias_or_name).lower()
    return None


def limit_of(conditions: exp.Expr | None, rank: str, alias: str = "") -> int | None:
    """The limit that a condition sets on the rank column of a relation: ``n <= 3``, ``n < 4`` or ``n = 1``."""
    limits = []
    for term in conjuncts(conditions):
        kind, one, other = type(term), term.args.get("this"), term.args.get("expression")
        if isinstance(one, exp.Literal):
            kind, one, other = _MIRRORED.get(kind, kind), other, one
        is_column = isinstance(one, exp.Column) and one.name.lower() == rank and one.table.lower() in ("", alias)
        if not is_column or not isinstance(other, exp.Literal) or not other.is_int:
            continue
        if kind in (exp.LTE, exp.EQ):
            limits.append(int(other.name))
        elif kind is exp.LT:
            limits.append(int(other.name) - 1)
    return min(limits, default=None)


def bind_ranking(
    select: exp.Select,
    outputs: Sequence[OutputColumn],
    scope: Scope,
    columns: Mapping[str, InputColumn],
    conditions: Sequence[exp.Expr],
    limit: int | None,
) -> tuple[Ranking, list[OutputColumn], list[exp.Expr]]:
    """The ranking of a select, its outputs over the results, and the conditions of QUALIFY over them.

    ``outputs`` are its columns with all names resolved, ``conditions`` those of WHERE, and ``limit`` is what the query
    around it sets.  Raises ``UnsupportedError`` without a limit, and for other window functions.
    """
    qualify = select.args.get("qualify")
    tests = [] if qualify is None else [_qualified(term, select, scope) for term in conjuncts(qualify.this)]
    windows = [node for each in (*(o.expression for o in outputs), *tests) for node in each.find_all(exp.Window)]
    first = windows[0]
    for other in windows[1:]:
        if other != first:
            raise UnsupportedError(
                "a query has one rank; this is another",
                detail=f"the first is {plain_sql(first)}",
                hint="compute it in a subquery",
                position=position_of(other),
            )

    def ranked(expression: exp.Expr) -> exp.Expr:
        def replace_window(node: exp.Expr) -> exp.Expr:
            return exp.column(exp.to_identifier(RANK, quoted=True)) if isinstance(node, exp.Window) else node

        found: exp.Expr = expression.copy().transform(replace_window, copy=False)
        return found

    filters = [ranked(each) for each in tests]
    own = limit_of(exp.and_(*filters) if filters else None, RANK)
    limit = min((each for each in (own, limit) if each is not None), default=None)
    if limit is None:
        raise UnsupportedError(
            f"{plain_sql(first)} without a limit would number all rows that ever come",
            hint="keep the first rows: SELECT * FROM (SELECT …, ROW_NUMBER() OVER (…) AS n …) WHERE n <= 10",
            position=position_of(first),
        )
    if limit < 1:
        raise BindError("the limit of a rank is at least 1", position=position_of(first))
    shown = [OutputColumn(each.name, ranked(each.expression), each.renamed_from) for each in outputs]
    ranking = _ranking(first, columns, tuple(conditions), limit)
    return ranking, shown, filters


def _qualified(term: exp.Expr, select: exp.Select, scope: Scope) -> exp.Expr:
    """A term of QUALIFY, in which names may be aliases of the SELECT list."""
    aliases: dict[str, exp.Expr] = {
        item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
    }

    def named(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in aliases:
            return aliases[node.name.lower()].copy()
        return node

    found: exp.Expr = term.copy().transform(named, copy=False)
    return scope.substitute(found)


def _ranking(
    window: exp.Window, columns: Mapping[str, InputColumn], conditions: tuple[exp.Expr, ...], limit: int
) -> Ranking:
    function = _FUNCTIONS.get(type(window.this))
    text, position = plain_sql(window), position_of(window)
    if function is None:
        raise UnsupportedError(
            f"{text} is not supported over streams",
            detail="supported: ROW_NUMBER, RANK and DENSE_RANK, with a limit",
            hint="for aggregates use GROUP BY, with a window in time",
            position=position,
        )
    order = window.args.get("order")
    if order is None:
        raise BindError(f"{text}: a rank needs ORDER BY", position=position)
    partition = []
    for place, expression in enumerate(window.args.get("partition_by") or ()):
        kind = certain_type(expression, columns)
        if kind is None:
            raise BindError(
                f"PARTITION BY: the type of {plain_sql(expression)} is not known here",
                hint="CAST it",
                position=position_of(expression) or position,
            )
        check_comparable(kind, f"PARTITION BY {plain_sql(expression)}", position_of(expression))
        partition.append(GroupKey(f"$p{place}", expression.unnest(), kind))
    by = []
    for term in order.expressions:
        descending = bool(term.args.get("desc"))
        if bool(term.args.get("nulls_first")) == descending:
            raise UnsupportedError(
                "ORDER BY sorts NULLs first in ascending order, last in descending order",
                hint="leave out NULLS FIRST and NULLS LAST",
                position=position_of(term),
            )
        kind = type_of(term.this, columns)
        if kind.is_type(*NESTED):
            raise UnsupportedError(
                f"ORDER BY {plain_sql(term.this)}: values of type {kind.sql('spark')} are in no order",
                hint="order by a field or an element of it",
                position=position_of(term.this) or position,
            )
        by.append((term.this, descending))
    return Ranking(RANK, function, tuple(partition), tuple(by), limit, True, conditions, text, position)
