"""Rows as records in the wire format, by a schema that the registry has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.records.schema_registry.cells import MisfitError
from watersmeet.records.schema_registry.client import Schema, SchemaType, UnknownSchemaError
from watersmeet.records.schema_registry.framing import header, path_bytes
from watersmeet.records.schema_registry.json_schemas import check_of
from watersmeet.records.schema_registry.plain_values import plain_values

#: Writes a row without its header.
WriteRow = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class RegistryEncoder:
    """Writes rows of ``columns`` in a format, by a schema whose number is ``number``; ``message`` as in ``Columns``."""

    type: SchemaType
    columns: pa.Schema
    schema: Schema
    number: int
    where: str
    message: str | None = None

    @property
    def header(self) -> bytes:
        """What stands before a value, but for the path of a Protobuf message."""
        return header(self.number)

    def check(self) -> None:
        """Raise ``ConfigError`` where the schema is of another type, or does not take the columns.

        JSON is checked a document at a time.
        """
        if self.schema.type is not self.type:
            raise ConfigError(f"{self.where} is {self.schema.type}, not {self.type}")
        if self.type is not SchemaType.JSON:
            _writer(self)

    def encode(self, rows: pa.Array) -> pa.Array:
        """Rows as records, NULL where a row is; ``ConnectorError`` for a value that the schema does not take."""
        write, begin = _writer(self)
        given = plain_values(rows.cast(pa.struct(list(self.columns))))
        try:
            return pa.array([None if row is None else begin + write(row) for row in given], pa.binary())
        except MisfitError as error:
            raise self._refused(str(error)) from None

    def check_documents(self, texts: pa.Array) -> None:
        """Raise ``ConnectorError`` for a JSON document that the schema does not accept."""
        check = check_of(self.schema)
        for text in texts.to_pylist():
            if text is not None and (reason := check(text.encode())) is not None:
                raise self._refused(reason)

    def _refused(self, reason: str) -> ConnectorError:
        return ConnectorError(
            f"a row does not fit {self.where}: {reason}", hint="change the query, or the schema, and run it again"
        )


@cache
def _writer(encoder: RegistryEncoder) -> tuple[WriteRow, bytes]:
    """What writes rows, and what stands before each."""
    try:
        if encoder.schema.type is SchemaType.AVRO:
            return _avro_writer(encoder)
        return _proto_writer(encoder)
    except UnknownSchemaError as error:
        raise ConfigError(f"{encoder.where} cannot be used: {error}") from None


def _avro_writer(encoder: RegistryEncoder) -> tuple[WriteRow, bytes]:
    from watersmeet.records.schema_registry.avro_conversions import AvroError
    from watersmeet.records.schema_registry.avro_types import SchemaError, avro_type
    from watersmeet.records.schema_registry.avro_writer import writer_of

    try:
        kind = avro_type(encoder.schema.text, encoder.schema.references)
        append = writer_of(kind, encoder.columns, encoder.where)
    except (SchemaError, AvroError) as error:
        raise UnknownSchemaError(str(error)) from None

    def write(row: Any) -> bytes:
        out = bytearray()
        append(row, out)
        return bytes(out)

    return write, encoder.header


def _proto_writer(encoder: RegistryEncoder) -> tuple[WriteRow, bytes]:
    from watersmeet.records.schema_registry.proto_schemas import ProtoError, compiled, named_message
    from watersmeet.records.schema_registry.proto_writer import writer_of

    try:
        message, path = named_message(compiled(encoder.schema), encoder.message)
    except ProtoError as error:
        raise UnknownSchemaError(str(error)) from None
    return writer_of(message, encoder.columns), encoder.header + path_bytes(path)
