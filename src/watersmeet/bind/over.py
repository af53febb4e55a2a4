"""Window functions in the SELECT list or in QUALIFY: ranks, with or without a limit, and functions over a frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from sqlglot import exp

from watersmeet.bind.aggregate_functions import check_comparable
from watersmeet.bind.scope import Scope
from watersmeet.bind.time_units import counting_as
from watersmeet.bind.window_functions import call_of, is_rank
from watersmeet.columns import TP_DELTA
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.expressions.type_groups import NESTED
from watersmeet.plan.logical.certain_types import known_type, type_not_known
from watersmeet.plan.logical.conditions import conjuncts
from watersmeet.plan.logical.key_types import type_of
from watersmeet.plan.logical.query import GroupKey, LogicalQuery, OutputColumn, Over, OverCall
from watersmeet.plan.logical.tree import Input, InputColumn

_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


def has_window_functions(select: exp.Select) -> bool:
    """Whether a select computes something over partitions."""
    if select.args.get("qualify"):
        return True
    own = (node for item in select.expressions for node in item.walk(prune=lambda each: isinstance(each, exp.Select)))
    return any(isinstance(node, exp.Window) for node in own)


def rank_names(select: exp.Select) -> list[str]:
    """The output columns that are ranks, in lower case."""
    found = (item for item in select.expressions if isinstance(item.unalias(), exp.Window))
    return [str(item.alias_or_name).lower() for item in found if is_rank(item.unalias())]


def limit_on(node: exp.Expr, condition: exp.Expr | None, alias: str) -> tuple[str, int] | None:
    """The least limit that a condition sets on a rank of a query with an alias: the rank's name, and the limit."""
    names = rank_names(node) if isinstance(node, exp.Select) else []
    found = ((name, limit_of(condition, name, alias.lower())) for name in names)
    return min(((name, limit) for name, limit in found if limit is not None), key=itemgetter(1), default=None)


def limit_of(conditions: exp.Expr | None, rank: str, alias: str = "") -> int | None:
    """The limit that a condition sets on the rank column of a relation: ``n <= 3``, ``n < 4`` or ``n = 1``."""
    limits = {exp.LTE: 0, exp.EQ: 0, exp.LT: -1}
    found = [number + limits[kind] for kind, number in _bounds(conditions, rank, alias) if kind in limits]
    return min(found, default=None)


def _skipped_of(condition: exp.Expr, rank: str) -> int | None:
    """How many of the first ranks a condition leaves out, which says just that: ``n > 2`` or ``n >= 3``."""
    skipped = {exp.GT: 0, exp.GTE: -1}
    found = [number + skipped[kind] for kind, number in _bounds(condition, rank, "") if kind in skipped]
    return max(found[0], 0) if found and not isinstance(condition, exp.And) else None


def _bounds(conditions: exp.Expr | None, rank: str, alias: str) -> Iterator[tuple[type[exp.Expr], int]]:
    """The comparisons of a rank column with whole numbers, the column on the left."""
    for term in conjuncts(conditions):
        kind, one, other = type(term), term.args.get("this"), term.args.get("expression")
        if isinstance(one, exp.Literal):
            kind, one, other = _MIRRORED.get(kind, kind), other, one
        is_column = isinstance(one, exp.Column) and one.name.lower() == rank and one.table.lower() in ("", alias)
        if is_column and isinstance(other, exp.Literal) and other.is_int:
            yield kind, int(other.name)


def qualify_of(select: exp.Select, scope: Scope) -> list[exp.Expr]:
    """The conditions of QUALIFY with all names resolved; they may be aliases of the SELECT list."""
    qualify = select.args.get("qualify")
    terms = conjuncts(qualify.this if qualify is not None else None)
    return [scope.substitute(with_aliases(term, select)) for term in terms]


def bind_over(
    outputs: Sequence[OutputColumn],
    tests: Sequence[exp.Expr],
    columns: Mapping[str, InputColumn],
    inputs: Sequence[Input],
    conditions: Sequence[exp.Expr],
    limit: tuple[str, int] | None,
) -> tuple[Over, list[OutputColumn], list[exp.Expr]]:
    """The window functions of a select, its outputs over their values, and the conditions of QUALIFY over them.

    The functions have one PARTITION BY and one ORDER BY (over_chain.py).  ``outputs`` are the columns with all names
    resolved, ``tests`` the conditions of QUALIFY and ``conditions`` those of WHERE.  ``limit`` is what the query around
    it sets on a rank: the output's name in lower case, and the limit.

    Raises ``UnsupportedError`` for functions and frames that are not supported, and ``BindError`` for types that do not
    fit.
    """
    refuse_delta(conditions)
    calls: list[tuple[exp.Window, OverCall]] = []
    for window in windows_of([*(each.expression for each in outputs), *tests]):
        if all(window != known for known, _ in calls):
            calls.append((window, call_of(window, f"$v{len(calls)}", columns, inputs)))
    if not calls:
        raise BindError(
            "QUALIFY tests window functions, and there is none",
            hint="move the condition to WHERE, or to HAVING if it is about a group",
            position=position_of(tests[0]),
        )
    first = calls[0][0]

    def valued(expression: exp.Expr) -> exp.Expr:
        def replace_call(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Window):
                return node
            call = next(call for window, call in calls if window == node)
            return counting_as(exp.column(exp.to_identifier(call.name, quoted=True)), node)

        found: exp.Expr = expression.copy().transform(replace_call, copy=False)
        return found

    filters = [valued(each) for each in tests]
    shown = [OutputColumn(each.name, valued(each.expression), each.renamed_from) for each in outputs]
    over = Over(
        tuple(_partition(first, columns)),
        tuple(order_of(first, columns)),
        tuple(call for _, call in calls),
        None,
        tuple(conditions),
    )
    names = [call.name for _, call in calls]
    ranks = (each.expression.name for each in shown if limit is not None and each.name.lower() == limit[0])
    found = [] if limit is None else [(name, limit[1]) for name in ranks if name in names]
    for window, call in calls:
        if is_rank(window) and (own := limit_of(exp.and_(*filters) if filters else None, call.name)) is not None:
            found.append((call.name, own))
    return _limited(over, found), shown, filters


def finished(query: LogicalQuery) -> LogicalQuery:
    """The query; values are shown only if something but the comparison of a rank with its limit reads them."""
    over = query.over
    if over is None:
        return query
    filters = tuple(each for each in query.filters if not _is_limit(each, over))
    if over.limit is not None:
        skipped = {each: _skipped_of(each, over.calls[0].name) for each in filters}
        filters = tuple(each for each in filters if skipped[each] is None)
        over = replace(over, skipped=max(over.skipped, *(each for each in skipped.values() if each is not None), 0))
    read = [*(column.expression for column in query.outputs), *filters]
    names = {column.name for each in read for column in each.find_all(exp.Column)}
    calls = tuple(
        replace(call, shown=call.name in names)
        for number, call in enumerate(over.calls)
        if call.name in names or (number == 0 and over.limit is not None)
    )
    return replace(query, over=replace(over, calls=calls), filters=filters)


def _limited(over: Over, limits: Sequence[tuple[str, int]]) -> Over:
    """The functions with the rank that has a limit first."""
    if not limits:
        return over
    name, limit = min(limits, key=lambda each: each[1])
    first = next(call for call in over.calls if call.name == name)
    if limit < 1:
        raise BindError(f"the limit of {first.text} is at least 1", position=first.position)
    return replace(over, calls=(first, *(call for call in over.calls if call is not first)), limit=limit)


def _is_limit(condition: exp.Expr, over: Over) -> bool:
    """Whether all ranks up to the limit meet a condition on the rank alone, because it says just that."""
    if over.limit is None or limit_of(condition, over.calls[0].name) != over.limit:
        return False
    return not isinstance(condition, exp.EQ) or over.limit == 1


def windows_of(expressions: Sequence[exp.Expr]) -> Iterator[exp.Window]:
    """The window functions in expressions."""
    for expression in expressions:
        yield from expression.find_all(exp.Window)


def with_aliases(expression: exp.Expr, select: exp.Select) -> exp.Expr:
    """A copy of an expression over the rows of FROM; names in it may be aliases of the SELECT list."""
    aliases: dict[str, exp.Expr] = {
        item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
    }

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in aliases:
            named = aliases[node.name.lower()].copy()
            return exp.paren(named, copy=False) if isinstance(named, exp.Binary | exp.Unary) else named
        return node

    found: exp.Expr = expression.copy().transform(replaced, copy=False)
    return found


def _partition(window: exp.Window, columns: Mapping[str, InputColumn]) -> Iterator[GroupKey]:
    for place, expression in enumerate(window.args.get("partition_by") or ()):
        kind = known_type(expression, columns, "PARTITION BY", window)
        position = position_of(expression) or position_of(window)
        check_comparable(kind, f"PARTITION BY {plain_sql(expression)}", position)
        yield GroupKey(f"$p{place}", expression.unnest(), kind)


def refuse_delta(conditions: Sequence[exp.Expr]) -> None:
    """Raise ``BindError`` for a condition on the rows below window functions that tests a change of results."""
    for condition in conditions:
        for column in condition.find_all(exp.Column):
            if column.name == TP_DELTA:
                raise BindError(
                    f"{TP_DELTA} belongs to the results of window functions and LIMIT, not to the rows below",
                    hint=f"select it: SELECT …, {TP_DELTA}",
                    position=position_of(column),
                )


def order_of(window: exp.Window, columns: Mapping[str, InputColumn]) -> Iterator[tuple[exp.Expr, bool]]:
    """The terms of a window's ORDER BY, and whether each is descending.

    Raises ``UnsupportedError`` for NULLs in another place than Spark's, and for values that are in no order, and
    ``BindError`` for those of a type that is not known.
    """
    order = window.args.get("order")
    for term in order.expressions if order is not None else ():
        descending = bool(term.args.get("desc"))
        if bool(term.args.get("nulls_first")) == descending:
            raise UnsupportedError(
                "ORDER BY sorts NULLs first in ascending order, last in descending order",
                hint="leave out NULLS FIRST and NULLS LAST",
                position=position_of(term),
            )
        kind = type_of(term.this, columns)
        if kind.is_type(exp.DataType.Type.UNKNOWN):
            raise type_not_known(term.this, "ORDER BY", window)
        if kind.is_type(*NESTED):
            raise UnsupportedError(
                f"ORDER BY {plain_sql(term.this)}: values of type {kind.sql('spark')} are in no order",
                hint="order by a field or an element of it",
                position=position_of(term.this) or position_of(window),
            )
        yield term.this, descending
