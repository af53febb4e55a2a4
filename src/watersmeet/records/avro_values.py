"""Avro values of many records at once: a cursor per record, moved over one field after the other.

A record that cannot be decoded has its cursor moved past the end of all records.  It never comes back, because cursors
only grow.  So a record is good if its cursor stands at its end after the last field.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.records.avro_schema import AvroType, Field, Kind

_WORD = np.dtype("<u8")
_BYTE_ENDS = np.uint64(0x8080808080808080)
_PADDING = 32
"""Bytes behind the last record: enough to read a varint, or eight bytes, at any cursor."""


@dataclass(frozen=True, slots=True)
class Octets:
    """The bytes of all records, padded; ``past`` is a cursor past the end of every record."""

    octets: np.ndarray
    words: np.ndarray
    past: int

    @classmethod
    def of(cls, octets: np.ndarray) -> Octets:
        """Copy the bytes."""
        words = np.zeros((len(octets) + _PADDING) // 8, _WORD)
        padded = words.view(np.uint8)
        padded[: len(octets)] = octets
        return cls(padded, words, len(octets) + 1)

    def moved(self, cursor: np.ndarray, steps: np.ndarray | int) -> np.ndarray:
        """Move cursors by so many bytes; unsigned, so that negative steps lead past the end."""
        limited = np.minimum(np.asarray(steps, np.int64).view(np.uint64), np.uint64(self.past)).view(np.int64)
        return np.minimum(cursor + limited, self.past)

    def words_at(self, cursor: np.ndarray) -> np.ndarray:
        """Read eight bytes at each cursor, as little-endian numbers."""
        word = cursor >> 3
        shift = ((cursor & 7) << 3).view(np.uint64)
        low = self.words.take(word)
        word += 1
        high = self.words.take(word)
        low >>= shift
        # by 64 - shift in two steps, because a shift by 64 is undefined
        high <<= np.uint64(1)
        shift ^= np.uint64(63)
        high <<= shift
        low |= high
        return low


@dataclass(frozen=True, slots=True)
class Cells:
    """A field's values, one per record, undefined where ``is_null`` or the record is bad.

    For ``BYTES`` and ``FIXED`` they lie between the positions ``starts`` and ``ends``; all others are ``values``.
    """

    is_null: np.ndarray | None = None
    values: np.ndarray | None = None
    starts: np.ndarray | None = None
    ends: np.ndarray | None = None


def read_field(field: Field, data: Octets, cursor: np.ndarray) -> tuple[Cells, np.ndarray]:
    """Read a field at each cursor; also return the cursors behind it."""
    if field.null_branch is None:
        return _read(field.type, data, cursor)
    branch = data.octets.take(cursor)
    is_null = branch == 2 * field.null_branch
    cursor = np.minimum(cursor + 1, data.past)
    cursor[(branch & 0xFD) != 0] = data.past
    cells, after = _read(field.type, data, cursor)
    if not is_null.any():
        return cells, after
    after = np.where(is_null, cursor, after)
    if cells.starts is None or cells.ends is None:
        return Cells(is_null, cells.values), after
    return Cells(is_null, None, np.where(is_null, cursor, cells.starts), np.where(is_null, cursor, cells.ends)), after


def _read(written: AvroType, data: Octets, cursor: np.ndarray) -> tuple[Cells, np.ndarray]:
    match written.kind:
        case Kind.NULL:
            return Cells(), cursor
        case Kind.BOOLEAN:
            octets = data.octets.take(cursor)
            return Cells(values=octets), data.moved(cursor, np.where(octets > 1, -1, 1))
        case Kind.WHOLE:
            values, after = _whole_numbers(written, data, cursor)
            return Cells(values=values), after
        case Kind.FLOAT:
            floats = data.words_at(cursor).astype("<u4").view("<f4")
            return Cells(values=floats), data.moved(cursor, 4)
        case Kind.DOUBLE:
            return Cells(values=data.words_at(cursor).view("<f8")), data.moved(cursor, 8)
        case Kind.BYTES:
            lengths, starts = _whole_numbers(written, data, cursor)
            ends = data.moved(starts, lengths)
            return Cells(starts=starts, ends=ends), ends
        case Kind.FIXED:
            ends = data.moved(cursor, written.size)
            return Cells(starts=cursor, ends=ends), ends


def _whole_numbers(written: AvroType, data: Octets, cursor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read zigzag varints; also return the cursors behind them."""
    raw, lengths = _varints(data, cursor)
    after = data.moved(cursor, lengths)
    sign = (raw & np.uint64(1)).view(np.int64)
    np.negative(sign, out=sign)
    raw >>= np.uint64(1)
    values = raw.view(np.int64)
    values ^= sign
    if written.most_bytes < 10:
        after[lengths > written.most_bytes] = data.past
    if written.low > -(2**63) or written.high < 2**63 - 1:
        after[(values < written.low) | (values > written.high)] = data.past
    return values, after


def _varints(data: Octets, cursor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read varints and their lengths in bytes; -1 is the length of a varint that has no end or over 64 bits."""
    first = data.octets.take(cursor)
    if not (first > 0x7F).any():
        return first.astype(np.uint64), np.ones(len(first), np.int64)
    words = data.words_at(cursor)
    ends = ~words
    ends &= _BYTE_ENDS
    last = ends & (~ends + np.uint64(1))  # the highest bit of the varint's last byte, 0 if it has more than 8 bytes
    lengths = _bit_numbers(last)
    lengths >>= 3
    lengths += 1
    last -= np.uint64(1)
    words &= last
    raw = _without_high_bits(words)
    longer = np.flatnonzero(ends == 0)
    if len(longer):
        _read_ends(data, cursor, raw, lengths, longer)
    return raw, lengths


def _bit_numbers(powers: np.ndarray) -> np.ndarray:
    """Return the numbers of the bits that are set, one in each; the exponent of a float is its bit's number."""
    exponents = powers.view(np.int64).astype(np.float64).view(np.int64)
    exponents >>= 52
    exponents &= 0x7FF  # without the sign, which the highest bit sets
    exponents -= 1023
    return exponents


def _without_high_bits(words: np.ndarray) -> np.ndarray:
    """Join the lower seven bits of each byte to numbers of 56 bits."""
    words &= ~_BYTE_ENDS
    for groups, gap in ((0x7F007F007F007F00, 1), (0x3FFF00003FFF0000, 2), (0x0FFFFFFF00000000, 4)):
        upper = words & np.uint64(groups)
        words ^= upper
        upper >>= np.uint64(gap)
        words |= upper
    return words


def _read_ends(data: Octets, cursor: np.ndarray, raw: np.ndarray, lengths: np.ndarray, longer: np.ndarray) -> None:
    """Add the ninth and tenth byte of the varints that have more than eight."""
    ends = data.words_at(data.moved(cursor[longer], 8))
    ninth, tenth = ends & np.uint64(0xFF), (ends >> np.uint64(8)) & np.uint64(0xFF)
    is_tenth = ninth > 0x7F
    raw[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
    raw[longer] |= np.where(is_tenth, tenth, 0) << np.uint64(63)
    lengths[longer] = np.where(is_tenth, np.where(tenth > 1, -1, 10), 9)
