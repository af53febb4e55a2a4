"""Decode Avro records, one per value, from bytes to Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.records.avro_schema import AvroType, Field, Kind, avro_fields
from watersmeet.records.avro_values import Cells, Octets, read_field
from watersmeet.records.decoder import Decoded, bounds
from watersmeet.records.utf8 import is_utf8


def avro_decoder(schema_json: str, columns: pa.Schema) -> AvroDecoder | None:
    """Return a decoder of the schema's records into ``columns``, or None if only Spark decodes them.

    It decodes flat records of primitive types, enums and fixed bytes, and unions of these with null, into columns of
    the same type.  Columns of whole numbers may have another width.
    """
    written = avro_fields(schema_json)
    # a table without columns has no rows
    if written is None or not 0 < len(columns) == len({name.lower() for name in columns.names}):
        return None
    fields = list(written)
    places = []
    for column in columns:
        place = _place(column.name, written)
        if place is None or column.type not in fields[place].type.columns:
            return None
        fields[place] = replace(fields[place], type=_narrowed(fields[place].type, column.type))
        places.append(place)
    return AvroDecoder(tuple(fields), tuple(places), columns)


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """Decodes records of ``fields``; the columns take the values of the fields at ``places``."""

    fields: tuple[Field, ...]
    places: tuple[int, ...]
    columns: pa.Schema

    def decode(self, values: pa.Array) -> Decoded:
        """Decode ``values`` (``binary``); leave NULLs and every record that Spark might read differently."""
        data, cursor, ends = _octets(values)
        cells = []
        for field in self.fields:
            found, cursor = read_field(field, data, cursor)
            cells.append(found)
        good = cursor == ends
        if values.null_count:
            good &= values.is_valid().to_numpy(zero_copy_only=False)
        records = np.flatnonzero(good)
        arrays = [
            _array(self.fields[place].type, column.type, cells[place], data, records)
            for place, column in zip(self.places, self.columns, strict=True)
        ]
        is_text = _are_text(arrays, self.columns, len(records))
        if not is_text.all():
            records = records[is_text]
            arrays = [array.filter(pa.array(is_text)) for array in arrays]
        is_left = np.ones(len(values), bool)
        is_left[records] = False
        return Decoded(_table(arrays, self.columns), records, np.flatnonzero(is_left))


def _place(column: str, written: Sequence[Field]) -> int | None:
    """Return the number of a column's field: of its exact name, else of its name without case."""
    names = [field.name for field in written]
    if column in names:
        return names.index(column)
    lower = [name.lower() for name in names]
    return lower.index(column.lower()) if column.lower() in lower else None


def _narrowed(written: AvroType, column: pa.DataType) -> AvroType:
    """Leave numbers to Spark that a column cannot hold."""
    if not pa.types.is_signed_integer(column):
        return written
    most = 2 ** (column.bit_width - 1) - 1
    return replace(written, low=max(written.low, -most - 1), high=min(written.high, most))


def _octets(values: pa.Array) -> tuple[Octets, np.ndarray, np.ndarray]:
    """Return the bytes of all records, and where each begins and ends."""
    starts, ends, octets = bounds(values)
    first, last = int(starts.min(initial=2**62)), int(ends.max(initial=0))
    return Octets.of(octets[first:last]), starts - first, ends - first


def _array(written: AvroType, column: pa.DataType, cells: Cells, data: Octets, records: np.ndarray) -> pa.Array:
    """Return the values of some records; strings as bytes."""
    bits = None if cells.is_null is None else _bits(~cells.is_null[records])
    count = len(records)
    if cells.starts is not None and cells.ends is not None:
        return _bytes_array(data, cells.starts[records], cells.ends[records], bits)
    assert cells.values is not None
    values = cells.values[records]
    if written.symbols:
        numbers = pa.Array.from_buffers(pa.int64(), count, [bits, pa.py_buffer(values)])
        return pa.array([symbol.encode() for symbol in written.symbols], pa.binary()).take(numbers)
    if written.kind is Kind.BOOLEAN:
        return pa.Array.from_buffers(column, count, [bits, _bits(values)])
    if written.kind is Kind.WHOLE:
        values = (values * written.scale).astype(f"i{column.bit_width // 8}", copy=False)
    return pa.Array.from_buffers(column, count, [bits, pa.py_buffer(values)])


def _bytes_array(data: Octets, starts: np.ndarray, ends: np.ndarray, bits: pa.Buffer | None) -> pa.Array:
    """Copy the bytes between ascending positions; null where a bit is 0."""
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    # an array of the values and of what lies between them, which Arrow copies without
    offsets = np.empty(2 * count, np.int32)
    offsets[::2], offsets[1::2] = starts, ends
    with_gaps = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data.octets)]
    )
    copied = with_gaps.take(pa.array(np.arange(0, 2 * count, 2)))
    return copied if bits is None else pa.Array.from_buffers(pa.binary(), count, [bits, *copied.buffers()[1:]])


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _are_text(arrays: Sequence[pa.Array], columns: pa.Schema, count: int) -> np.ndarray:
    """Return which rows have valid UTF-8 in all their strings."""
    good = np.ones(count, bool)
    for array, column in zip(arrays, columns, strict=True):
        if column.type == pa.string():
            good &= is_utf8(array)
    return good


def _table(arrays: Sequence[pa.Array], columns: pa.Schema) -> pa.Table:
    """Return the declared columns, with checked bytes as strings."""
    is_text = [column.type == pa.string() for column in columns]
    typed = [array.view(pa.string()) if text else array for array, text in zip(arrays, is_text, strict=True)]
    return pa.Table.from_arrays(typed, schema=columns)
