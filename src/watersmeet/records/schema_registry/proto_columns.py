"""Columns for the fields of Protobuf's messages, and messages for columns.

Spark's protobuf package gives the same types, where a column has one; DECIMAL, DATE and TIMESTAMP_NTZ are text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.type_names import spark_type
from watersmeet.records.schema_registry.column_types import require_convertible, required_field

_F = FieldDescriptor
_UTC, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_SCALARS = {
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT32: pa.int64(),
    _F.TYPE_FIXED32: pa.int64(),
    _F.TYPE_UINT64: pa.decimal128(20, 0),
    _F.TYPE_FIXED64: pa.decimal128(20, 0),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.string(),
}
#: Well-known types that are one value: of ``value``, of their own, or as JSON.
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
AS_JSON = frozenset(f"google.protobuf.{kind}" for kind in ("Any", "Struct", "Value", "ListValue", "FieldMask", "Empty"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def natural_type(field: FieldDescriptor, within: tuple[str, ...] = ()) -> pa.DataType | None:
    """The type of a column that takes all values of a field; None for a message that contains itself."""
    if is_map(field):
        key, item = (natural_type(each, within) for each in field.message_type.fields)
        return None if item is None else pa.map_(key, item)
    one = _one(field, within)
    return pa.list_(one) if one is not None and field.is_repeated else one


def _one(field: FieldDescriptor, within: tuple[str, ...]) -> pa.DataType | None:
    if field.message_type is None:
        return _SCALARS[field.type]
    return message_type(field.message_type, within)


def message_type(message: Descriptor, within: tuple[str, ...] = ()) -> pa.DataType | None:
    """The type of a column that takes all messages of a kind."""
    name = message.full_name
    if name == TIMESTAMP:
        return _UTC
    if name == DURATION:
        return pa.int64()
    if name in WRAPPERS:
        return _SCALARS[message.fields_by_name["value"].type]
    if name in AS_JSON:
        return pa.string()
    if name in within:
        return None
    found = [(each.name, natural_type(each, (*within, name))) for each in message.fields]
    return None if any(each is None for _, each in found) else pa.struct(found)


def fields_of(message: Descriptor, columns: pa.Schema, where: str) -> list[FieldDescriptor]:
    """The fields of declared columns; ``ConfigError`` for one that is not there, or whose type takes none of them."""
    names = [each.name for each in message.fields]
    found = []
    for column in columns:
        name = required_field(column.name, names, where)
        field = message.fields_by_name[name]
        require_convertible(column.name, natural_type(field), column.type)
        found.append(field)
    return found


# -- messages for columns ----------------------------------------------------------------------------------------------


def schema_for(columns: pa.Schema, name: str) -> str:
    """The text of a message for columns, each of which may be NULL; raises ``UnsupportedError``."""
    lines = ['syntax = "proto3";', 'import "google/protobuf/timestamp.proto";', ""]
    text = "\n".join(_message(list(columns), name, ""))
    if TIMESTAMP not in text:
        del lines[1]
    return "\n".join([*lines, text, ""])


def _message(columns: list[pa.Field], name: str, indent: str) -> list[str]:
    lines, nested = [], []

    def type_of(kind: pa.DataType, path: str) -> str:
        if not pa.types.is_struct(kind):
            return _scalar(kind, path)
        inner = f"{path.title().replace('_', '')}Value"
        nested.extend(_message(list(kind), inner, f"{indent}  "))
        return inner

    for number, column in enumerate(columns, 1):
        if not _NAME.fullmatch(column.name):
            raise UnsupportedError(
                f"column {column.name}: a name in Protobuf has only letters, digits and _",
                hint="give it another name in the query and in the sink",
            )
        lines.append(f"{indent}  {_field(column, type_of)} {column.name} = {number};")
    return [f"{indent}message {name} {{", *nested, *lines, f"{indent}}}"]


def _field(column: pa.Field, type_of: Callable[[pa.DataType, str], str]) -> str:
    kind = column.type
    if pa.types.is_map(kind):
        if kind.key_type not in _KEYS:
            raise UnsupportedError(
                f"column {column.name}: a map in Protobuf has keys that are text or whole numbers, "
                f"not {spark_type(kind.key_type)}"
            )
        return f"map<{_KEYS[kind.key_type]}, {type_of(kind.item_type, column.name)}>"
    if pa.types.is_list(kind):
        return f"repeated {type_of(kind.value_type, column.name)}"
    return f"optional {type_of(kind, column.name)}"


def _scalar(kind: pa.DataType, name: str) -> str:
    if pa.types.is_decimal(kind):
        return "string"
    if kind not in _WRITTEN:
        raise UnsupportedError(f"column {name}: Protobuf has no {spark_type(kind)} within another value")
    return _WRITTEN[kind]


_KEYS = {pa.string(): "string", pa.int32(): "int32", pa.int64(): "int64", pa.bool_(): "bool"}
_WRITTEN = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): "string",
    _UTC: TIMESTAMP,
    _LOCAL: "string",
}
