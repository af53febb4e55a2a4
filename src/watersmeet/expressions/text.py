"""Expressions as users write them, and whether two are the same however they are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from watersmeet.expressions.nodes import StreamJoin, SystemTime, WindowTable

#: A column of an exploded array (bind/inputs.py): the name of its rows, then an element, its position or a field.
_EXPLODED = re.compile(r"[^\s:(]+:\$([^\s:$]+):\$?")


class _Generator(SparkGenerator):
    """Writes joins with clauses for streams too, most without these: errors name subqueries in which they stand."""

    TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., Any]]] = {
        **SparkGenerator.TRANSFORMS,
        StreamJoin: SparkGenerator.join_sql,
        WindowTable: lambda self, node: (
            f"{node.args['name']}({self.sql(node, 'this')}, DESCRIPTOR({self.sql(node, 'time')}), "
            f"{self.expressions(node, flat=True)})"
        ),
        SystemTime: lambda self, node: f"FOR SYSTEM_TIME AS OF {self.sql(node, 'expression')}",
    }


def plain_sql(expression: exp.Expr) -> str:
    """Return SQL for an expression over physical columns as users write it (``o:id`` becomes o.id)."""

    def plain(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Identifier):
            name = without_owner(node.name.replace(":$window", ".window")).replace(":", ".")
            return exp.Identifier(this=name, quoted=False)
        return node

    return _Generator(dialect="spark").generate(expression.copy().transform(plain, copy=False), copy=False)


def without_owner(name: str) -> str:
    """A physical name, or text with such names: an exploded column without the input that it is of.

    >>> without_owner("o:$t:price"), without_owner("o:$t:$element")
    ('t:price', 't:element')
    """
    return _EXPLODED.sub(r"\1:", name)


def is_same(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether two expressions are the same but for parentheses that change nothing."""
    return type(one.unnest()) is type(other.unnest()) and bare(one) == bare(other)


def bare(expression: exp.Expr) -> exp.Expr:
    """An expression without parentheses, to compare it: the tree says what they say."""
    found = expression.unnest().copy()
    for parentheses in list(found.find_all(exp.Paren)):
        parentheses.replace(parentheses.this)
    return found
