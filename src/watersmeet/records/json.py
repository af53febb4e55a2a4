"""JSON records into columns, by Arrow's parser.

Records are joined by line feeds and parsed as one text.  Each is one JSON object: it begins with ``{`` and ends with
``}``, and where a ``}`` and a line feed are followed by a ``{``, either an object at the top has ended or the text is
not JSON.  So if there are as many objects as records, each record is one of them.

Arrow's parser is stricter than Spark's with few exceptions, which are left to Spark: bytes that are not UTF-8, names of
infinities and of NaN, and sizes that Spark limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from watersmeet.records.decimals import fitting_decimals, wide_decimal
from watersmeet.records.decoder import Decoded, bounds, decode_blocks
from watersmeet.records.times import dates, timestamps
from watersmeet.records.utf8 import is_utf8

_NOT_A_NUMBER = r"[:,\[\s][+-]?(NaN|Inf)"
# The limits of Spark's parser: 1,000 levels, 1,000 digits, names of 50,000 characters.
_SHORT_BYTES = 1_000
_LONG_BYTES = 50_000
_MOST_LEVELS = 500
_MANY_DIGITS = r"[0-9.eE+-]{500}"
_LONG_NUMBER = r"[0-9]{39}|[0-9.][eE][+-]?[0-9]+[\s,}\]\"]"
_LAST_SECOND = 253_402_300_799  # of the year 9999
_FIRST_SECOND = -62_135_596_800
_LARGEST_FLOAT, _SMALLEST_FLOAT = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


@dataclass(slots=True)
class JsonDecoder:
    """Decodes JSON objects; ``columns`` are the declared columns.

    Times with a zone may be texts or whole seconds.  ``_reads`` are the types to read them as, those found last first.
    """

    columns: pa.Schema
    _reads: list[pa.Schema] = field(init=False)

    def __post_init__(self) -> None:
        self._reads = readings(self.columns)

    def decode(self, values: pa.Array) -> Decoded:
        """Decode records that are plainly one JSON object with values of the declared types."""
        plain = is_plain(values)
        if any(pa.types.is_decimal128(each.type) for each in self.columns):
            plain &= ~_has_long_numbers(values)
        return decode_blocks(values, np.flatnonzero(plain), self._block)

    def _block(self, values: pa.Array) -> pa.Table | None:
        for place, schema in enumerate(self._reads):
            read = read_objects(values, schema)
            if read is not None and (rows := as_declared(read, self.columns)) is not None:
                self._reads.insert(0, self._reads.pop(place))
                return rows
        return None


def json_decoder(columns: pa.Schema) -> JsonDecoder | None:
    """A decoder for the declared columns; None if only Spark can decode one of them."""
    return JsonDecoder(columns) if all(is_plain_type(each.type) for each in columns) else None


def is_plain_type(kind: pa.DataType) -> bool:
    """Whether values of a declared type can be decoded here."""
    is_number = pa.types.is_signed_integer(kind) or kind in (pa.float32(), pa.float64()) or pa.types.is_decimal128(kind)
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    return is_number or is_time or kind in (pa.string(), pa.bool_())


def readings(columns: pa.Schema) -> list[pa.Schema]:
    """The types to read declared columns as, the usual ones first."""

    def reading(kind: pa.DataType, of_instants: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return of_instants
        if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
            return pa.string()
        if pa.types.is_decimal128(kind):
            return wide_decimal(kind)
        return pa.float64() if kind == pa.float32() else kind

    schemas = [
        pa.schema([(each.name, reading(each.type, instants)) for each in columns])
        for instants in (pa.string(), pa.int64())
    ]
    return schemas[:1] if schemas[0] == schemas[1] else schemas


# -- records -----------------------------------------------------------------------------------------------------------


def is_plain(values: pa.Array) -> np.ndarray:
    """A mask of the records that may be read by ``read_objects``."""
    starts, ends, data = bounds(values)
    plain: np.ndarray = ends - starts >= 2
    if not plain.any():
        return plain
    plain[plain] = (data[starts[plain]] == ord("{")) & (data[ends[plain] - 1] == ord("}"))
    long = plain & (ends - starts > _SHORT_BYTES)
    if long.any():
        plain[long] = _is_within_limits(values.filter(pa.array(long)))
    plain &= is_utf8(values)
    octets = data.tobytes()
    if b"NaN" in octets or b"Inf" in octets:
        found = pc.fill_null(pc.match_substring_regex(values, _NOT_A_NUMBER), False)
        plain &= ~found.to_numpy(zero_copy_only=False)
    return plain


def _has_long_numbers(values: pa.Array) -> np.ndarray:
    """A mask of the records that may have numbers too long to be read as wide decimals, or with an exponent."""
    found: np.ndarray = pc.fill_null(pc.match_substring_regex(values, _LONG_NUMBER), True).to_numpy(
        zero_copy_only=False
    )
    return found


def _is_within_limits(values: pa.Array) -> np.ndarray:
    levels = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
    within = pc.and_(pc.less(pc.binary_length(values), _LONG_BYTES), pc.less(levels, _MOST_LEVELS))
    has_digits = pc.match_substring_regex(values, _MANY_DIGITS)
    mask: np.ndarray = pc.and_not(within, has_digits).to_numpy(zero_copy_only=False)
    return mask


def read_objects(values: pa.Array, schema: pa.Schema) -> pa.Table | None:
    """The rows of records, one each; None if not all of them can be read so."""
    if len(values) == 0:
        return schema.empty_table()
    records = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text = pc.binary_join(records, b"\n")[0].as_buffer()
    try:
        rows = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    return rows if rows.num_rows == len(values) else None


# -- values ------------------------------------------------------------------------------------------------------------


def as_declared(read: pa.Table, columns: pa.Schema) -> pa.Table | None:
    """What ``read_objects`` returned in the declared types; None if only Spark can decode some values."""
    found = [_as_declared(read[each.name], each.type) for each in columns]
    return None if any(column is None for column in found) else pa.Table.from_arrays(found, schema=columns)


def _as_declared(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The values in the declared type; None if only Spark can decode some of them."""
    if pa.types.is_timestamp(kind) and column.type == pa.int64():
        lowest, highest = pc.min_max(column).values()
        in_range = not lowest.is_valid or (lowest.as_py() >= _FIRST_SECOND and highest.as_py() <= _LAST_SECOND)
        return pc.multiply(column, 1_000_000).cast(kind) if in_range else None
    if pa.types.is_timestamp(kind):
        return timestamps(column, kind)
    if pa.types.is_date32(kind):
        return dates(column)
    if pa.types.is_decimal128(kind):
        return fitting_decimals(column, kind)
    if pa.types.is_floating(kind):
        # Spark reads -0 as 0.0, and -0.0 as it stands
        # Arrow rounds what is just above the largest double to infinity, Spark refuses it
        numbers = pc.fill_null(column, 0.0).to_numpy()
        if (np.signbit(numbers) & (numbers == 0)).any() or not np.isfinite(numbers).all():
            return None
        return _as_float(column, numbers) if kind == pa.float32() else column
    return column


def _as_float(column: pa.ChunkedArray, numbers: np.ndarray) -> pa.ChunkedArray | None:
    """Round doubles to floats; None where the digits of a number might be rounded otherwise at once.

    That is where the double is just between two floats, or the float is not a normal number.
    """
    sizes = np.abs(numbers)
    is_between = (numbers.view(np.int64) & 0x1FFF_FFFF) == 0x1000_0000
    is_usual = (sizes == 0) | ((sizes > _SMALLEST_FLOAT) & (sizes < _LARGEST_FLOAT))
    return column.cast(pa.float32(), safe=False) if (is_usual & ~is_between).all() else None
