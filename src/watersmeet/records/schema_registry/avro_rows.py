"""Avro records of one writer's schema as rows: flat ones by NumPy, many at once, all others one by one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.records.avro import AvroDecoder, avro_decoder
from watersmeet.records.schema_registry.avro_bytes import Read
from watersmeet.records.schema_registry.avro_columns import columns_of
from watersmeet.records.schema_registry.avro_conversions import AvroError
from watersmeet.records.schema_registry.avro_reader import reader_of
from watersmeet.records.schema_registry.avro_types import AvroType, SchemaError, avro_type
from watersmeet.records.schema_registry.client import Schema, UnknownSchemaError
from watersmeet.records.schema_registry.decoder import Outcome
from watersmeet.records.schema_registry.row_building import build


def avro_rows(columns: pa.Schema, reader: Schema, writer: Schema, where: str) -> AvroRows:
    """Return what reads records of ``writer`` as ``reader`` has the columns.

    Raises ``UnknownSchemaError`` if one of the schemas cannot be used, and ``ConfigError`` as ``columns_of``.
    """
    try:
        wanted = columns_of(avro_type(reader.text, reader.references), columns, where)
        written = avro_type(writer.text, writer.references)
        read = reader_of(written, wanted)
    except SchemaError as error:
        raise UnknownSchemaError(f"the schema cannot be used: {error}") from None
    except AvroError as error:
        raise UnknownSchemaError(f"its records cannot be read by {where}: {error}") from None
    fast = avro_decoder(writer.text, columns) if not writer.references and _is_plain(written, wanted) else None
    return AvroRows(columns, read, fast)


@dataclass(frozen=True, slots=True)
class AvroRows:
    """Reads records by ``read``; ``fast`` decodes most of them if it can."""

    columns: pa.Schema
    read_record: Read
    fast: AvroDecoder | None

    def read(self, values: pa.Array) -> Outcome:
        """Read values without their headers."""
        if self.fast is None:
            return self._slowly(values)
        decoded = self.fast.decode(values)
        if len(decoded.left) == 0:
            return Outcome(decoded.rows, decoded.records)
        rest = self._slowly(values.take(pa.array(decoded.left)))
        records = np.concatenate([decoded.records, decoded.left[rest.records]])
        order = np.argsort(records)
        rows = pa.concat_tables([decoded.rows, rest.rows]).take(pa.array(order))
        return Outcome(rows, records[order], {int(decoded.left[n]): reason for n, reason in rest.reasons.items()})

    def _slowly(self, values: pa.Array) -> Outcome:
        return build(values.to_pylist(), self.columns, self._row, _reason)

    def _row(self, value: bytes) -> Sequence[Any]:
        found, place = self.read_record(value, 0)
        if place != len(value):
            raise AvroError(f"{len(value) - place} bytes are left after the record")
        return [found[name] for name in self.columns.names]


def _reason(error: Exception) -> str | None:
    if isinstance(error, AvroError):
        return str(error)
    if isinstance(error, IndexError | struct.error):
        return "the record ends within a value"
    return "its values are nested too deep" if isinstance(error, RecursionError) else None


#: What must be the same of two types, beside their kind.
_PARTS = ("logical", "short_name", "symbols", "size")


def _is_plain(written: AvroType, wanted: AvroType) -> bool:
    """Whether each column is a field of the same type, or a wider whole number, so that nothing is to be resolved."""
    given = {each.name: each.type for each in written.fields}
    for each in wanted.fields:
        found = given.get(each.name)
        if found is None or (found.has_null and not each.type.has_null):
            return False
        before, after = found.inner, each.type.inner
        same = before.kind == after.kind or (before.kind, after.kind) == ("int", "long")
        if not same or any(getattr(before, part) != getattr(after, part) for part in _PARTS):
            return False
    return len({name.lower() for name in given}) == len(given)
