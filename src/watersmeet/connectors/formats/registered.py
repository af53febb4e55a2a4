"""Values in the wire format of a schema registry, in Spark: decoded and encoded by Python.

Spark's own packages do not know schemas by number.  ``records/schema_registry`` decodes these values; here Spark calls
it, for the records that the workers have not decoded before (runtime/worker_records.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, CharType, DataType, StringType, StructField, StructType, VarcharType

from watersmeet.columns import BAD, spark_name
from watersmeet.connectors.formats.binary import avro_schema
from watersmeet.connectors.formats.decoded_rows import PARSED, ROW, VALUE, Format
from watersmeet.connectors.formats.registry_options import (
    RegistryOptions,
    registry_of,
    registry_options,
    required_version,
    schema_type,
)
from watersmeet.connectors.formats.text import parse_json
from watersmeet.errors import OutageError, SinkOutageError, UnsupportedError
from watersmeet.records.decoder import Decoder
from watersmeet.records.schema_registry.client import Schema, SchemaType
from watersmeet.records.schema_registry.decoder import (
    CheckedJson,
    Columns,
    Outcome,
    RegistryDecoder,
    check_columns,
    json_registry_decoder,
)
from watersmeet.records.schema_registry.encoder import RegistryEncoder

_DOCUMENT = "document"


def registered_decoder(kind: Format, columns: StructType, options: Mapping[str, str]) -> Decoder | None:
    """Return the decoder of the workers; None if only Spark can decode the columns, which is for JSON alone.

    Raises ``ConfigError`` where the schema does not fit the columns, ``ConnectorError`` and ``OutageError`` where the
    registry does not have it.
    """
    if kind is Format.JSON:
        return json_registry_decoder(registry_of(registry_options(options)), _arrow(columns))
    return _decoder(kind, columns, options)


def _decoder(kind: Format, columns: StructType, options: Mapping[str, str]) -> RegistryDecoder:
    given = registry_options(options)
    found = required_version(given)
    where = f"schema {found.id} ({given.subject}, version {found.version})"
    message = options.get("protobuf.message")
    wanted = Columns(schema_type(kind.value), _arrow(columns), found.schema, where, message)
    check_columns(wanted)
    return RegistryDecoder(registry_of(given), wanted)


def _arrow(columns: StructType) -> pa.Schema:
    for each in columns:
        if isinstance(each.dataType, CharType | VarcharType):
            raise UnsupportedError(
                f"column {each.name}: a length is not checked where a schema registry has the types",
                hint="declare STRING",
            )
    return to_arrow_schema(columns, timezone="UTC")


def parse_registered(source: DataFrame, kind: Format, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """Parse each value by the schema whose number it carries."""
    value = F.col(VALUE).cast(BinaryType())
    if kind is Format.JSON:
        return _parse_json(source, value, columns, options)
    decoder = _decoder(kind, columns, options)
    schema = StructType([StructField(BAD, StringType()), StructField(ROW, columns)])

    def parsed(values: pa.Array) -> pa.Array:
        return _as_struct(decoder.outcome(values.cast(pa.binary())), len(values))

    read = source.withColumn(PARSED, _udf(parsed, schema)(value))
    return read.withColumns({BAD: F.col(PARSED)[BAD], ROW: F.col(PARSED)[ROW]})


def _parse_json(source: DataFrame, value: Column, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    checked = CheckedJson(registry_of(registry_options(options)))
    schema = StructType([StructField(BAD, StringType()), StructField(_DOCUMENT, BinaryType())])

    def documents(values: pa.Array) -> pa.Array:
        return _as_struct(checked.outcome(values.cast(pa.binary())), len(values), _DOCUMENT)

    said = "_wm_said"
    read = source.withColumn(said, _udf(documents, schema)(value))
    own = {name: text for name, text in options.items() if name.startswith("json.")}
    texts = read.withColumn(VALUE, F.coalesce(F.col(said)[_DOCUMENT], value))
    rows = parse_json(texts, columns, {name.removeprefix("json."): text for name, text in own.items()})
    reason = F.coalesce(F.col(said)[BAD], F.col(BAD))
    return rows.withColumns({BAD: reason, ROW: F.when(reason.isNull(), F.col(ROW))})


def _as_struct(found: Outcome, count: int, document: str = "") -> pa.Array:
    """The reasons and the rows of all records, NULL where there are none."""
    places = np.full(count, -1, np.int64)
    places[found.records] = np.arange(len(found.records))
    rows = found.rows.take(pa.array(places, mask=places < 0)).combine_chunks()
    reasons = pa.array([found.reasons.get(number) for number in range(count)], pa.string())
    if document:
        return pa.StructArray.from_arrays([reasons, _one(rows.column(0))], [BAD, document])
    columns = [_one(column) for column in rows.columns]
    structs = pa.StructArray.from_arrays(columns, fields=list(rows.schema), mask=pa.array(places < 0))
    return pa.StructArray.from_arrays([reasons, structs], [BAD, ROW])


def _udf(function: Callable[[pa.Array], pa.Array], type: DataType) -> Callable[[Column], Column]:
    """A function of Spark over one column, whose values come as Arrow arrays."""
    return arrow_udf(function, type)  # type: ignore[call-overload,no-any-return]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# -- rows as values ----------------------------------------------------------------------------------------------------


def encode_registered(
    frame: DataFrame, kind: Format, names: Sequence[str], options: Mapping[str, str], holds: Column | None
) -> Column:
    """Return the columns as a value in the wire format, NULL where ``holds`` is not true.

    The schema is registered, or looked up if ``registry.auto_register`` is false.  Raises ``ConfigError`` where it does
    not fit the columns, ``ConnectorError`` where the registry does not take or have it, and ``SinkOutageError``.
    """
    rows = frame.select(*map(spark_name, names))
    encoder = registered_encoder(kind, rows.schema, options)
    row: Any = F.struct(*(F.col(spark_name(name)) for name in names))
    if kind is Format.JSON:
        return _encode_json(encoder, row, options, holds)
    row = row if holds is None else F.when(holds, row)
    return _udf(encoder.encode, BinaryType())(row)


def registered_encoder(kind: Format, columns: StructType, options: Mapping[str, str]) -> RegistryEncoder:
    """Return what writes rows of the columns by the sink's schema; raises as ``encode_registered``."""
    given, arrow, type = registry_options(options), _arrow(columns), schema_type(kind.value)
    message = options.get("protobuf.message")
    with as_sink():
        if given.auto_register:
            schema = Schema(type, _schema_text(kind, arrow, given, options))
            RegistryEncoder(type, arrow, schema, 0, f"the schema of {given.subject}", message).check()
            number = registry_of(given).register(given.subject, schema)
            return RegistryEncoder(type, arrow, schema, number, f"schema {number} ({given.subject})", message)
        found = required_version(given)
    where = f"schema {found.id} ({given.subject}, version {found.version})"
    encoder = RegistryEncoder(type, arrow, found.schema, found.id, where, message)
    encoder.check()
    return encoder


def _schema_text(kind: Format, columns: pa.Schema, given: RegistryOptions, options: Mapping[str, str]) -> str:
    """The schema to register: the one of ``avro.schema``, else one for the columns."""
    name = re.sub(r"\W", "_", given.subject.removesuffix("-value"), flags=re.ASCII)
    name = name if name[:1].isalpha() else f"_{name}"
    match schema_type(kind.value):
        case SchemaType.AVRO:
            from watersmeet.records.schema_registry import avro_columns

            if "avro.schema" in options:
                return avro_schema({"schema": options["avro.schema"]})
            return avro_columns.schema_for(columns, name)
        case SchemaType.PROTOBUF:
            from watersmeet.records.schema_registry import proto_columns

            return proto_columns.schema_for(columns, name)
    from watersmeet.records.schema_registry import json_schemas

    return json_schemas.schema_for(columns, name)


def _encode_json(encoder: RegistryEncoder, row: Column, options: Mapping[str, str], holds: Column | None) -> Column:
    own = {name.removeprefix("json."): text for name, text in options.items() if name.startswith("json.")}
    text = F.to_json(row, {"ignoreNullFields": "false", **own})
    text = text if holds is None else F.when(holds, text)
    begin = encoder.header

    def checked(texts: pa.Array) -> pa.Array:
        encoder.check_documents(texts)
        return pa.array([None if each is None else begin + each.encode() for each in texts.to_pylist()], pa.binary())

    return _udf(checked, BinaryType())(text)


@contextmanager
def as_sink() -> Iterator[None]:
    """Raise ``SinkOutageError`` for an outage: what is asked for is for a sink."""
    try:
        yield
    except OutageError as error:
        raise SinkOutageError(error.message, detail=error.detail, hint=error.hint, waits_for=error.waits_for) from None
