"""Values that a format has no type for as text, which reads back as the same values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.records.schema_registry.cells import MisfitError


def text_of(kind: pa.DataType) -> Callable[[Any], str] | None:
    """Return what writes DECIMAL, DATE and TIMESTAMP_NTZ as text; None for another type."""
    if pa.types.is_decimal(kind):
        return _decimal
    if kind == pa.date32():
        return _date
    return _local if pa.types.is_timestamp(kind) and kind.tz is None else None


def _decimal(value: Decimal) -> str:
    return f"{value:f}"


def _date(value: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=int(value))).isoformat()
    except OverflowError:
        raise MisfitError("a date before the year 1 or after 9999 cannot be written as text") from None


def _local(value: int) -> str:
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=int(value))).isoformat()  # noqa: DTZ001 - without a zone
    except OverflowError:
        raise MisfitError("a time before the year 1 or after 9999 cannot be written as text") from None
