"""Arrow columns as the plain Python values that ``cells`` and the writers of records know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.records.schema_registry.cells import Days, LocalMicros, Micros


def plain_values(column: pa.Array) -> list[Any]:
    """The values of a column.

    A struct is a dict, a map a list of pairs; times and dates are numbers of their own types.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        own = LocalMicros if kind.tz is None else Micros
        return _wrapped(column.cast(pa.timestamp("us", kind.tz)).view(pa.int64()), own)
    if kind == pa.date32():
        return _wrapped(column.view(pa.int32()), Days)
    if pa.types.is_struct(kind):
        valid = column.is_valid().to_pylist()
        return [row if is_valid else None for row, is_valid in zip(_rows(column), valid, strict=True)]
    if pa.types.is_list(kind):
        values = plain_values(column.flatten())
        return _nested(pc.list_value_length(column).to_pylist(), values)
    if pa.types.is_map(kind):
        return _maps(column)
    found: list[Any] = column.to_pylist()
    return found


def _rows(rows: pa.StructArray) -> list[dict[str, Any]]:
    names = [each.name for each in rows.type]
    columns = [plain_values(column) for column in rows.flatten()]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _wrapped(numbers: pa.Array, own: Callable[[int], Any]) -> list[Any]:
    return [None if each is None else own(each) for each in numbers.to_pylist()]


def _nested(lengths: list[int | None], values: list[Any]) -> list[Any]:
    found: list[Any] = []
    place = 0
    for length in lengths:
        if length is None:
            found.append(None)
            continue
        found.append(values[place : place + length])
        place += length
    return found


def _maps(column: pa.Array) -> list[Any]:
    lists = pa.ListArray.from_arrays(
        column.offsets, pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    )
    rows = plain_values(lists)
    valid = column.is_valid().to_pylist()
    return [
        [(each["key"], each["value"]) for each in row] if is_valid else None
        for row, is_valid in zip(rows, valid, strict=True)
    ]
