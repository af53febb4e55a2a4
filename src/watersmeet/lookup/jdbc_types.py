"""Types of databases and Arrow: which may be declared, and how values and keys convert."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from watersmeet.lookup.source import misfit

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine


def python_type(kind: TypeEngine[Any]) -> type | None:
    """Return the Python type of a column's values; None where SQLAlchemy does not know it."""
    try:
        return kind.python_type
    except NotImplementedError:
        return None


def fits(declared: pa.DataType, actual: TypeEngine[Any]) -> bool:
    """Return whether a column of the database may be declared with a type."""
    found = python_type(actual)
    if pa.types.is_timestamp(declared):
        return found is dt.datetime and bool(getattr(actual, "timezone", False)) == (declared.tz is not None)
    for belongs, allowed in _ALLOWED:
        if belongs(declared):
            return found in allowed
    return False


_ALLOWED: tuple[tuple[Any, tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_integer, (int,)),
    (pa.types.is_floating, (float, int, Decimal)),
    (pa.types.is_decimal, (Decimal, int)),
    (pa.types.is_string, (str, UUID)),
    (pa.types.is_binary, (bytes,)),
    (pa.types.is_date, (dt.date,)),
)


def bind_type(declared: pa.DataType) -> TypeEngine[Any]:
    """Return the type with which values of a key are bound."""
    import sqlalchemy as sa

    if pa.types.is_timestamp(declared):
        return sa.DateTime(timezone=declared.tz is not None)
    types: tuple[tuple[Any, TypeEngine[Any]], ...] = (
        (pa.types.is_boolean, sa.Boolean()),
        (pa.types.is_integer, sa.BigInteger()),
        (pa.types.is_floating, sa.Double()),
        (pa.types.is_decimal, sa.Numeric()),
        (pa.types.is_binary, sa.LargeBinary()),
        (pa.types.is_date, sa.Date()),
    )
    return next((kind for belongs, kind in types if belongs(declared)), sa.Text())


def key_values(values: Sequence[Any], found: type | None, *, takes_nul: bool, takes_nan: bool) -> list[Any]:
    """Return keys as values to bind; None, which equals nothing, for keys that no row of the table can have."""
    if found is UUID:
        return [_uuid(value) for value in values]

    def is_possible(value: Any) -> bool:
        if isinstance(value, str):  # PostgreSQL has no text with a NUL character, and refuses a query that contains one
            return takes_nul or "\0" not in value
        return takes_nan or not isinstance(value, float) or math.isfinite(value)  # so do MariaDB and MySQL with NaN

    return [value if is_possible(value) else None for value in values]


def _uuid(value: Any) -> UUID | None:
    try:
        uuid = UUID(value)
    except (ValueError, TypeError):
        return None
    return uuid if str(uuid) == value else None


def as_arrow(table: str, schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows of the database as Arrow; raises ``ConnectorError`` for a value outside its declared type."""
    columns = []
    for field, values in zip(schema, zip(*rows, strict=True) if rows else [()] * len(schema), strict=True):
        try:
            columns.append(pa.array(_converted(values, field.type), field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
            raise misfit(table, field, "other values") from None
    return pa.table(columns, schema=schema)


def _converted(values: Sequence[Any], declared: pa.DataType) -> Sequence[Any]:
    if pa.types.is_floating(declared):
        return [None if value is None else float(value) for value in values]
    if pa.types.is_string(declared):
        return [str(value) if isinstance(value, UUID) else value for value in values]
    return values
