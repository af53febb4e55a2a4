"""UNION as it is written: which queries it combines."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.bind.subqueries import ctes_of, has_limit


def is_union_all(node: exp.Expr) -> bool:
    """Whether a query only puts the rows of others together."""
    return isinstance(node, exp.Union) and not node.args.get("distinct") and not has_limit(node)


def branches(node: exp.Expr) -> Iterator[exp.Expr]:
    """The queries that UNION combines; those of an inner UNION ALL are its own."""
    assert isinstance(node, exp.Union)
    for side in (node.this, node.expression):
        query = side.unnest() if isinstance(side, exp.Subquery) else side
        if (is_union_all(query) and not ctes_of(query)) or (isinstance(query, exp.Union) and _is_same(query, node)):
            yield from branches(query)
        else:
            yield query


def _is_same(query: exp.Union, node: exp.Union) -> bool:
    """Whether both are UNION without ALL, which returns each row of all once."""
    is_distinct = query.args.get("distinct") and node.args.get("distinct")
    return bool(is_distinct) and not ctes_of(query) and not has_limit(query)
