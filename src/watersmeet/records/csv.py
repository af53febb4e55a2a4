"""CSV records into columns: a record is a line of cells.

A record is decoded here if it has no quote and no control character, has as many cells as there are columns, and each
cell is plainly a value of its column's type.  All others are left to Spark.  An empty cell is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from watersmeet.records.decimals import fitting_decimals, wide_decimal
from watersmeet.records.decoder import Block, Decoded, bounds, decode_blocks
from watersmeet.records.times import dates, timestamps
from watersmeet.records.utf8 import is_utf8

_INTEGER = r"^-?\d+$"
#: At most 15 digits: a double holds them, and rounding is the same however it is done.
_FRACTION = r"^-?\d{1,9}(\.\d{1,6})?$"
_DECIMAL = r"^-?\d{1,38}(\.\d{1,38})?$"
_TRUTH = r"^(true|false)$"
#: Nothing but white space, or a byte order mark, which Arrow drops.
_BLANK_OR_MARKED = rb"^(\s*$|\xef\xbb\xbf)"
_FIRST_PRINTABLE, _QUOTE, _DELETE = 0x20, ord('"'), 0x7F
_LONGEST = 10_000  # bytes of a record


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """Decodes lines of cells; ``columns`` are the declared columns."""

    columns: pa.Schema

    def decode(self, values: pa.Array) -> Decoded:
        """Decode records that are plainly a line of values of the declared types."""
        return decode_blocks(values, np.flatnonzero(_is_plain(values)), self._block)

    def _block(self, values: pa.Array) -> Block:
        if len(values) == 0:
            return self.columns.empty_table()
        names = [f"c{number}" for number in range(len(self.columns))]
        records = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        text = pc.binary_join(records, b"\n")[0].as_buffer()
        try:
            cells = pyarrow.csv.read_csv(
                pa.BufferReader(text),
                read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=text.size + 1, column_names=names),
                parse_options=pyarrow.csv.ParseOptions(quote_char=False, double_quote=False, ignore_empty_lines=False),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
                ),
            )
        except pa.ArrowInvalid:
            return None
        if cells.num_rows != len(values):
            return None
        if (unfit := _is_unfit(cells, self.columns)).any():
            return unfit
        found = [_as_declared(cells[name], each.type) for name, each in zip(names, self.columns, strict=True)]
        return None if any(column is None for column in found) else pa.Table.from_arrays(found, schema=self.columns)


def csv_decoder(columns: pa.Schema) -> CsvDecoder | None:
    """A decoder for the declared columns; None if only Spark can decode one of them."""
    return CsvDecoder(columns) if len(columns) and all(_has_cells(each.type) for each in columns) else None


def _has_cells(kind: pa.DataType) -> bool:
    is_number = pa.types.is_signed_integer(kind) or kind in (pa.float32(), pa.float64()) or pa.types.is_decimal128(kind)
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    return is_number or is_time or kind in (pa.string(), pa.bool_())


def _is_plain(values: pa.Array) -> np.ndarray:
    """A mask of the records that have no quote and no control character, and are not blank or long."""
    starts, ends, data = bounds(values)
    plain = np.asarray((ends > starts) & (ends - starts <= _LONGEST))
    if not plain.any():
        return plain
    places = np.flatnonzero((data < _FIRST_PRINTABLE) | (data == _QUOTE) | (data == _DELETE))
    places = places[(places >= starts[0]) & (places < ends[-1])]
    plain[np.searchsorted(ends, places, "right")] = False
    plain &= is_utf8(values)
    is_odd = pc.fill_null(pc.match_substring_regex(values, _BLANK_OR_MARKED), True)
    return np.asarray(plain & ~is_odd.to_numpy(zero_copy_only=False))


def _is_unfit(cells: pa.Table, columns: pa.Schema) -> np.ndarray:
    """A mask of the records with a cell that does not look like a value of its type; times are not looked at."""
    unfit = np.zeros(len(cells), bool)
    for column, each in zip(cells.columns, columns, strict=True):
        if (pattern := _pattern(each.type)) is not None:
            matches = pc.fill_null(pc.match_substring_regex(column, pattern), True)
            unfit |= ~matches.to_numpy()
    return unfit


def _pattern(kind: pa.DataType) -> str | None:
    if pa.types.is_boolean(kind):
        return _TRUTH
    if pa.types.is_integer(kind):
        return _INTEGER
    if pa.types.is_decimal128(kind):
        return _DECIMAL
    return _FRACTION if pa.types.is_floating(kind) else None


def _as_declared(cells: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The values of cells that look like them; None if only Spark can decode some of them."""
    if kind == pa.string():
        return cells
    if pa.types.is_timestamp(kind):
        return timestamps(cells, kind)
    if pa.types.is_date32(kind):
        return dates(cells)
    try:
        if pa.types.is_decimal128(kind):
            return fitting_decimals(cells.cast(wide_decimal(kind)), kind)
        return cells.cast(kind)
    except pa.ArrowInvalid:  # a number out of range
        return None
