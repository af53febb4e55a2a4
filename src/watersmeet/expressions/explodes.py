"""Rows of an array's elements: explode, posexplode, inline and UNNEST.

id  items               id  position  element
1   [x, y]      ->      1   0         x
2   []                  1   1         y
                        2   NULL      NULL       only of an outer one
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

#: The fields of a map's entries, in Spark, Arrow and DuckDB.
KEY, VALUE = "key", "value"


@dataclass(frozen=True, slots=True)
class Explode:
    """An array or map over the columns of an input, of which each element (of a map: each entry) becomes a row.

    ``position`` (counted from 0) and ``element`` are the columns that rows get, and ``fields`` those with the fields of
    an element that is a struct: (column, field).  Without elements a row stays if it is ``outer``, with NULL in all of
    them; inside Watersmeet it always does, so that its event time counts.  ``text`` is the array as written.
    """

    array: exp.Expr
    kind: exp.DataType
    outer: bool
    position: str
    element: str
    fields: tuple[tuple[str, str], ...]
    text: str

    @property
    def is_map(self) -> bool:
        """Whether the elements are the entries of a map."""
        return bool(self.kind.is_type(exp.DataType.Type.MAP))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that rows get."""
        return (self.position, self.element, *(name for name, _ in self.fields))

    @property
    def described(self) -> tuple[str, ...]:
        """What the columns are made of, as text."""
        return (self.array.sql(dialect="spark"), self.kind.sql(dialect="spark"), str(self.outer), *self.names)


def element_type(kind: exp.DataType) -> exp.DataType | None:
    """The type of the elements of an array, or of the entries of a map; None for other types."""
    if kind.is_type(exp.DataType.Type.ARRAY) and kind.expressions:
        element: exp.DataType = kind.expressions[0]
        return element
    if kind.is_type(exp.DataType.Type.MAP) and len(kind.expressions) == 2:
        key, value = (each.sql(dialect="spark") for each in kind.expressions)
        return exp.DataType.build(f"STRUCT<{KEY}: {key}, {VALUE}: {value}>", dialect="spark")
    return None


def fields_of(kind: exp.DataType) -> list[tuple[str, exp.DataType]]:
    """The fields of a struct, and their types; none of another type."""
    if not kind.is_type(exp.DataType.Type.STRUCT):
        return []
    return [(field.name, field.args["kind"]) for field in kind.expressions]
