"""Arrow types for Spark SQL types, as Spark passes them to Python (timestamps in UTC microseconds)."""

from __future__ import annotations

from typing import cast

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

#: How deeply types may lie within each other.
_MOST_LEVELS = 32


def arrow_type(kind: exp.DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type; ``UnsupportedError`` if there is none."""
    return _of(kind, kind, 0)


def _of(kind: exp.DataType, whole: exp.DataType, depth: int) -> pa.DataType:
    if kind.this in _SIMPLE:
        return _SIMPLE[kind.this]
    if kind.this == _T.DECIMAL:
        return _decimal(kind)
    if depth == _MOST_LEVELS:
        raise UnsupportedError(
            f"a type has more than {_MOST_LEVELS} types within each other",
            hint="decode the column as STRING or BINARY",
            position=position_of(whole),
        )
    parts = [_of(_part(each), whole, depth + 1) for each in kind.expressions]
    match kind.this, parts:
        case _T.ARRAY, [items]:
            return pa.list_(items)
        case _T.MAP, [keys, values]:
            return pa.map_(keys, values)
        case _T.STRUCT, [_, *_]:
            return pa.struct([pa.field(each.name, part) for each, part in zip(kind.expressions, parts, strict=True)])
        case ((_T.ARRAY | _T.MAP | _T.STRUCT as name), _):
            raise UnsupportedError(
                f"{name.value} does not say which types it holds",
                hint="write ARRAY<STRING>, MAP<STRING, INT> or STRUCT<a: INT>",
                position=position_of(kind) or position_of(whole),
            )
    raise UnsupportedError(f"columns of type {kind.sql('spark')} are not supported", position=position_of(kind))


def _part(part: exp.Expr) -> exp.DataType:
    """The type of a part of a type: of a struct, each has a name beside it."""
    return cast(exp.DataType, part.args["kind"] if isinstance(part, exp.ColumnDef) else part)


def _decimal(kind: exp.DataType) -> pa.DataType:
    digits, scale = digits_of(kind)
    if not 1 <= digits <= MAX_DIGITS or not 0 <= scale <= digits:
        raise UnsupportedError(
            f"{kind.sql('spark')} is no type of Spark",
            hint=f"a DECIMAL has 1 to {MAX_DIGITS} digits, of which some or all follow the point",
            position=position_of(kind),
        )
    return pa.decimal128(digits, scale)
