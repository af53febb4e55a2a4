"""Decimals, which Arrow reads into 256 bits first.

It multiplies a number by ten to the power of the scale before it looks whether it fits.  In 128 bits a product of more
than 38 digits wraps around, and may seem to fit.  A number of at most 38 whole digits does not leave 256 bits.
"""

from __future__ import annotations

import pyarrow as pa

_MOST_DIGITS = 76


def wide_decimal(kind: pa.Decimal128Type) -> pa.Decimal256Type:
    """The type to read numbers of at most 38 whole digits as."""
    return pa.decimal256(_MOST_DIGITS, kind.scale)


def fitting_decimals(wide: pa.ChunkedArray, kind: pa.Decimal128Type) -> pa.ChunkedArray | None:
    """Numbers in the declared type; None if one of them does not fit it."""
    try:
        return wide.cast(kind)
    except pa.ArrowInvalid:
        return None
