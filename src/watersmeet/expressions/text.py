"""Expressions as users write them."""

from __future__ import annotations

from sqlglot import exp


def plain_sql(expression: exp.Expr) -> str:
    """Return SQL for an expression over physical columns as users write it (``o:id`` becomes o.id)."""

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Identifier):
            return exp.Identifier(this=node.name.replace(":", "."), quoted=False)
        return node

    return expression.copy().transform(plain, copy=False).sql(dialect="spark")
