"""ORDER BY … LIMIT n OFFSET m: the rows m + 1 to m + n of all results, as ROW_NUMBER() OVER (ORDER BY …) has them.

Without ORDER BY they are numbered as they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from sqlglot import exp

from watersmeet.bind.over import order_of, refuse_delta, with_aliases
from watersmeet.bind.relations import Relation
from watersmeet.bind.scope import Scope
from watersmeet.bind.subqueries import Ctes
from watersmeet.bind.window_functions import call_of
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import is_same
from watersmeet.plan.logical.query import LogicalQuery, OutputColumn, Over, OverCall

if TYPE_CHECKING:  # a statement has queries with LIMIT, in which its other queries stand
    from watersmeet.bind.statement import Statement

_RANK = "$v0"
#: What a term of ORDER BY reads: an output by its place or by its name, or an expression.
_Read: TypeAlias = int | str | exp.Expr


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of ORDER BY as written, what each reads, and the query without ORDER BY, LIMIT and OFFSET.

    The expressions among them are the last columns of the query, which has one for each of them (``added``).
    """

    terms: Sequence[exp.Expr]
    read: Sequence[_Read]
    plain: exp.Expr
    added: int


def bind_limit(statement: Statement, node: exp.Expr, ctes: Ctes, *, inner: bool) -> LogicalQuery:
    """Resolve a query with LIMIT or OFFSET.

    Raises ``UnsupportedError`` for OFFSET alone and for what is no whole number, ``BindError`` for columns that are not
    there.
    """
    rows = _rows(node)
    terms = _terms(node)
    found = statement.query(terms.plain, ctes, inner=True)
    count = len(found.outputs) - terms.added
    own, added = found.outputs[:count], iter(found.outputs[count:])
    columns = [_column(term, read, own, added) for term, read in zip(terms.terms, terms.read, strict=True)]
    if found.is_plain and None not in columns:
        by = [column.expression for column in columns if column is not None]
        found = replace(found, inner=inner, outputs=own)
    else:
        kept = dict.fromkeys(column.name for column in (*own, *(each for each in columns if each is not None)))
        below = replace(found, outputs=tuple(each for each in found.outputs if each.name in kept))
        found = statement.over([below], terms.plain, inner=inner)
        results = {column.name: column.expression for column in found.outputs}
        scope = Scope([Relation("", results)])
        by = [
            scope.substitute(term.this) if column is None else results[column.name]
            for term, column in zip(terms.terms, columns, strict=True)
        ]
        found = replace(found, outputs=found.outputs[:count])
    return _first(replace(found, text=statement.text(node, inner=inner)), terms.terms, by, rows)


def _column(
    term: exp.Expr, read: _Read, own: Sequence[OutputColumn], added: Iterator[OutputColumn]
) -> OutputColumn | None:
    """The output that a term reads, one of its ``own`` or the next one ``added``; None: an expression over outputs."""
    if isinstance(read, int):
        if not 1 <= read <= len(own):
            raise BindError(f"ORDER BY {read}: the query returns {len(own)} columns", position=position_of(term))
        return own[read - 1]
    if isinstance(read, str):
        return next(column for column in own if column.name.lower() == read.lower())
    found = next(added, None)
    return found and next((column for column in own if column.expression == found.expression), found)


def _rows(node: exp.Expr) -> tuple[int, int]:
    """How many rows OFFSET leaves out, and the number of the last one."""
    limit, offset, order = node.args.get("limit"), node.args.get("offset"), node.args.get("order")
    at = position_of(limit or offset) or position_of(node)
    if limit is None:
        raise UnsupportedError(
            "OFFSET needs LIMIT: without it, every row of the stream would have to be kept in order",
            hint="add LIMIT n",
            position=at,
        )
    for term in order.expressions if order is not None else ():
        if isinstance(term.this, exp.Var | exp.All):
            raise UnsupportedError(
                f"ORDER BY {term.this.name or 'ALL'} is not supported",
                hint="name the columns",
                position=position_of(term),
            )
    skipped = 0 if offset is None else _number("OFFSET", offset, 0)
    return skipped, skipped + _number("LIMIT", limit, 1)


def _number(clause: str, node: exp.Expr, least: int) -> int:
    value, more = node.expression, node.args.get("limit_options") or node.args.get("expressions")
    position = position_of(node)
    if more or not isinstance(value, exp.Literal) or not value.is_int:
        raise UnsupportedError(f"{clause} over streams takes a whole number", position=position)
    if int(value.name) < least:
        raise BindError(f"{clause} is at least {least}", position=position)
    return int(value.name)


def _terms(node: exp.Expr) -> _Terms:
    plain = node.copy()
    order = plain.args.get("order")
    terms = order.expressions if order is not None else []
    for clause in ("order", "limit", "offset"):
        plain.set(clause, None)
    if not isinstance(plain, exp.Select) or plain.args.get("distinct"):
        return _Terms(terms, [_of_results(term.this, plain) for term in terms], plain, 0)
    read = [_of_rows(term.this, plain) for term in terms]
    added = [each for each in read if isinstance(each, exp.Expr)]
    items = [exp.alias_(each, f"$o{number}", quoted=True, copy=False) for number, each in enumerate(added)]
    plain.set("expressions", [*plain.expressions, *items])
    return _Terms(terms, read, plain, len(added))


def _of_rows(term: exp.Expr, select: exp.Select) -> _Read:
    """What a term reads where it may read the rows of FROM, too."""
    if isinstance(term, exp.Literal) and term.is_int:
        return int(term.name)
    is_name = isinstance(term, exp.Column) and not term.table
    if is_name and any(
        isinstance(each, exp.Alias) and each.alias.lower() == term.name.lower() for each in select.expressions
    ):
        return str(term.name)
    return with_aliases(term, select)


def _of_results(term: exp.Expr, query: exp.Expr) -> _Read:
    """What a term reads where it may only read what the query returns: after DISTINCT, or of a set operation."""
    if isinstance(term, exp.Literal) and term.is_int:
        return int(term.name)
    for place, item in enumerate(query.expressions if isinstance(query, exp.Select) else (), 1):
        if is_same(item.unalias(), term) and not query.is_star:
            return place
    return term


def _first(
    query: LogicalQuery, terms: Sequence[exp.Expr], by: Sequence[exp.Expr], rows: tuple[int, int]
) -> LogicalQuery:
    """The first rows of a plain query, in the order of the expressions."""
    refuse_delta(query.filters)
    ordered = []
    for term, expression in zip(terms, by, strict=True):
        each, position = term.copy(), position_of(term)
        each.set("this", expression.copy())
        if position is not None:
            each.meta.update(line=position.line, col=position.col)
        ordered.append(each)
    window = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=ordered))
    call = call_of(window, _RANK, query.columns, query.inputs) if ordered else _arrival(query)
    over = Over((), tuple(order_of(window, query.columns)), (call,), rows[1], query.filters, rows[0])
    return replace(query, over=over, filters=(), ordering=None)


def _arrival(query: LogicalQuery) -> OverCall:
    """The number of a row among all that have come."""
    kind = exp.DataType.build("BIGINT", dialect="spark")
    call = "CAST(row_number() {over} AS BIGINT)"
    return OverCall(_RANK, "row_number", call, (), kind, None, True, True, "LIMIT", query.text.position)
