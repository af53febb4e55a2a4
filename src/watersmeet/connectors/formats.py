"""Turn raw values into the declared columns, and rows into values: JSON, CSV, Avro and Protobuf.

``decode`` never turns what it cannot read into NULL: such a row carries the reason in ``_bad`` and its raw text in
``_raw``, and all its declared columns are NULL. Bad are: text that is not valid UTF-8 or does not parse, text after
the end of a document, a JSON document that is not an object, a number out of its type's range, a value of another
kind than its column, a CSV line with too few or too many cells, bytes that are not exactly one Avro record.
A missing or null JSON field, and an empty CSV cell, is NULL in a good row. A number with more decimals than its
DECIMAL column is rounded, and a JSON number in a TIMESTAMP column is in seconds since 1970.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    MapType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from watersmeet.columns import BAD, RAW, TEXT, spark_name
from watersmeet.connectors.packages import Package, require_package
from watersmeet.errors import ConfigError, ConnectorError, UnsupportedError, did_you_mean

_VALUE, _PARSED, _ROW, _SEAL = "_wm_value", "_wm_parsed", "_wm_row", "_wm_seal"
_CORRUPT = "_wm_corrupt"
_SEAL_BYTES = bytes.fromhex("d1ce57a7e25ea1ed")
_MISSING = "the record has no value"
_SHOWN = 40
"""How many characters of a value that does not fit are shown in the reason."""


class Format(StrEnum):
    """How a value is written."""

    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def is_text(self) -> bool:
        """Whether a value is text, one row of it a line."""
        return self in (Format.JSON, Format.CSV)


def format_of(name: str) -> Format:
    """The format of that name; ``ConfigError`` with the names there are for another."""
    try:
        return Format(name.lower())
    except ValueError:
        raise ConfigError(f"no format is named {name!r}", hint=did_you_mean(name, list(Format))) from None


def format_options(format: Format, options: Mapping[str, str]) -> dict[str, str]:
    """The options that begin with the format's name and a point, without that prefix."""
    prefix = f"{format.value}."
    found = {key[len(prefix) :]: value for key, value in options.items() if key.startswith(prefix)}
    for name in found:
        if name.lower() in ("mode", "columnnameofcorruptrecord"):
            raise ConfigError(
                f"option {prefix}{name} cannot be set",
                hint="SETTINGS bad_rows = 'quarantine' | 'fail' says what is done with bad rows",
            )
    return found


def decode(frame: DataFrame, value: str, format: str, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """``frame`` with column ``value`` (text or bytes) replaced by declared ``columns`` and what is wrong with a row.

    That is in ``_bad`` and ``_raw``; ``_text`` is every record's text, for whoever finds another reason to set it
    aside: unread, it costs nothing.

    The frame's other columns are kept, and come after. ``options`` may hold any options; those that begin with the
    format's name are used: ``avro.schema`` (inline JSON or a path), ``protobuf.descriptor`` (a path) and
    ``protobuf.message``; for JSON and CSV Spark's own reader options, such as ``csv.sep`` or
    ``json.timestampFormat``. Raises ``ConfigError``, ``UnsupportedError`` or ``ConnectorError``.
    """
    kind = format_of(format)
    chosen = format_options(kind, options)
    others = [name for name in frame.columns if name != value]
    source = frame.withColumnRenamed(value, _VALUE)
    if kind.is_text:
        parsed = _parse_json(source, columns, chosen) if kind is Format.JSON else _parse_csv(source, columns, chosen)
    else:
        parsed = _parse_binary(source, kind, columns, chosen)
    return parsed.select(
        *[F.col(_ROW)[field.name].alias(field.name) for field in columns],
        BAD,
        F.when(F.col(BAD).isNotNull(), _text(kind)).alias(RAW),
        _text(kind).alias(TEXT),
        *map(spark_name, others),
    )


def encode(frame: DataFrame, format: str, options: Mapping[str, str], columns: Sequence[str] | None = None) -> Column:
    """A column with each row of ``frame`` as one value: text for JSON, bytes for Avro and Protobuf.

    ``columns`` are those to be written (all, by default). JSON keeps NULLs as explicit nulls. Avro uses
    ``avro.schema`` where it is given, else the schema that follows from the columns' types. CSV is not offered for
    single values: it has no NULL apart from the empty text. Raises ``ConfigError`` or ``ConnectorError``.
    """
    kind = format_of(format)
    chosen = format_options(kind, options)
    row = F.struct(*[F.col(spark_name(name)) for name in columns or frame.columns])
    if kind is Format.JSON:
        return F.to_json(row, {"ignoreNullFields": "false", **chosen})
    if kind is Format.AVRO:
        require_package(frame.sparkSession, Package.AVRO)
        return to_avro(row, _avro_schema(chosen) if "schema" in chosen else "")
    if kind is Format.PROTOBUF:
        require_package(frame.sparkSession, Package.PROTOBUF)
        message, descriptor = _protobuf_message(chosen)
        return to_protobuf(row, message, binaryDescriptorSet=descriptor)
    raise UnsupportedError("format csv is for reading values, not for writing them", hint="use json, avro or protobuf")


def _text(kind: Format) -> Column:
    """The record as text: itself, where it is text, else its bytes in base64."""
    value = F.col(_VALUE)
    shown = F.base64(value.cast(BinaryType()))
    if kind.is_text:
        text = value.cast(StringType())
        shown = F.when(F.is_valid_utf8(text), text).otherwise(shown)
    return F.coalesce(shown, F.lit(""))


# Text ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Misfit:
    """Why values do not fit: NULL or a reason for a row that was read, and a reason for one that was not."""

    out_of_range: Column
    other_kind: Column


def _parse_json(source: DataFrame, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """Each text is read as the first of two elements of an array whose second is a seal.

    Spark's JSON parser stops at the end of the first document and ignores the rest; between the brackets of an array
    the rest is an error, and the seal shows that the array was read to its end.
    """
    for field in columns:
        if not isinstance(field.dataType, ByteType) and "tinyint" in field.dataType.simpleString():
            raise UnsupportedError(
                f"column {field.name}: a TINYINT inside another type cannot be checked when it is read from JSON",
                hint="declare SMALLINT",
            )
    element = StructType([*map(_widened, columns), StructField(_SEAL, IntegerType())])
    schema = StructType([StructField("v", ArrayType(element)), StructField(_CORRUPT, StringType())])
    plain = {"allowSingleQuotes": "false", **options}
    settings = {**plain, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col(_VALUE).cast(StringType())
    wrapped = F.concat(F.lit('{"v":['), text, F.lit(f',{{"{_SEAL}":1}}]}}'))
    parsed = source.withColumn(_PARSED, F.from_json(wrapped, schema, settings))
    elements = F.col(_PARSED)["v"]
    document = F.get(elements, 0)
    sealed = F.coalesce((F.size(elements) == 2) & F.get(elements, 1)[_SEAL].isNotNull(), F.lit(False))
    texts = F.from_json(text, MapType(StringType(), StringType()), plain)
    misfit = _misfit(columns, document, texts, lambda name: text.rlike(rf'(?i)"{re.escape(name)}"\s*:\s*"[+-]?inf'))
    reason = (
        F.when(F.col(_VALUE).isNull(), _MISSING)
        .when(~F.is_valid_utf8(text), "not valid UTF-8")
        .when(F.col(_PARSED)[_CORRUPT].isNull() & sealed & document.isNotNull(), misfit.out_of_range)
        .when(~text.rlike(r"\S"), "empty text")
        .when(~text.rlike(r"^\s*\{"), "not a JSON object")
        .when(texts.isNull(), "not valid JSON")
        .when(~sealed, "not one JSON object: there is text after its end")
        .otherwise(misfit.other_kind)
    )
    return _with_row(parsed, columns, reason, document)


def _parse_csv(source: DataFrame, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    corrupt = StructField(_CORRUPT, StringType())
    # a quote within quotes is doubled, as in RFC 4180; Spark's own default is a backslash
    settings = {"escape": '"', **options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col(_VALUE).cast(StringType())
    parsed = source.withColumn(_PARSED, F.from_csv(text, StructType([*columns, corrupt]).toDDL(), settings))
    row = F.col(_PARSED)
    as_text = StructType([*[StructField(field.name, StringType()) for field in columns], corrupt])
    cells = F.from_csv(text, as_text.toDDL(), settings)
    misfit = _misfit(columns, row, cells, lambda name: F.lower(cells[name]).contains("inf"))
    reason = (
        F.when(F.col(_VALUE).isNull(), _MISSING)
        .when(~F.is_valid_utf8(text), "not valid UTF-8")
        .when(~text.rlike(r"\S"), "empty text")
        .when(row[_CORRUPT].isNull(), misfit.out_of_range)
        .when(cells[_CORRUPT].isNotNull(), f"not a line of {len(columns)} cells")
        .otherwise(misfit.other_kind)
    )
    return _with_row(parsed, columns, reason, row)


def _widened(field: StructField) -> StructField:
    # The JSON parser wraps 128 to 255 into a negative TINYINT; a SMALLINT holds them until they are checked.
    return StructField(field.name, ShortType()) if isinstance(field.dataType, ByteType) else field


def _misfit(columns: StructType, row: Column, texts: Column, infinite: Callable[[str], Column]) -> _Misfit:
    """Reasons from ``row``, the values as far as they could be read, and ``texts``, the same as text.

    ``infinite`` says whether a column's text itself is an infinity: a number too large is read as one, too.
    """
    nothing = F.lit(None).cast(StringType())
    outside: list[Column] = []
    unread: list[Column] = []
    for field in columns:
        value, text = row[field.name], texts[field.name]
        reason = _does_not_fit(field, text)
        unread.append(F.when(value.isNull() & text.isNotNull(), reason))
        if isinstance(field.dataType, ByteType):
            outside.append(F.when(~value.between(-128, 127), reason))
        elif isinstance(field.dataType, (FloatType, DoubleType)):
            too_large = value.isin(float("inf"), float("-inf")) & ~infinite(field.name)
            type_name = field.dataType.simpleString().upper()
            outside.append(F.when(too_large, f"{field.name}: the number is out of the range of {type_name}"))
        elif isinstance(field.dataType, TimestampType):
            # Milliseconds taken for seconds end up far past this year.
            outside.append(F.when(value >= F.expr("TIMESTAMP'+10000-01-01 00:00:00'"), reason))
    return _Misfit(
        out_of_range=F.coalesce(nothing, *outside),
        other_kind=F.coalesce(nothing, *unread, F.lit("a value does not fit its column")),
    )


def _does_not_fit(field: StructField, text: Column) -> Column:
    shown = F.substring(text, 1, _SHOWN)
    return F.concat(F.lit(f"{field.name}: "), shown, F.lit(f" does not fit {field.dataType.simpleString().upper()}"))


def _with_row(parsed: DataFrame, columns: StructType, reason: Column, row: Column) -> DataFrame:
    """``_bad`` and the row as a struct of the declared types, which is NULL where the row is bad."""
    # try_cast: the casts are there for the widened columns and cannot fail on the rows that are kept.
    fields = [row[field.name].try_cast(field.dataType).alias(field.name) for field in columns]
    return parsed.withColumn(BAD, reason).withColumn(_ROW, F.when(F.col(BAD).isNull(), F.struct(*fields)))


# Binary -------------------------------------------------------------------------------------------------------------


def _parse_binary(source: DataFrame, kind: Format, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    value = F.col(_VALUE).cast(BinaryType())
    if kind is Format.AVRO:
        require_package(source.sparkSession, Package.AVRO)
        # A fixed field after the record, filled from bytes put after the value: it holds them only where the record
        # took exactly all bytes of the value. PERMISSIVE mode alone gives the same NULLs for bad and for empty.
        sealed_schema = _sealed_avro(_avro_schema(options))
        read = from_avro(F.concat(value, F.lit(_SEAL_BYTES)), sealed_schema, {"mode": "PERMISSIVE"})
        body, good = F.col(_PARSED)["body"], F.col(_PARSED)["seal"] == F.lit(_SEAL_BYTES)
    else:
        require_package(source.sparkSession, Package.PROTOBUF)
        message, descriptor = _protobuf_message(options)
        settings = {"emit.default.values": "true", "mode": "PERMISSIVE"}
        read = from_protobuf(value, message, binaryDescriptorSet=descriptor, options=settings)
        body, good = F.col(_PARSED), F.lit(True)
    try:
        parsed = source.withColumn(_PARSED, read)
        written = parsed.select(body.alias("body")).schema["body"].dataType
    except (PySparkException, Py4JJavaError) as error:
        raise ConfigError(f"the {kind.value} schema cannot be used: {_first_line(error)}") from None
    assert isinstance(written, StructType)
    if kind is Format.PROTOBUF:
        # A message that cannot be read comes as all NULL; so may an empty one, which has no bytes.
        present = [body[field.name].isNotNull() for field in written]
        good = (F.octet_length(value) == 0) | F.greatest(F.lit(False), *present)
    reason = F.when(F.col(_VALUE).isNull(), _MISSING).when(
        ~F.coalesce(good, F.lit(False)), f"not one {kind.value} value of this schema"
    )
    fields: list[Column] = []
    for field in columns:
        found = _written_field(field, written, kind)
        given = body[found.name]
        fits = _fits(field, given, found.dataType)
        reason = reason.when(~fits, _does_not_fit(field, given.cast(StringType())))
        fields.append(given.alias(field.name))
    return _with_row(parsed, columns, reason, F.struct(*fields))


def _written_field(field: StructField, written: StructType, kind: Format) -> StructField:
    """The field of the schema for a declared column, by its name, else by its name without case."""
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
    # simpleString leaves out whether parts of the type may be NULL.
    return written.simpleString() == declared.simpleString()


def _fits(field: StructField, given: Column, written: DataType) -> Column:
    """Whether a value can be had as the declared type; whole and decimal numbers also without a change."""
    cast = given.try_cast(field.dataType)
    fits = given.isNull() | cast.isNotNull()
    exact = isinstance(field.dataType, (IntegralType, DecimalType)) and isinstance(written, NumericType)
    return fits & (given.isNull() | (cast == given)) if exact else fits


def _avro_schema(options: Mapping[str, str]) -> str:
    """The record schema of ``avro.schema``, as JSON text."""
    given = options.get("schema")
    if given is None:
        raise ConfigError("format avro needs a schema", hint="give avro.schema: the schema's JSON, or a path to it")
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
    """The message's name, and the descriptor set (what ``protoc --descriptor_set_out`` writes)."""
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
