"""Spark SQL names of Arrow types."""

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
    """Return the Spark SQL name of a type; Arrow's own name if Spark SQL has no scalar name for it."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"`{field.name.replace('`', '``')}`: {spark_type(field.type)}" for field in kind)
        return f"STRUCT<{fields}>"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    return _NAMES.get(kind, str(kind))
