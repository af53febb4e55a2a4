"""Refusal of collations: operators hash, compare and sort text by its bytes, whatever a collation says."""

from __future__ import annotations

import re

from sqlglot import exp

from watersmeet.expressions.positions import position_of
from watersmeet.sql.failures import Failures

BINARY = "UTF8_BINARY"
HINT = "leave it out; to ignore case, compare lower(…) of both sides"
#: A type inside the text argument of a function: ``from_json(doc, 'name STRING COLLATE UNICODE')``.
_IN_TYPE_TEXT = re.compile(r"\b(?:STRING|(?:VAR)?CHAR\s*\(\s*\d+\s*\))\s+COLLATE\s+(\w+)", re.IGNORECASE)


def refuse_collations(tree: exp.Expr, failures: Failures) -> None:
    """Raise UnsupportedError for the first collation of an expression or a type, unless it compares bytes."""
    for node in tree.walk():
        for collation in _collations(node):
            name = collation if isinstance(collation, str) else _name(collation)
            if name.upper() != BINARY:
                raise failures.unsupported_at(
                    message(name), position_of(node if isinstance(collation, str) else collation), hint=HINT
                )


def foreign_collation(type_text: str) -> str | None:
    """The first collation in Spark's text of a type that does not compare bytes; None if there is none."""
    names = (found[1] for found in _IN_TYPE_TEXT.finditer(type_text))
    return next((name for name in names if name.upper() != BINARY), None)


def message(collation: str) -> str:
    """The text of the error."""
    return f"the collation {collation} is not supported: text is compared by its bytes ({BINARY})"


def _collations(node: exp.Expr) -> list[exp.Expr | str]:
    """The collations that a node names itself."""
    if isinstance(node, exp.Collate):
        return [node.expression]
    if isinstance(node, exp.CollateColumnConstraint):  # a field of a struct
        return [node.this]
    if isinstance(node, exp.DataType) and (collation := node.args.get("collate")) is not None:
        return [collation]
    if isinstance(node, exp.Func):
        texts = [part.name for part in node.iter_expressions() if isinstance(part, exp.Literal) and part.is_string]
        return [found[1] for text in texts if (found := _IN_TYPE_TEXT.search(text))]
    return []


def _name(collation: exp.Expr) -> str:
    """The last part of a collation's name, which may be an identifier, a text or a dotted path."""
    return collation.name
