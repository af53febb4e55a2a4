"""Arrow types under the names that Spark's SQL has for them."""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
}


def spark_type(kind: pa.DataType) -> str:
    """The type as SQL would write it; one that SQL has no scalar name for by Arrow's own."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    return _NAMES.get(kind, str(kind))
