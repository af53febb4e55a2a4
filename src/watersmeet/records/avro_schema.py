"""The Avro schemas that the decoder reads itself: flat records of primitive values, enums and fixed bytes.

Spark decodes all other schemas.  So does it wherever an attribute might change how Spark reads a value.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pyarrow as pa


class Kind(Enum):
    """How a value is written."""

    NULL = auto()
    BOOLEAN = auto()
    WHOLE = auto()
    """A zigzag varint."""
    FLOAT = auto()
    DOUBLE = auto()
    BYTES = auto()
    """A length as a zigzag varint, and the bytes."""
    FIXED = auto()


@dataclass(frozen=True, slots=True)
class AvroType:
    """A written type, and the types of columns that take its values unchanged.

    Spark decides on whole numbers outside ``low`` to ``high``, and on those of more than ``most_bytes``.  A column
    holds ``scale`` times the number, or the symbol of that number.
    """

    kind: Kind
    columns: tuple[pa.DataType, ...] = ()
    low: int = -(2**63)
    high: int = 2**63 - 1
    most_bytes: int = 10
    scale: int = 1
    size: int = 0
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the record; ``null_branch`` is the number of the null branch of its union, if it has one."""

    name: str
    type: AvroType
    null_branch: int | None = None


class _OnlySparkError(Exception):
    """Only Spark decodes this schema."""


_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UTC = (pa.timestamp("us", tz="UTC"),)
_LOCAL = (pa.timestamp("us"),)
_INT = 2**31
# Spark may shift or refuse dates before 1582-10-15 and timestamps before 1900, by
# spark.sql.avro.datetimeRebaseModeInRead.
_FIRST_DAY = -141_427
_FIRST_MILLIS = -2_208_988_800_000
_MOST_MILLIS = (2**63 - 1) // 1000

_PRIMITIVES: dict[tuple[str, str | None], AvroType] = {
    ("null", None): AvroType(Kind.NULL),
    ("boolean", None): AvroType(Kind.BOOLEAN, (pa.bool_(),)),
    ("int", None): AvroType(Kind.WHOLE, _WHOLE, -_INT, _INT - 1, most_bytes=5),
    ("int", "date"): AvroType(Kind.WHOLE, (pa.date32(),), _FIRST_DAY, _INT - 1, most_bytes=5),
    ("long", None): AvroType(Kind.WHOLE, _WHOLE),
    ("long", "timestamp-millis"): AvroType(Kind.WHOLE, _UTC, _FIRST_MILLIS, _MOST_MILLIS, scale=1000),
    ("long", "timestamp-micros"): AvroType(Kind.WHOLE, _UTC, _FIRST_MILLIS * 1000),
    ("long", "local-timestamp-millis"): AvroType(Kind.WHOLE, _LOCAL, -_MOST_MILLIS, _MOST_MILLIS, scale=1000),
    ("long", "local-timestamp-micros"): AvroType(Kind.WHOLE, _LOCAL),
    ("float", None): AvroType(Kind.FLOAT, (pa.float32(),), size=4),
    ("double", None): AvroType(Kind.DOUBLE, (pa.float64(),), size=8),
    ("string", None): AvroType(Kind.BYTES, (pa.string(),)),
    ("string", "uuid"): AvroType(Kind.BYTES, (pa.string(),)),
    ("bytes", None): AvroType(Kind.BYTES, (pa.binary(),)),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_NO_NAMES = {name for name, _ in _PRIMITIVES} | {"record", "error", "enum", "array", "map", "union", "fixed"}
# connectors/formats/binary.py gives these names to the record that it wraps around the schema
_NO_NAMES |= {"watersmeet_seal", "watersmeet_sealed"}


def avro_fields(schema_json: str) -> tuple[Field, ...] | None:
    """Return the fields of a record's schema, or None if only Spark decodes it."""
    try:
        return _record(json.loads(schema_json))
    except (_OnlySparkError, json.JSONDecodeError):
        return None


def _record(schema: Any) -> tuple[Field, ...]:
    _require(isinstance(schema, dict) and schema.get("type") == "record")
    _allow(schema, "name", "namespace", "fields")
    names: set[str] = set()
    _add_name(schema, names)
    fields = schema.get("fields")
    _require(isinstance(fields, list))
    found = tuple(_field(field, names) for field in fields)
    # Spark tells fields by their names without case
    _require(len({field.name.lower() for field in found}) == len(found))
    return found


def _field(field: Any, names: set[str]) -> Field:
    _require(isinstance(field, dict))
    _allow(field, "name", "default", "order")
    name = field.get("name")
    _require(_is_name(name) and field.get("order", "ascending") in ("ascending", "descending", "ignore"))
    written = field.get("type")
    if not isinstance(written, list):
        return Field(name, _type(written, names))
    branches = [_type(branch, names) for branch in written]
    is_null = [branch.kind is Kind.NULL for branch in branches]
    _require(len(branches) == 2 and sum(is_null) == 1)
    return Field(name, branches[is_null.index(False)], is_null.index(True))


def _type(written: Any, names: set[str]) -> AvroType:
    schema = {"type": written} if isinstance(written, str) else written
    _require(isinstance(schema, dict) and isinstance(schema.get("type"), str))
    if schema["type"] == "enum":
        return _enum(schema, names)
    if schema["type"] == "fixed":
        return _fixed(schema, names)
    _allow(schema, "logicalType", "avro.java.string")
    logical = schema.get("logicalType")
    _require(isinstance(logical, str) or "logicalType" not in schema)
    if "avro.java.string" in schema:
        _require(schema["type"] == "string" and schema["avro.java.string"] == "String")
    found = _PRIMITIVES.get((schema["type"], logical))
    if found is None:
        raise _OnlySparkError
    return found


def _enum(schema: dict[str, Any], names: set[str]) -> AvroType:
    _allow(schema, "name", "namespace", "symbols")
    _add_name(schema, names)
    symbols: Any = schema.get("symbols")
    _require(isinstance(symbols, list) and len(symbols) > 0 and all(map(_is_name, symbols)))
    _require(len(set(symbols)) == len(symbols))
    return AvroType(Kind.WHOLE, (pa.string(),), 0, len(symbols) - 1, most_bytes=5, symbols=tuple(symbols))


def _fixed(schema: dict[str, Any], names: set[str]) -> AvroType:
    _allow(schema, "name", "namespace", "size")
    _add_name(schema, names)
    size: Any = schema.get("size")
    _require(type(size) is int and 0 < size < _INT)
    return AvroType(Kind.FIXED, (pa.binary(),), size=size)


def _add_name(schema: dict[str, Any], names: set[str]) -> None:
    """Check a named type's name, which must be new whatever its namespace."""
    name: Any = schema.get("name")
    namespace: Any = schema.get("namespace", "")
    _require(isinstance(name, str) and isinstance(namespace, str))
    parts = name.split(".")
    _require(all(map(_is_name, parts)) and (namespace == "" or all(map(_is_name, namespace.split(".")))))
    _require(parts[-1] not in _NO_NAMES and parts[-1] not in names)
    names.add(parts[-1])


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.match(name) is not None


def _allow(schema: dict[str, Any], *attributes: str) -> None:
    """Refuse all attributes but these, documentation, and what Kafka Connect notes."""
    known = {"type", "doc", *attributes}
    _require(all(name in known or name.startswith("connect.") for name in schema))


def _require(holds: bool) -> None:
    if not holds:
        raise _OnlySparkError
