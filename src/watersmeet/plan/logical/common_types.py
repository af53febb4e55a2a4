"""The one type that holds the values of several: of branches, of elements, of both sides of a key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from watersmeet.expressions.explodes import fields_of
from watersmeet.expressions.type_groups import FRACTIONS, INTEGERS, MAX_DIGITS, NUMBERS, TEXTS, digits_of

_T = exp.DataType.Type


def common_type(kinds: Iterable[exp.DataType | None]) -> exp.DataType | None:
    """Return a type that holds every value of all ``kinds``; None if one is not certain, or there is no such type."""
    found = list(kinds)
    known = [kind for kind in found if kind is not None]
    if not known or len(known) < len(found):
        return None
    if all(kind == known[0] for kind in known):
        return known[0]
    if all(kind.is_type(*TEXTS) for kind in known):
        return build_type("STRING")
    if all(kind.is_type(*INTEGERS) for kind in known):
        return max(known, key=lambda kind: INTEGERS.index(kind.this))
    if not all(kind.is_type(*NUMBERS) for kind in known):
        return _common_nested(known)
    if any(kind.is_type(*FRACTIONS) for kind in known):
        return build_type("DOUBLE")
    return decimal_type(*common_digits(known))


def common_digits(kinds: Iterable[exp.DataType]) -> tuple[int, int]:
    """Return the digits that hold all values of decimals and integers, and how many of them follow the point."""
    digits = [digits_of(kind) for kind in kinds]
    scale = max(scale for _, scale in digits)
    return max(precision - scale for precision, scale in digits) + scale, scale


def _common_nested(kinds: Sequence[exp.DataType]) -> exp.DataType | None:
    """The common type of arrays, of maps, or of structs with the same fields."""
    first = kinds[0]
    if any(kind.this != first.this for kind in kinds):
        return None
    if first.is_type(_T.STRUCT):
        names = [name for name, _ in fields_of(first)]
        if any([name for name, _ in fields_of(kind)] != names for kind in kinds):
            return None
        by_field = [
            common_type(parts) for parts in zip(*(dict(fields_of(kind)).values() for kind in kinds), strict=True)
        ]
        return struct_type(zip(names, by_field, strict=True))
    if first.is_type(_T.ARRAY):
        return array_type(common_type(kind.expressions[0] for kind in kinds))
    if first.is_type(_T.MAP):
        return map_type(*(common_type(parts) for parts in zip(*(kind.expressions for kind in kinds), strict=True)))
    return None


def array_type(element: exp.DataType | None) -> exp.DataType | None:
    """The type of arrays of such elements; None if theirs is not certain."""
    return None if element is None else exp.DataType(this=_T.ARRAY, expressions=[element.copy()], nested=True)


def map_type(key: exp.DataType | None, value: exp.DataType | None) -> exp.DataType | None:
    """The type of maps of such entries; None if theirs is not certain."""
    if key is None or value is None:
        return None
    return exp.DataType(this=_T.MAP, expressions=[key.copy(), value.copy()], nested=True)


def struct_type(fields: Iterable[tuple[str, exp.DataType | None]]) -> exp.DataType | None:
    """The type of structs with these fields; None if one of theirs is not certain."""
    parts: list[exp.Expr] = []
    for name, kind in fields:
        if kind is None:
            return None
        parts.append(exp.ColumnDef(this=exp.to_identifier(name), kind=kind.copy()))
    return exp.DataType(this=_T.STRUCT, expressions=parts, nested=True)


def decimal_type(precision: int, scale: int) -> exp.DataType | None:
    """A decimal with so many digits, of which ``scale`` follow the point; None if there is no such type."""
    return build_type(f"DECIMAL({precision}, {scale})") if precision <= MAX_DIGITS else None


def build_type(kind: str) -> exp.DataType:
    """The type of a name in Spark SQL."""
    return exp.DataType.build(kind, dialect="spark")
