"""Protobuf messages, each read as its writer's schema says, as values of declared columns.

A field without presence that a message lacks has its default (0, an empty text); one with presence is NULL.  A field
that the writer's schema lacks is what the reader's schema would make of its absence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from watersmeet.records.schema_registry.cells import Micros
from watersmeet.records.schema_registry.proto_columns import AS_JSON, DURATION, TIMESTAMP, WRAPPERS, is_map

#: Turns what the library gives for a field into a plain value.
Convert: TypeAlias = Callable[[Any], Any]
#: Reads the columns of a message from bytes.
Read: TypeAlias = Callable[[bytes], list[Any]]


class MessageError(Exception):
    """Bytes are not a message of the writer's schema."""


def reader_of(message: Descriptor, wanted: list[FieldDescriptor]) -> Read:
    """Return what reads messages of the writer's kind as the fields ``wanted`` of the reader's."""
    getters = [_getter(message.fields_by_name.get(each.name), each) for each in wanted]
    kind = GetMessageClass(message)

    def read(data: bytes) -> list[Any]:
        try:
            found = kind.FromString(data)
        except DecodeError:
            raise MessageError(f"not one message {message.full_name}") from None
        try:
            return [get(found) for get in getters]
        except UnicodeDecodeError:  # proto2 does not check texts
            raise MessageError("a text is not valid UTF-8") from None

    return read


def _getter(written: FieldDescriptor | None, wanted: FieldDescriptor) -> Convert:
    if written is None:
        absent = None if wanted.has_presence else _absent(wanted)
        return lambda _: absent
    return field_getter(written)


def _absent(field: FieldDescriptor) -> Any:
    if field.is_repeated:
        return {} if is_map(field) else []
    return _converter(field)(field.default_value)


def field_getter(field: FieldDescriptor) -> Convert:
    """What gives a field's value of a message."""
    name = field.name
    if is_map(field):
        key, item = (_converter(each) for each in field.message_type.fields)
        return lambda message: {key(k): item(v) for k, v in getattr(message, name).items()}
    convert = _converter(field)
    if field.is_repeated:
        return lambda message: [convert(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _converter(field: FieldDescriptor) -> Convert:
    if field.enum_type is not None:
        names: Mapping[int, str] = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    if field.message_type is None:
        return _same
    return _message(field.message_type)


def _same(value: Any) -> Any:
    return value


def _message(kind: Descriptor) -> Convert:
    match kind.full_name:
        case name if name == TIMESTAMP:
            return lambda value: Micros(value.seconds * 1_000_000 + value.nanos // 1000)
        case name if name == DURATION:
            return lambda value: value.seconds * 1_000_000 + int(value.nanos / 1000)
        case name if name in WRAPPERS:
            return lambda value: value.value
        case name if name in AS_JSON:
            pool = kind.file.pool
            return lambda value: _json(value, pool)
    getters: list[tuple[str, Convert]] = []

    def convert(value: Any) -> dict[str, Any]:
        if not getters:  # only here, because a message may contain itself
            getters.extend((each.name, field_getter(each)) for each in kind.fields)
        return {name: get(value) for name, get in getters}

    return convert


def _json(value: Message, pool: DescriptorPool) -> str:
    try:
        text: str = json_format.MessageToJson(value, indent=None, descriptor_pool=pool)
        return text
    except (json_format.Error, TypeError, ValueError) as error:
        raise MessageError(f"{value.DESCRIPTOR.name} cannot be read: {error}") from None
