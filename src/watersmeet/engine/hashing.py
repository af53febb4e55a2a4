"""Spark's ``xxhash64`` over Arrow columns, so that rows hashed in a worker and rows hashed by Spark share buckets.

Columns are hashed in order, each with the hash so far as its seed; NULL does not change the hash.  Integers of up to 32
bits, dates, booleans and FLOAT are hashed as 4 bytes; longer integers, DOUBLE, timestamps and short decimals as 8; text
and binary as their bytes.  Algorithm: XXH64, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
#: Spark hashes decimals of more digits as the bytes of a Java BigInteger.
_LONGEST_DECIMAL = 18
_ALL_DIGITS = Context(prec=76)


def can_hash(kind: pa.DataType, *, slowly: bool = False) -> bool:
    """Return whether columns of a type can be hashed here, if it may also be done ``slowly``."""
    if pa.types.is_decimal(kind):
        return slowly or bool(kind.precision <= _LONGEST_DECIMAL)
    return _is_text(kind) or _width(kind) is not None


def xxhash64(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """Return the hash (int64) of each row of some columns, at least one, of types that ``can_hash``, if slowly."""
    hashes = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    for column in columns:
        hashed = _hashed(column, hashes)
        hashes = hashed if column.null_count == 0 else np.where(column.is_valid().to_numpy(), hashed, hashes)
    return hashes.view(np.int64)


def _hashed(column: pa.ChunkedArray, seeds: np.ndarray) -> np.ndarray:
    """Return the hashes of a column's values; those of NULLs are undefined."""
    if _is_text(column.type):
        return _of_bytes(pc.fill_null(column.cast(pa.binary()), b"").to_pylist(), seeds)
    if pa.types.is_decimal(column.type) and column.type.precision > _LONGEST_DECIMAL:
        return _of_bytes([_big_integer(value, column.type.scale) for value in column.to_pylist()], seeds)
    values = _bits(column)
    if _width(column.type) == 4:
        mixed = seeds + _P5 + np.uint64(4)
        mixed ^= (values & np.uint64(0xFFFFFFFF)) * _P1
        return _finished(_rotated(mixed, 23) * _P2 + _P3)
    mixed = seeds + _P5 + np.uint64(8)
    mixed ^= _rotated(values * _P2, 31) * _P1
    return _finished(_rotated(mixed, 27) * _P1 + _P4)


def _bits(column: pa.ChunkedArray) -> np.ndarray:
    """Return values as unsigned 64-bit integers; NULL is 0."""
    kind = column.type
    if pa.types.is_decimal(kind):
        chunk = column.combine_chunks()
        halves = np.frombuffer(chunk.buffers()[1], dtype=np.uint64).reshape(-1, 2)
        unscaled: np.ndarray = halves[chunk.offset : chunk.offset + len(chunk), 0]
        return unscaled
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(column, 0.0).to_numpy() + kind.to_pandas_dtype()(0.0)  # -0.0 equals 0.0
        numbers[np.isnan(numbers)] = np.nan  # one of the many NaNs
        bits: np.ndarray = numbers.view(np.int32 if pa.types.is_float32(kind) else np.int64)
        return bits.astype(np.int64).view(np.uint64)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    whole: np.ndarray = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return whole.view(np.uint64)


def _big_integer(value: Decimal | None, scale: int) -> bytes:
    """Return a decimal as Java's BigInteger gives its bytes: big-endian two's complement, as few as hold the sign."""
    unscaled = 0 if value is None else int(value.scaleb(scale, _ALL_DIGITS))
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length() + 1
    return unscaled.to_bytes(-(-bits // 8), "big", signed=True)


def _of_bytes(values: Sequence[bytes], seeds: np.ndarray) -> np.ndarray:
    hashed = [xxhash.xxh64_intdigest(value, seed) for value, seed in zip(values, seeds.tolist(), strict=True)]
    return np.array(hashed, dtype=np.uint64)


def _finished(hashes: np.ndarray) -> np.ndarray:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _rotated(values: np.ndarray, by: int) -> np.ndarray:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _width(kind: pa.DataType) -> int | None:
    """Return the number of bytes that a value of this type is hashed as; None if the type has no fixed size."""
    if pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_int64(kind) or pa.types.is_float64(kind):
        return 8
    if pa.types.is_boolean(kind) or pa.types.is_date32(kind) or pa.types.is_float32(kind):
        return 4
    return 4 if pa.types.is_signed_integer(kind) else None
