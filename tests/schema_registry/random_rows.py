"""Random declared columns of every type, and rows of them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.records.schema_registry.plain_values import plain_values

UTC_TIME, LOCAL_TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
SCALARS = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(12, 3),
    pa.decimal128(38, 0),
    pa.string(),
    pa.binary(),
    pa.date32(),
    UTC_TIME,
    LOCAL_TIME,
]


class Rows:
    """Columns and rows by seed; ``in_lists``: whether lists and maps may have NULLs and other lists in them."""

    def __init__(self, seed: object, *, in_lists: bool = True) -> None:
        self.random = random.Random(repr(seed))
        self.in_lists = in_lists

    def columns(self, count: int | None = None) -> pa.Schema:
        number = count or self.random.randint(1, 6)
        return pa.schema([(f"c{n}", self.type(2)) for n in range(number)])

    def type(self, depth: int) -> pa.DataType:
        choice = self.random.random()
        if depth == 0 or choice < 0.6:
            return self.random.choice(SCALARS)
        if choice < 0.75:
            return pa.list_(self._element(depth - 1))
        if choice < 0.85:
            return pa.map_(pa.string(), self._element(depth - 1))
        return pa.struct([(f"s{n}", self.type(depth - 1)) for n in range(self.random.randint(1, 3))])

    def _element(self, depth: int) -> pa.DataType:
        found = self.type(depth)
        while not self.in_lists and (pa.types.is_list(found) or pa.types.is_map(found)):
            found = self.type(depth)
        return found

    def table(self, columns: pa.Schema, count: int = 5) -> pa.Table:
        rows = [{each.name: self.value(each.type) for each in columns} for _ in range(count)]
        return pa.Table.from_pylist(rows, columns)

    def value(self, kind: pa.DataType, *, is_null: float = 0.2) -> Any:
        r = self.random
        is_nested = pa.types.is_list(kind) or pa.types.is_map(kind)
        if r.random() < (is_null if self.in_lists or not is_nested else 0):
            return None
        inner = 0.2 if self.in_lists else 0.0
        if pa.types.is_list(kind):
            return [self.value(kind.value_type, is_null=inner) for _ in range(r.choice([0, 1, 3]))]
        if pa.types.is_map(kind):
            return [(f"k{n}", self.value(kind.item_type, is_null=inner)) for n in range(r.choice([0, 1, 3]))]
        if pa.types.is_struct(kind):
            return {each.name: self.value(each.type) for each in kind}
        return self._scalar(kind)

    def _scalar(self, kind: pa.DataType) -> Any:
        r = self.random
        if pa.types.is_integer(kind):
            most = 2 ** (kind.bit_width - 1) - 1
            return r.choice([0, 1, -1, most, -most - 1, r.randint(-most, most)])
        if pa.types.is_decimal(kind):
            most = 10**kind.precision - 1
            number = r.choice([0, most, -most, r.randint(-most, most)])
            return Decimal((int(number < 0), [int(digit) for digit in str(abs(number))], -kind.scale))
        if kind == pa.float32():
            return r.choice([0.0, -0.0, 1.5, float("inf"), 2.0**-149])
        if kind == pa.float64():
            return r.choice([0.1, -0.0, float("-inf"), 5e-324, r.uniform(-1e300, 1e300)])
        if pa.types.is_timestamp(kind):
            moment = datetime(r.choice([1, 1582, 1969, 2026, 9999]), 7, 4, 12, 30, 1, r.choice([0, 1, 999_999]), UTC)
            return moment.replace(tzinfo=None) if kind.tz is None else moment
        return {
            pa.bool_(): True,
            pa.string(): r.choice(["", "a", "ä🙂\u0000", "x" * 300]),
            pa.binary(): r.randbytes(r.choice([0, 1, 200])),
            pa.date32(): r.choice([date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
        }[kind]


def struct_of(table: pa.Table) -> pa.Array:
    """A table as one array of structs."""
    return pa.concat_arrays([batch.to_struct_array() for batch in table.combine_chunks().to_batches()])


def values_of(table: pa.Table) -> list[Any]:
    """The values of a table, which compare also where Python has no such time."""
    return plain_values(struct_of(table))
