"""Decode and encode Avro and Protobuf with Spark's packages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DecimalType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from watersmeet.connectors.formats.decoded_rows import MISSING, PARSED, VALUE, Format, does_not_fit, with_row
from watersmeet.connectors.packages import Package, require_package
from watersmeet.errors import ConfigError, ConnectorError, did_you_mean

_SEAL_BYTES = bytes.fromhex("d1ce57a7e25ea1ed")


def encode_avro(frame: DataFrame, row: Column, options: Mapping[str, str]) -> Column:
    """Return the struct ``row`` as Avro bytes, by ``avro.schema`` or the schema of the columns' types."""
    require_package(frame.sparkSession, Package.AVRO)
    return to_avro(row, avro_schema(options) if "schema" in options else "")


def encode_protobuf(frame: DataFrame, row: Column, options: Mapping[str, str]) -> Column:
    """Return the struct ``row`` as Protobuf bytes of ``protobuf.message``."""
    require_package(frame.sparkSession, Package.PROTOBUF)
    message, descriptor = _protobuf_message(options)
    return to_protobuf(row, message, binaryDescriptorSet=descriptor)


def parse_binary(source: DataFrame, kind: Format, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """Parse each value as one Avro record or Protobuf message."""
    value = F.col(VALUE).cast(BinaryType())
    if kind is Format.AVRO:
        require_package(source.sparkSession, Package.AVRO)
        # A fixed field follows the record, and its bytes follow the value. It holds them only if the record took
        # exactly all bytes of the value. PERMISSIVE mode alone returns NULLs for bad and for empty records alike.
        sealed_schema = _sealed_avro(avro_schema(options))
        read = from_avro(F.concat(value, F.lit(_SEAL_BYTES)), sealed_schema, {"mode": "PERMISSIVE"})
        body, good = F.col(PARSED)["body"], F.col(PARSED)["seal"] == F.lit(_SEAL_BYTES)
    else:
        require_package(source.sparkSession, Package.PROTOBUF)
        message, descriptor = _protobuf_message(options)
        settings = {"emit.default.values": "true", "mode": "PERMISSIVE"}
        read = from_protobuf(value, message, binaryDescriptorSet=descriptor, options=settings)
        body, good = F.col(PARSED), F.lit(True)
    try:
        parsed = source.withColumn(PARSED, read)
        written = parsed.select(body.alias("body")).schema["body"].dataType
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(f"the {kind.value} schema cannot be used: {_first_line(error)}") from None
    assert isinstance(written, StructType)
    if kind is Format.PROTOBUF:
        # an unreadable message is all NULL; so may be an empty one, which has no bytes
        present = [body[field.name].isNotNull() for field in written]
        good = (F.octet_length(value) == 0) | F.greatest(F.lit(False), *present)
    reason = F.when(F.col(VALUE).isNull(), MISSING).when(
        ~F.coalesce(good, F.lit(False)), f"not one {kind.value} value of this schema"
    )
    fields: list[Column] = []
    for field in columns:
        found = _written_field(field, written, kind)
        given = body[found.name]
        fits = _fits(field, given, found.dataType)
        reason = reason.when(~fits, does_not_fit(field, given.cast(StringType())))
        fields.append(given.alias(field.name))
    return with_row(parsed, columns, reason, F.struct(*fields))


def _written_field(field: StructField, written: StructType, kind: Format) -> StructField:
    """Return the schema's field for a declared column, by its exact name, else by its name without case."""
    same = [each for each in written if each.name == field.name]
    alike = same or [each for each in written if each.name.lower() == field.name.lower()]
    if len(alike) != 1:
        raise ConfigError(
            f"column {field.name} is not in the {kind.value} schema", hint=did_you_mean(field.name, written.names)
        )
    if not _convertible(alike[0].dataType, field.dataType):
        raise ConfigError(
            f"column {field.name} is declared {field.dataType.simpleString().upper()}, "
            f"but the {kind.value} schema has {alike[0].dataType.simpleString().upper()}"
        )
    return alike[0]


def _convertible(written: DataType, declared: DataType) -> bool:
    if isinstance(declared, NumericType):
        return isinstance(written, (NumericType, StringType))
    if isinstance(declared, StringType):
        return not isinstance(written, BinaryType)
    times = (TimestampType, TimestampNTZType)
    if isinstance(declared, times):
        return isinstance(written, (*times, StringType))
    # simpleString leaves out whether parts of the type are nullable
    return written.simpleString() == declared.simpleString()


def _fits(field: StructField, given: Column, written: DataType) -> Column:
    """Return whether a value can be cast to the declared type; whole and decimal numbers must not change."""
    cast = given.try_cast(field.dataType)
    fits = given.isNull() | cast.isNotNull()
    exact = isinstance(field.dataType, (IntegralType, DecimalType)) and isinstance(written, NumericType)
    return fits & (given.isNull() | (cast == given)) if exact else fits


def avro_schema(options: Mapping[str, str]) -> str:
    """Return the record schema of ``avro.schema`` as JSON text."""
    given = options.get("schema")
    if given is None:
        raise ConfigError("format avro needs a schema", hint="set avro.schema to the schema's JSON, or a path to it")
    text = given if given.lstrip().startswith("{") else _read(given, "avro.schema").decode(errors="replace")
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"avro.schema is not valid JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError("avro.schema must be a record")
    return text


def _sealed_avro(schema: str) -> str:
    seal = {"type": "fixed", "name": "watersmeet_seal", "size": len(_SEAL_BYTES)}
    fields = [{"name": "body", "type": json.loads(schema)}, {"name": "seal", "type": seal}]
    return json.dumps({"type": "record", "name": "watersmeet_sealed", "fields": fields})


def _protobuf_message(options: Mapping[str, str]) -> tuple[str, bytes]:
    """Return the message's name and the descriptor set (what ``protoc --descriptor_set_out`` writes)."""
    for name in ("message", "descriptor"):
        if name not in options:
            raise ConfigError(f"format protobuf needs the option protobuf.{name}")
    return options["message"], _read(options["descriptor"], "protobuf.descriptor")


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConnectorError(f"{option}: {path} cannot be read ({error.strerror})") from None


def _first_line(error: PySparkException | Py4JJavaError) -> str:
    text = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    return text.strip().splitlines()[0]
