"""Protobuf messages of one writer's schema as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from watersmeet.records.schema_registry.client import Schema, UnknownSchemaError
from watersmeet.records.schema_registry.decoder import Outcome
from watersmeet.records.schema_registry.framing import FramingError, message_path
from watersmeet.records.schema_registry.proto_columns import fields_of
from watersmeet.records.schema_registry.proto_reader import MessageError, Read, reader_of
from watersmeet.records.schema_registry.proto_schemas import ProtoError, compiled, message_at, named_message
from watersmeet.records.schema_registry.row_building import build


def proto_rows(columns: pa.Schema, reader: Schema, writer: Schema, where: str, message: str | None) -> ProtoRows:
    """Return what reads messages of ``writer`` as ``reader`` has the columns.

    Raises ``UnknownSchemaError`` if one of the schemas cannot be used, and ``ConfigError`` as ``fields_of``.
    """
    try:
        wanted, _ = named_message(compiled(reader), message)
        file = compiled(writer)
    except ProtoError as error:
        raise UnknownSchemaError(f"the schema cannot be used: {error}") from None
    return ProtoRows(columns, wanted, fields_of(wanted, columns, where), file)


@dataclass(frozen=True, slots=True)
class ProtoRows:
    """Reads messages of ``file`` that are named as ``wanted``."""

    columns: pa.Schema
    wanted: Descriptor
    fields: list[FieldDescriptor]
    file: FileDescriptor
    _reads: dict[tuple[int, ...], Read] = field(default_factory=dict)

    def read(self, values: pa.Array) -> Outcome:
        """Read values without their headers."""
        return build(values.to_pylist(), self.columns, self._row, _reason)

    def _row(self, value: bytes) -> Sequence[Any]:
        path, place = message_path(value)
        read = self._reads.get(path)
        if read is None:
            written = message_at(self.file, path)
            if written.full_name != self.wanted.full_name:
                raise MessageError(f"the message is {written.full_name}, not {self.wanted.full_name}")
            read = self._reads[path] = reader_of(written, self.fields)
        return read(value[place:])


def _reason(error: Exception) -> str | None:
    if isinstance(error, MessageError | FramingError | ProtoError):
        return str(error)
    return "its values are nested too deep" if isinstance(error, RecursionError) else None
