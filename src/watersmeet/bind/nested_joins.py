"""Joins that are one side of another join: ``a JOIN (b JOIN c ON …) ON …``, or ``a JOIN b JOIN c ON … ON …``."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from watersmeet.bind.relations import Relation
from watersmeet.bind.scope import Scope
from watersmeet.errors import BindError, UnsupportedError
from watersmeet.expressions.positions import position_of


def is_nested(source: exp.Expr) -> bool:
    """Whether joins stand here, not one stream or subselect."""
    return in_parentheses(source) or bool(source.args.get("joins"))


def in_parentheses(source: exp.Expr) -> bool:
    """Whether parentheses stand around a part of FROM, not around a SELECT."""
    return isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table | exp.Subquery)


def refuse_alias(source: exp.Expr) -> None:
    """Raise ``UnsupportedError`` for an alias of parentheses: it would hide those of the streams in them."""
    alias = source.args.get("alias")
    if alias is not None:
        raise UnsupportedError(
            f"joins in parentheses take no alias ({source.alias})",
            hint=f"leave it out, and use the aliases in the parentheses; or write (SELECT … FROM …) {source.alias}",
            position=position_of(alias) or position_of(source),
        )


def refuse_repeated(relations: Iterable[Relation], scope: Scope, source: exp.Expr) -> None:
    """Raise ``BindError`` where an alias in parentheses is taken outside them."""
    for relation in relations:
        if scope.relation(relation.alias) is not None:
            named = source.find_all(exp.Table, exp.Subquery)
            place = next((each for each in named if each.alias_or_name.lower() == relation.alias.lower()), source)
            raise repeated(relation.alias, place)


def repeated(alias: str, source: exp.Expr) -> BindError:
    """The error for an alias that FROM has twice."""
    return BindError(f"{alias} appears in FROM twice", hint="give each its own alias", position=position_of(source))
