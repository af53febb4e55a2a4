"""Records in the wire format, decoded a schema at a time, each by the schema whose number it carries.

A record without a number, with one that the registry does not know, or with bytes or values that do not fit is bad, and
has a reason.  Where the registry does not answer, nothing is bad: that is an outage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from watersmeet.records.decoder import Decoded, Decoder
from watersmeet.records.json import json_decoder
from watersmeet.records.schema_registry.client import Schema, SchemaRegistry, SchemaType, UnknownSchemaError
from watersmeet.records.schema_registry.framing import bodies, schema_numbers
from watersmeet.records.schema_registry.json_schemas import Check, check_of

MISSING = "the record has no value"
UNFRAMED = "not in the wire format of a schema registry, which begins with a zero byte and a schema's number"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows with the declared columns, the number of each row's record in ascending order, and why others are bad."""

    rows: pa.Table
    records: np.ndarray
    reasons: dict[int, str] = field(default_factory=dict)


class SchemaReader(Protocol):
    """Reads the values of one schema into the declared columns."""

    def read(self, values: pa.Array) -> Outcome:
        """Read values without their headers."""


#: Makes the reader of a writer's schema; ``UnknownSchemaError`` if its records cannot be read.
ReaderOf = Callable[[Schema], SchemaReader]


@dataclass(frozen=True, slots=True)
class Columns:
    """What a decoder makes readers for: declared ``columns`` of a ``type``, by the reader's schema.

    ``message`` is the name of a Protobuf message (None: the first one).  ``where`` names the schema in messages.
    """

    type: SchemaType
    columns: pa.Schema
    reader: Schema
    where: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RegistryDecoder:
    """Decodes Avro and Protobuf."""

    registry: SchemaRegistry
    columns: Columns

    def decode(self, values: pa.Array) -> Decoded:
        """Decode ``values`` (``binary``); bad records, and those without a value, are left."""
        found = self.outcome(values)
        is_left = np.ones(len(values), bool)
        is_left[found.records] = False
        return Decoded(found.rows, found.records, np.flatnonzero(is_left))

    def outcome(self, values: pa.Array) -> Outcome:
        """Decode ``values``, with the reasons of those that are bad."""
        return _by_schema(values, self.registry, lambda schema: _reader(self.columns, schema), self.columns.columns)


def check_columns(columns: Columns) -> None:
    """Raise ``ConfigError`` where the reader's schema has not the declared columns, or other types."""
    try:
        _reader(columns, columns.reader)
    except UnknownSchemaError as error:
        from watersmeet.errors import ConfigError

        raise ConfigError(f"{columns.where} cannot be used: {error}") from None


@cache
def _reader(columns: Columns, schema: Schema) -> SchemaReader:
    if schema.type is not columns.type:
        raise UnknownSchemaError(f"the schema is {schema.type}, not {columns.type}")
    if columns.type is SchemaType.AVRO:
        from watersmeet.records.schema_registry.avro_rows import avro_rows

        return avro_rows(columns.columns, columns.reader, schema, columns.where)
    from watersmeet.records.schema_registry.proto_rows import proto_rows

    return proto_rows(columns.columns, columns.reader, schema, columns.where, columns.message)


def _by_schema(values: pa.Array, registry: SchemaRegistry, reader_of: ReaderOf, columns: pa.Schema) -> Outcome:
    numbers = schema_numbers(values)
    reasons = dict.fromkeys(np.flatnonzero(numbers < 0).tolist(), UNFRAMED)
    if values.null_count:
        reasons |= dict.fromkeys(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist(), MISSING)
    tables, places = [], []
    for number in np.unique(numbers[numbers >= 0]).tolist():
        of_schema = np.flatnonzero(numbers == number)
        try:
            reader = reader_of(registry.schema(number))
        except UnknownSchemaError as error:
            reasons |= dict.fromkeys(of_schema.tolist(), f"schema {number}: {error}")
            continue
        whole = len(of_schema) == len(values)
        found = reader.read(bodies(values if whole else values.take(pa.array(of_schema))))
        tables.append(found.rows)
        places.append(of_schema[found.records])
        reasons |= {int(of_schema[place]): f"schema {number}: {reason}" for place, reason in found.reasons.items()}
    rows = pa.concat_tables(tables) if tables else columns.empty_table()
    records = np.concatenate(places) if places else np.empty(0, np.int64)
    if len(tables) > 1:
        order = np.argsort(records)
        rows, records = rows.take(pa.array(order)), records[order]
    return Outcome(rows, records, reasons)


# -- JSON --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckedJson:
    """Documents that their own schemas accept, without the headers; an outcome has one column of bytes."""

    registry: SchemaRegistry

    def outcome(self, values: pa.Array) -> Outcome:
        """Check ``values``."""
        return _by_schema(values, self.registry, _checker, _DOCUMENTS)


@dataclass(frozen=True, slots=True)
class JsonRegistryDecoder:
    """Decodes documents that their own schemas accept, as JSON is decoded without a registry."""

    checked: CheckedJson
    decoder: Decoder

    def decode(self, values: pa.Array) -> Decoded:
        """Decode ``values`` (``binary``); all others are left."""
        found = self.checked.outcome(values)
        decoded = self.decoder.decode(found.rows.column(0).combine_chunks())
        records = found.records[decoded.records]
        is_left = np.ones(len(values), bool)
        is_left[records] = False
        return Decoded(decoded.rows, records, np.flatnonzero(is_left))


def json_registry_decoder(registry: SchemaRegistry, columns: pa.Schema) -> JsonRegistryDecoder | None:
    """A decoder for the declared columns; None if only Spark can decode one of them."""
    decoder = json_decoder(columns)
    return None if decoder is None else JsonRegistryDecoder(CheckedJson(registry), decoder)


_DOCUMENTS = pa.schema([("document", pa.binary())])


@cache
def _checker(schema: Schema) -> SchemaReader:
    if schema.type is not SchemaType.JSON:
        raise UnknownSchemaError(f"the schema is {schema.type}, not {SchemaType.JSON}")
    return _Checker(check_of(schema))


@dataclass(frozen=True, slots=True)
class _Checker:
    check: Check

    def read(self, values: pa.Array) -> Outcome:
        found = [self.check(each) for each in values.to_pylist()]
        reasons = {place: reason for place, reason in enumerate(found) if reason is not None}
        records = np.array([place for place, reason in enumerate(found) if reason is None], np.int64)
        return Outcome(pa.Table.from_arrays([values.take(pa.array(records))], schema=_DOCUMENTS), records, reasons)
