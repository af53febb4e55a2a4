"""Which decoder of the workers goes with a stream's format."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import CharType, DatetimeType, StructType, TimestampType, VarcharType

from watersmeet.catalog.streams import StreamDef, StreamMode
from watersmeet.columns import TP_DELTA
from watersmeet.connectors.formats.binary import avro_schema
from watersmeet.connectors.formats.envelope import DEBEZIUM
from watersmeet.connectors.formats.registered import registered_decoder
from watersmeet.connectors.formats.registry_options import has_registry
from watersmeet.connectors.formats.values import Format, format_options
from watersmeet.expressions.event_time import TimeUnit
from watersmeet.records.avro import avro_decoder
from watersmeet.records.csv import csv_decoder
from watersmeet.records.debezium import ChangeTime, debezium_decoder
from watersmeet.records.decoder import Decoder
from watersmeet.records.json import json_decoder


def decoder_of(
    spark: SparkSession, format: str, columns: StructType, options: Mapping[str, str], changing: StreamDef | None
) -> Decoder | None:
    """Return a decoder for the declared columns; None where only Spark can decode this format, type or option.

    Raises ``ConfigError`` and ``ConnectorError`` for a schema that cannot be used.
    """
    types = [each.dataType for each in columns]
    if has_registry(options) and format != Format.JSON:
        return registered_decoder(Format(format), columns, options)
    if any(isinstance(each, CharType | VarcharType) for each in types):  # Arrow knows no lengths
        return None
    if format == Format.AVRO:
        return avro_decoder(avro_schema(format_options(Format.AVRO, options)), to_arrow_schema(columns, timezone="UTC"))
    if not _is_in_utc(spark) and any(isinstance(each, TimestampType) for each in types):
        return None
    if _has_old_calendar(spark) and any(isinstance(each, DatetimeType) for each in types):
        return None
    if format == DEBEZIUM and changing is not None and not format_options(Format.JSON, options):
        return _of_changes(changing, columns)
    if format == Format.JSON and has_registry(options):
        return None if format_options(Format.JSON, options) else registered_decoder(Format.JSON, columns, options)
    if format == Format.JSON and not format_options(Format.JSON, options):
        return json_decoder(to_arrow_schema(columns, timezone="UTC"))
    if format == Format.CSV and not format_options(Format.CSV, options):
        return csv_decoder(to_arrow_schema(columns, timezone="UTC"))
    return None


def _is_in_utc(spark: SparkSession) -> bool:
    """Return whether a time without a zone is in UTC, as the decoders read it."""
    return str(spark.conf.get("spark.sql.session.timeZone")) == "UTC"


def _has_old_calendar(spark: SparkSession) -> bool:
    """Return whether Spark reads times of text as before version 3, with the Julian calendar."""
    return str(spark.conf.get("spark.sql.legacy.timeParserPolicy")).upper() == "LEGACY"


def _of_changes(stream: StreamDef, columns: StructType) -> Decoder | None:
    image = StructType([each for each in columns if each.name != TP_DELTA])
    time = None
    if stream.time_column in image.names:
        if stream.time_unit is TimeUnit.ROWS:
            return None
        time = ChangeTime(stream.time_column, stream.time_unit.scale)
    schema = to_arrow_schema(image, timezone="UTC")
    return debezium_decoder(schema, time, keeps_before=stream.mode is not StreamMode.VERSIONED)
