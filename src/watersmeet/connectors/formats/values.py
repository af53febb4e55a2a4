"""Turn raw values into the declared columns, and rows into values: JSON, CSV, Avro and Protobuf.

``decode`` never turns an unreadable value into NULL. Such a row carries the reason in ``_bad`` and its raw text in
``_raw``, and all its declared columns are NULL. Bad are: text that is not valid UTF-8 or does not parse, text after
the end of a document, a JSON document that is not an object, a number outside its type's range, a value of another
kind than its column, a CSV line with too few or too many cells, and bytes that are not exactly one Avro record.

A missing or null JSON field and an empty CSV cell are NULL in a good row. A number with more decimals than its DECIMAL
column is rounded, and a JSON number in a TIMESTAMP column is in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from watersmeet.columns import BAD, RAW, TEXT, spark_name
from watersmeet.connectors.formats.binary import encode_avro, encode_protobuf, parse_binary
from watersmeet.connectors.formats.decoded_rows import ROW, VALUE, Format
from watersmeet.connectors.formats.registered import encode_registered, parse_registered
from watersmeet.connectors.formats.registry_options import has_registry
from watersmeet.connectors.formats.text import parse_csv, parse_json
from watersmeet.errors import ConfigError, UnsupportedError, did_you_mean

__all__ = ["Format", "decode", "encode", "format_of", "format_options"]


def format_of(name: str) -> Format:
    """Return the format of that name; raises ``ConfigError`` with the known names for another."""
    try:
        return Format(name.lower())
    except ValueError:
        raise ConfigError(f"no format is named {name!r}", hint=did_you_mean(name, list(Format))) from None


def format_options(format: Format, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that begin with the format's name and a point, without that prefix."""
    prefix = f"{format.value}."
    found = {key[len(prefix) :]: value for key, value in options.items() if key.startswith(prefix)}
    for name in found:
        if name.lower() in ("mode", "columnnameofcorruptrecord"):
            raise ConfigError(
                f"option {prefix}{name} cannot be set",
                hint="SETTINGS bad_rows = 'quarantine' | 'fail' decides what happens to bad rows",
            )
    return found


def decode(frame: DataFrame, value: str, format: str, columns: StructType, options: Mapping[str, str]) -> DataFrame:
    """Replace column ``value`` (text or bytes) by the declared ``columns``, ``_bad``, ``_raw`` and ``_text``.

    ``_text`` is every record's text, for later checks that quarantine it; unread, it costs nothing. The frame's other
    columns follow. Of ``options``, those that begin with the format's name are used: ``avro.schema`` (inline JSON or a
    path), ``protobuf.descriptor`` (a path) and ``protobuf.message``; for JSON and CSV Spark's own reader options, such
    as ``csv.sep`` or ``json.timestampFormat``. With ``registry.…``, values are in the wire format of a schema registry.
    Raises ``ConfigError``, ``UnsupportedError`` or ``ConnectorError``.
    """
    kind = format_of(format)
    chosen = format_options(kind, options)
    others = [name for name in frame.columns if name != value]
    source = frame.withColumnRenamed(value, VALUE)
    if has_registry(options):
        parsed = parse_registered(source, kind, columns, options)
    elif kind.is_text:
        parsed = parse_json(source, columns, chosen) if kind is Format.JSON else parse_csv(source, columns, chosen)
    else:
        parsed = parse_binary(source, kind, columns, chosen)
    return parsed.select(
        *[F.col(ROW)[field.name].alias(field.name) for field in columns],
        BAD,
        F.when(F.col(BAD).isNotNull(), _text(kind)).alias(RAW),
        _text(kind).alias(TEXT),
        *map(spark_name, others),
    )


def encode(
    frame: DataFrame,
    format: str,
    options: Mapping[str, str],
    columns: Sequence[str] | None = None,
    holds: Column | None = None,
) -> Column:
    """Return a column with each row of ``frame`` as one value: text for JSON, bytes for Avro and Protobuf.

    ``columns`` are the columns to write (by default all); the value is NULL unless ``holds``. JSON writes NULLs as
    explicit nulls. Avro uses the option ``avro.schema``, else the schema of the columns' types. CSV is not supported
    for single values, because it cannot tell NULL from the empty text. Raises ``ConfigError``, ``UnsupportedError`` or
    ``ConnectorError``, with a registry also ``SinkOutageError``.
    """
    kind = format_of(format)
    chosen = format_options(kind, options)
    if has_registry(options):
        return encode_registered(frame, kind, columns or frame.columns, options, holds)
    row = F.struct(*[F.col(spark_name(name)) for name in columns or frame.columns])
    if kind is Format.JSON:
        found = F.to_json(row, {"ignoreNullFields": "false", **chosen})
    elif kind is Format.AVRO:
        found = encode_avro(frame, row, chosen)
    elif kind is Format.PROTOBUF:
        found = encode_protobuf(frame, row, chosen)
    else:
        raise _unwritten_csv()
    return found if holds is None else F.when(holds, found)


def _unwritten_csv() -> UnsupportedError:
    return UnsupportedError("format csv is for reading values, not for writing them", hint="use json, avro or protobuf")


def _text(kind: Format) -> Column:
    """Return the record as text: itself if it is valid text, else its bytes in base64."""
    value = F.col(VALUE)
    shown = F.base64(value.cast(BinaryType()))
    if kind.is_text:
        text = value.cast(StringType())
        shown = F.when(F.is_valid_utf8(text), text).otherwise(shown)
    return F.coalesce(shown, F.lit(""))
