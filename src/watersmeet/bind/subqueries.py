"""Subqueries: common table expressions, and the tests EXISTS and IN among the terms of WHERE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.bind.aggregate_functions import is_aggregated
from watersmeet.bind.over import has_window_functions
from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql
from watersmeet.plan.determinism import varying_calls
from watersmeet.plan.logical.conditions import conjuncts

#: The most joins that the tests of one term of WHERE may become.
_MOST_TESTS = 24

#: The common table expressions in scope, by lower-case name.
Ctes = Mapping[str, exp.Expr]


@dataclass(frozen=True, slots=True)
class SubqueryTest:
    """[NOT] EXISTS (select), or ``operand`` [NOT] IN (select)."""

    negated: bool
    operand: exp.Expr | None
    select: exp.Select


def subquery_test(term: exp.Expr) -> SubqueryTest | None:
    """Return a term as a test of a subquery; None for any other term."""
    negated = False
    while isinstance(term, exp.Not | exp.Paren):
        negated ^= isinstance(term, exp.Not)
        term = term.this
    if isinstance(term, exp.Exists) and isinstance(term.this, exp.Select):
        return SubqueryTest(negated, None, term.this)
    if isinstance(term, exp.In) and term.args.get("query") is not None:
        inner = term.args["query"].unnest()
        if isinstance(inner, exp.Select):
            return SubqueryTest(negated, term.this, inner)
    return None


@dataclass(frozen=True, slots=True)
class WhereTerm:
    """A term of WHERE: conditions and tests of subqueries, combined by OR."""

    conditions: tuple[exp.Expr, ...]
    tests: tuple[SubqueryTest, ...] = ()


def where_terms(condition: exp.Expr | None) -> Iterator[WhereTerm]:
    """Yield the terms of WHERE, which are combined by AND.

    Where a subquery is tested inside of NOT, AND and OR, these are rearranged by rules that hold for NULL too::

        NOT (p AND NOT EXISTS (…))      NOT p OR EXISTS (…)
        p OR (q AND EXISTS (…))         (p OR q) AND (p OR EXISTS (…))

    A term that holds wherever another one does is left out.

    Raises ``UnsupportedError`` for a nondeterministic function that would be computed twice, and for tests that would
    be repeated very often.
    """
    for term in conjuncts(condition):
        if term.find(exp.Select) is None:
            yield WhereTerm((term,))
            continue
        found = _rearranged(term, negated=False)
        _refuse_repeated(found)
        if not any(True for _ in varying_calls([term])):
            found = _shortest(found)
        if (count := sum(subquery_test(part) is not None for parts in found for part in parts)) > _MOST_TESTS:
            raise UnsupportedError(
                f"AND under OR repeats tests of subqueries: these would be {count} joins, and at most {_MOST_TESTS} are"
                " made",
                hint="write a SELECT for each part of OR into one stream with INSERT INTO, and let each leave out what"
                " those before it have",
                position=position_of(term.find(exp.Select, bfs=False)),
            )
        for parts in found:
            tests = tuple(test for part in parts if (test := subquery_test(part)) is not None)
            yield WhereTerm(tuple(part for part in parts if subquery_test(part) is None), tests)


def _rearranged(term: exp.Expr, *, negated: bool) -> list[list[exp.Expr]]:
    """Return a term, or its negation, as an AND of ORs; parts without a subquery stay as they are."""
    inner = term.unnest()
    if isinstance(inner, exp.Not):
        return _rearranged(inner.this, negated=not negated)
    if not isinstance(inner, exp.And | exp.Or) or inner.find(exp.Select) is None:
        return [[exp.not_(inner) if negated else inner]]
    left, right = (_rearranged(side, negated=negated) for side in (inner.this, inner.expression))
    if isinstance(inner, exp.And) is not negated:
        return [*left, *right]
    return [[*one, *other] for one in left for other in right]


def _shortest(terms: Sequence[Sequence[exp.Expr]]) -> list[list[exp.Expr]]:
    """Return an AND of ORs, each part once, without those ORs that hold wherever another one does."""
    sets = [dict.fromkeys(parts) for parts in terms]
    return [
        list(parts)
        for place, parts in enumerate(sets)
        if not any(other.keys() < parts.keys() for other in sets)
        and not any(other.keys() == parts.keys() for other in sets[:place])
    ]


def _refuse_repeated(terms: Sequence[Sequence[exp.Expr]]) -> None:
    """Raise ``UnsupportedError`` for a nondeterministic function that several terms would compute anew."""
    parts = [part for term in terms for part in term]
    for number, part in enumerate(parts):
        if not any(part is other for other in parts[:number]):
            continue
        for call in varying_calls([part]):
            raise UnsupportedError(
                f"{plain_sql(call)} is nondeterministic, and OR with an AND of a subquery would compute it twice",
                hint="leave it out, or take EXISTS or IN out of the AND",
                position=position_of(call),
            )


def nested_query(source: exp.Expr, ctes: Ctes) -> exp.Expr | None:
    """Return the query that a relation of FROM stands for; None for a stream.

    Raises ``UnsupportedError`` as ``refuse_column_names`` does.
    """
    if isinstance(source, exp.Subquery):
        refuse_column_names(source)
        is_query = isinstance(source.this, exp.Select | exp.SetOperation) and not source.args.get("joins")
        return source.this if is_query else None
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) and not source.db:
        refuse_column_names(source)
        return None if source.args.get("joins") else ctes.get(source.name.lower())
    return None


def reads_one_stream(query: exp.Expr, ctes: Ctes) -> bool:
    """Return whether a query only filters and names the rows of one stream."""
    if not isinstance(query, exp.Select) or query.args.get("joins"):
        return False
    start, where = query.args.get("from_"), query.args.get("where")
    if start is None or (where is not None and where.find(exp.Select) is not None):
        return False
    below = nested_query(start.this, {**ctes, **ctes_of(query)})
    return isinstance(start.this, exp.Table | exp.Subquery) and (below is None or reads_one_stream(below, ctes))


def is_inlined(node: exp.Expr) -> bool:
    """Whether a nested query only joins, so that it becomes a part of the query around it."""
    if not isinstance(node, exp.Select) or is_aggregated(node) or has_window_functions(node):
        return False
    return not node.args.get("distinct") and not has_limit(node)


def has_limit(query: exp.Expr) -> bool:
    """Return whether a query has LIMIT or OFFSET."""
    return bool(query.args.get("limit") or query.args.get("offset"))


def ctes_of(select: exp.Expr) -> dict[str, exp.Expr]:
    """Return the common table expressions that a query defines; ``UnsupportedError`` where one names its columns."""
    clause = select.args.get("with_") or select.args.get("with")
    ctes = clause.expressions if clause else []
    for cte in ctes:
        refuse_column_names(cte)
    return {cte.alias.lower(): cte.this for cte in ctes}


def refuse_column_names(source: exp.Expr) -> None:
    """Raise ``UnsupportedError`` where an alias names columns, as in ``q(a, b)``, that nobody has taken.

    Those of generators do not come here; sql/column_names.py takes those of most queries.
    """
    alias = source.args.get("alias")
    if not isinstance(alias, exp.TableAlias) or not alias.columns:
        return
    names = [column.name for column in alias.columns]
    raise UnsupportedError(
        f"{alias.name}({', '.join(names)}): an alias does not name columns here",
        hint=f"name them in the SELECT list, as in SELECT … AS {names[0]}",
        position=position_of(alias.columns[0]) or position_of(source),
    )


def refuse_inner_order(select: exp.Expr) -> None:
    """Raise ``UnsupportedError`` for ORDER BY in a subquery, unless LIMIT picks rows by it."""
    order = select.args.get("order")
    if order is not None and not has_limit(select):
        raise UnsupportedError(
            "ORDER BY in a subquery has no effect",
            hint="order the outermost query, or add LIMIT",
            position=position_of(order.expressions[0]),
        )
