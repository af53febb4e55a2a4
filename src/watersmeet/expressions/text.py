"""Expressions as their author would write them."""

from __future__ import annotations

from sqlglot import exp


def plain_sql(expression: exp.Expr) -> str:
    """An expression over physical columns as its author would write it (``o:id`` is o.id)."""

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Identifier):
            return exp.Identifier(this=node.name.replace(":", "."), quoted=False)
        return node

    return expression.copy().transform(plain, copy=False).sql(dialect="spark")
