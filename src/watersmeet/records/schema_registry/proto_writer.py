"""Rows as Protobuf messages of a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from watersmeet.columns import same_name
from watersmeet.errors import ConfigError
from watersmeet.expressions.type_names import spark_type
from watersmeet.records.schema_registry.cells import MisfitError, fit
from watersmeet.records.schema_registry.column_types import require_convertible
from watersmeet.records.schema_registry.proto_columns import (
    AS_JSON,
    DURATION,
    TIMESTAMP,
    WRAPPERS,
    is_map,
    natural_type,
)
from watersmeet.records.schema_registry.text_values import text_of

#: Puts a value, which is not None, into a field of a message; ``MisfitError`` if it does not take it.
Put: TypeAlias = Callable[[Message, Any], None]


def writer_of(message: Descriptor, columns: pa.Schema) -> Callable[[Mapping[str, Any]], bytes]:
    """Return what writes rows of ``columns``; ``ConfigError`` for a column that the message does not take."""
    put, kind = _row(message, list(columns), ""), GetMessageClass(message)

    def write(row: Mapping[str, Any]) -> bytes:
        found = kind()
        put(found, row)
        written: bytes = found.SerializeToString(deterministic=True)
        return written

    return write


def _row(message: Descriptor, columns: list[pa.Field], path: str) -> Put:
    names = [each.name for each in message.fields]
    puts: list[tuple[str, Put]] = []
    for column in columns:
        name = same_name(column.name, names)
        if name is None:
            raise ConfigError(
                f"column {path}{column.name} is not in {message.full_name}, which has {', '.join(names)}",
                hint="leave it out of the sink, or register a schema that has it",
            )
        puts.append((column.name, _field(message.fields_by_name[name], column.type, f"{path}{column.name}")))

    def put(target: Message, row: Mapping[str, Any]) -> None:
        for name, each in puts:
            if (value := row[name]) is not None:
                each(target, value)

    return put


def _field(field: FieldDescriptor, kind: pa.DataType, path: str) -> Put:
    name = field.name
    if is_map(field):
        return _map(field, kind, path)
    if field.is_repeated:
        if not pa.types.is_list(kind):
            raise _wrong(path, kind, field)
        return _repeated(field, kind.value_type, path)
    if field.message_type is not None and field.message_type.full_name not in WRAPPERS:
        put_message = _message(field, kind, path)
        return lambda target, value: put_message(getattr(target, name), value)
    convert = _scalar(_wrapped(field), kind, path)
    if field.message_type is not None:
        return lambda target, value: setattr(getattr(target, name), "value", convert(value))
    return lambda target, value: setattr(target, name, convert(value))


def _wrapped(field: FieldDescriptor) -> FieldDescriptor:
    return field if field.message_type is None else field.message_type.fields_by_name["value"]


def _repeated(field: FieldDescriptor, kind: pa.DataType, path: str) -> Put:
    name = field.name
    if field.message_type is not None:
        put_message = _message(field, kind, path)

        def put_messages(target: Message, values: list[Any]) -> None:
            for each in values:
                put_message(getattr(target, name).add(), _present(each, path))

        return put_messages
    convert = _scalar(field, kind, path)
    return lambda target, values: getattr(target, name).extend([convert(_present(each, path)) for each in values])


def _map(field: FieldDescriptor, kind: pa.DataType, path: str) -> Put:
    if not pa.types.is_map(kind):
        raise _wrong(path, kind, field)
    name, (key_field, item_field) = field.name, field.message_type.fields
    key = _scalar(key_field, kind.key_type, f"a key of {path}")
    if item_field.message_type is not None:
        put_message = _message(item_field, kind.item_type, path)

        def put_messages(target: Message, pairs: list[tuple[Any, Any]]) -> None:
            for k, value in pairs:
                put_message(getattr(target, name)[key(k)], _present(value, path))

        return put_messages
    item = _scalar(item_field, kind.item_type, f"a value of {path}")

    def put(target: Message, pairs: list[tuple[Any, Any]]) -> None:
        for k, value in pairs:
            getattr(target, name)[key(k)] = item(_present(value, path))

    return put


def _present(value: Any, path: str) -> Any:
    if value is None:
        raise MisfitError(f"{path} has a NULL in it, which Protobuf does not have")
    return value


def _message(field: FieldDescriptor, kind: pa.DataType, path: str) -> Put:
    """What fills a message that is there."""
    message = field.message_type
    if message.full_name == TIMESTAMP and pa.types.is_timestamp(kind) and kind.tz is not None:
        return _put_timestamp
    if message.full_name == DURATION and kind == pa.int64():
        return lambda target, value: target.FromMicroseconds(value)
    if message.full_name in WRAPPERS:
        convert = _scalar(_wrapped(field), kind, path)
        return lambda target, value: setattr(target, "value", convert(value))
    if message.full_name in AS_JSON or not pa.types.is_struct(kind):
        raise _wrong(path, kind, field)
    put = _row(message, list(kind), f"{path}.")

    def present(target: Message, value: Any) -> None:
        target.SetInParent()  # also where no field has a value
        put(target, value)

    return present


def _put_timestamp(target: Any, value: int) -> None:
    seconds, micros = divmod(int(value), 1_000_000)
    target.seconds, target.nanos = seconds, micros * 1000
    target.SetInParent()


def _scalar(field: FieldDescriptor, kind: pa.DataType, path: str) -> Callable[[Any], Any]:
    if field.enum_type is not None and kind == pa.string():
        return lambda value: _enum_number(field, value, path)
    natural = natural_type(field)
    if natural is not None and pa.types.is_list(natural):
        natural = natural.value_type
    if natural is None:
        raise _wrong(path, kind, field)
    if natural == pa.string() and field.enum_type is None and (to_text := text_of(kind)) is not None:
        return to_text
    require_convertible(path, kind, natural)
    within, most = fit(natural), _MOST.get(field.type)

    def convert(value: Any) -> Any:
        try:
            found = within(value)
        except MisfitError as error:
            raise MisfitError(f"{path}: {error}") from None
        if most is None:
            return found
        if not 0 <= found <= most:
            raise MisfitError(f"{path}: {found} is not between 0 and {most}")
        return int(found)

    return convert


_MOST = {
    FieldDescriptor.TYPE_UINT32: 2**32 - 1,
    FieldDescriptor.TYPE_FIXED32: 2**32 - 1,
    FieldDescriptor.TYPE_UINT64: 2**64 - 1,
    FieldDescriptor.TYPE_FIXED64: 2**64 - 1,
}


def _enum_number(field: FieldDescriptor, value: str, path: str) -> int:
    found = field.enum_type.values_by_name.get(value)
    if found is None:
        raise MisfitError(f"{path}: {value} is not one of {', '.join(field.enum_type.values_by_name)}")
    return int(found.number)


def _wrong(path: str, kind: pa.DataType, field: FieldDescriptor) -> ConfigError:
    natural = natural_type(field)
    shown = field.message_type.full_name if natural is None else spark_type(natural)
    return ConfigError(f"column {path} is {spark_type(kind)}, but the schema has {shown}")
