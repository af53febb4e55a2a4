"""Groups of Spark types, and the digits of exact numbers."""

from __future__ import annotations

from sqlglot import exp

_T = exp.DataType.Type
#: In order of size.
INTEGERS = (_T.TINYINT, _T.SMALLINT, _T.INT, _T.BIGINT)
FRACTIONS = (_T.FLOAT, _T.DOUBLE)
NUMBERS = (*INTEGERS, *FRACTIONS, _T.DECIMAL)
TEXTS = (_T.TEXT, _T.VARCHAR, _T.CHAR)
INSTANTS = (_T.TIMESTAMP, _T.TIMESTAMPTZ, _T.TIMESTAMPLTZ)
#: Types whose values cannot be compared, so they cannot be keys.
NESTED = (_T.ARRAY, _T.MAP, _T.STRUCT)
#: The most digits that a decimal can have.
MAX_DIGITS = 38
_DIGITS = {_T.TINYINT: 3, _T.SMALLINT: 5, _T.INT: 10, _T.BIGINT: 20}


def digits_of(kind: exp.DataType) -> tuple[int, int]:
    """Return the digits of a decimal or integer type, and how many of them follow the point."""
    if kind.is_type(_T.DECIMAL):
        given = [int(part.name) for part in kind.expressions]
        return (given[0] if given else 10), (given[1] if len(given) > 1 else 0)
    return _DIGITS[kind.this], 0
