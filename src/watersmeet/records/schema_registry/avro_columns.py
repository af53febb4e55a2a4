"""Columns for Avro's types, and Avro schemas for columns."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.expressions.type_names import spark_type
from watersmeet.records.schema_registry.avro_conversions import as_whole
from watersmeet.records.schema_registry.avro_types import AvroField, AvroType
from watersmeet.records.schema_registry.column_types import require_convertible, required_field

_UTC, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": _UTC,
    "timestamp-micros": _UTC,
    "local-timestamp-millis": _LOCAL,
    "local-timestamp-micros": _LOCAL,
    "uuid": pa.string(),
}
_NATURAL = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def natural_type(kind: AvroType, within: tuple[AvroType, ...] = ()) -> pa.DataType | None:
    """The type of a column that takes all values; None if that depends on the value, as in most unions."""
    if kind in within:
        return None
    match kind.kind:
        case "union":
            return _of_union(kind, within)
        case "record":
            found = [(each.name, natural_type(each.type, (*within, kind))) for each in kind.fields]
            return None if any(each is None for _, each in found) else pa.struct(found)
        case "array" | "map":
            element = natural_type(kind.item, within)
            if element is None:
                return None
            return pa.list_(element) if kind.kind == "array" else pa.map_(pa.string(), element)
        case "null":
            return None
    if kind.logical == "decimal":
        return pa.decimal128(kind.precision, kind.scale) if kind.precision else None
    return _LOGICAL.get(kind.logical, _NATURAL[kind.kind])


def _of_union(kind: AvroType, within: tuple[AvroType, ...]) -> pa.DataType | None:
    if kind.inner is not kind:
        return natural_type(kind.inner, within)
    kinds = {branch.kind for branch in kind.branches if branch.kind != "null"}
    if any(branch.logical for branch in kind.branches):
        return None
    return {frozenset({"int", "long"}): pa.int64(), frozenset({"float", "double"}): pa.float64()}.get(frozenset(kinds))


def columns_of(record: AvroType, columns: pa.Schema, where: str) -> AvroType:
    """The record with the fields of the declared columns alone, each named as its column.

    A time that goes into a column of whole numbers counts as the number that it is.  Raises ``ConfigError`` for a
    column that is not in the schema, or whose type takes none of its values.
    """
    if record.kind != "record":
        raise ConfigError(f"{where} is {record}, and no record with fields")
    names = [each.name for each in record.fields]
    fields = []
    for column in columns:
        name = required_field(column.name, names, where)
        fields.append(_field(record.fields[names.index(name)], column))
    return AvroType("record", name=record.name, aliases=record.aliases, fields=fields)


def _field(field: AvroField, column: pa.Field) -> AvroField:
    kind = field.type
    if pa.types.is_integer(column.type) and kind.inner.logical in _LOGICAL and kind.inner.kind in ("int", "long"):
        branches = tuple(as_whole(each) for each in kind.branches)
        kind = AvroType("union", branches=branches) if branches else as_whole(kind)
    require_convertible(column.name, natural_type(kind), column.type)
    aliases = field.aliases if field.name == column.name else field.aliases | {field.name}
    return AvroField(column.name, kind, aliases, field.has_default, field.default)


# -- schemas for columns -----------------------------------------------------------------------------------------------


def schema_for(columns: pa.Schema, name: str) -> str:
    """The schema of a record for columns, each of which may be null; raises ``UnsupportedError``."""
    return json.dumps(_record(name, list(columns)))


def _record(name: str, fields: list[pa.Field]) -> dict[str, Any]:
    for each in fields:
        if not _NAME.fullmatch(each.name):
            raise UnsupportedError(
                f"column {each.name}: a name in Avro has only letters, digits and _",
                hint="give it another name in the query and in the sink",
            )
    written = [
        {"name": each.name, "type": ["null", _written(each.type, f"{name}_{each.name}")], "default": None}
        for each in fields
    ]
    return {"type": "record", "name": name, "fields": written}


def _written(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(kind):
        return _record(name, list(kind))
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _written(kind.value_type, name)]}
    if pa.types.is_map(kind):
        if kind.key_type != pa.string():
            raise UnsupportedError(
                f"column {name}: the keys of a map in Avro are text, not {spark_type(kind.key_type)}"
            )
        return {"type": "map", "values": ["null", _written(kind.item_type, name)]}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return _WRITTEN[kind]


_WRITTEN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    _UTC: {"type": "long", "logicalType": "timestamp-micros"},
    _LOCAL: {"type": "long", "logicalType": "local-timestamp-micros"},
}
