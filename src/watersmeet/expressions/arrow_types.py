"""Arrow types for Spark SQL types, as Spark passes them to Python (timestamps in UTC microseconds)."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.type_groups import MAX_DIGITS, digits_of

_T = exp.DataType.Type
_SIMPLE = {
    _T.BOOLEAN: pa.bool_(),
    _T.TINYINT: pa.int8(),
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.TEXT: pa.string(),
    _T.VARCHAR: pa.string(),
    _T.CHAR: pa.string(),
    _T.BINARY: pa.binary(),
    _T.DATE: pa.date32(),
    _T.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    _T.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    _T.TIMESTAMPLTZ: pa.timestamp("us", tz="UTC"),
    _T.TIMESTAMPNTZ: pa.timestamp("us"),
}


def arrow_type(kind: exp.DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type; ``UnsupportedError`` if there is none."""
    if kind.this in _SIMPLE:
        return _SIMPLE[kind.this]
    if kind.is_type(_T.DECIMAL):
        return _decimal(kind)
    if kind.is_type(_T.ARRAY):
        return pa.list_(arrow_type(kind.expressions[0]))
    if kind.is_type(_T.MAP):
        return pa.map_(arrow_type(kind.expressions[0]), arrow_type(kind.expressions[1]))
    if kind.is_type(_T.STRUCT):
        return pa.struct([pa.field(each.name, arrow_type(each.args["kind"])) for each in kind.expressions])
    raise UnsupportedError(f"columns of type {kind.sql('spark')} are not supported", position=position_of(kind))


def _decimal(kind: exp.DataType) -> pa.DataType:
    digits, scale = digits_of(kind)
    if not 1 <= digits <= MAX_DIGITS or not 0 <= scale <= digits:
        raise UnsupportedError(
            f"{kind.sql('spark')} is no type of Spark",
            hint=f"a DECIMAL has 1 to {MAX_DIGITS} digits, of which some or all follow the point",
            position=position_of(kind),
        )
    return pa.decimal128(digits, scale)
