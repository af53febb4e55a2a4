"""Kafka topics as source frames.

``_part`` is ``topic-partition``, so each partition has its own frontier. ``_seq`` is partition and offset, which a
replay repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import (
    BAD,
    PACKED,
    PART,
    RAW,
    RECORD_COLUMNS,
    SEQUENCE,
    TP_HEADERS,
    TP_OFFSET,
    TP_PARTITION,
    TP_TIME,
)
from watersmeet.connectors.connector import Reading
from watersmeet.connectors.deletes import BY_KEY, KEY, MICROS, with_deletes
from watersmeet.connectors.formats.debezium import decode_changes
from watersmeet.connectors.formats.envelope import DEBEZIUM
from watersmeet.connectors.formats.record_decoders import decoder_of
from watersmeet.connectors.formats.registry_options import has_registry
from watersmeet.connectors.formats.values import decode
from watersmeet.connectors.kafka.client import consumer_settings
from watersmeet.connectors.kafka.options import KafkaOptions, client_options, options_of
from watersmeet.connectors.kafka.ranges import Topic, ranges_of, topic_measure
from watersmeet.connectors.packages import Package, require_package
from watersmeet.errors import ConfigError
from watersmeet.records.kafka import RAW_SCHEMA, read_ranges
from watersmeet.records.kafka_tail import KafkaTopic
from watersmeet.runtime.real_time.tails import LiveRecords
from watersmeet.runtime.run_progress import Measure
from watersmeet.runtime.worker_records import RecordFormat, RecordSource
from watersmeet.settings.seek import LATEST, Seek

VALUE = "_value"
_FRAMED_KEY = "_wm_framed_key"
_NO_TEXT = "the record's key: in the wire format of a schema registry, but keys are read as text or JSON"


def read_stream(
    spark: SparkSession,
    columns: StructType,
    options: Mapping[str, str],
    *,
    limited: bool = True,
    changing: StreamDef | None = None,
    seek: Seek | None = None,
) -> DataFrame:
    """Return a streaming frame of the topic: ``columns``, ``_bad``, ``_raw``, ``_part``, ``_seq`` and ``_tp_time``.

    An append-only stream also has the ``RECORD_COLUMNS`` of columns.py.

    ``_seq`` is the partition (4 bytes) and the offset (8 bytes), both big-endian; ``_tp_time`` is the record's
    timestamp. Only committed records of transactions are read, unless ``kafka.isolation.level`` says otherwise.
    ``limited`` honours ``max_offsets_per_trigger``. ``changing`` is the stream if it is a changing stream, where a
    record without a value is a delete. A query without a checkpoint begins at ``seek``, else at the option
    ``starting``.

    Raises ``ConfigError`` or ``ConnectorError``. This does not contact the broker: call ``partitions`` first.
    """
    given = options_of(options)
    settings = {**_source_options(spark, given), **_starting(seek, given)}
    if given.max_offsets_per_trigger is not None and limited:
        settings["maxOffsetsPerTrigger"] = str(given.max_offsets_per_trigger)
    records = spark.readStream.format("kafka").options(**settings).load()
    return decode_records(with_position(records), given.format, columns, given.format_options, changing)


def worker_records(reading: Reading) -> tuple[RecordSource, Measure] | None:
    """Return the topic as records for workers to read, and how to measure it; None where only Spark can read it.

    Raises ``ConnectorError`` if the broker does not say where the topic's records of some time begin.
    """
    given = options_of(reading.stream.options)
    settings = consumer_settings(client_options(given))
    format = _record_format(reading, given)
    if settings is None or format.decoder is None:
        return None
    starts = _starts(reading, KafkaTopic(given.topic, settings, _since(reading.seek, given)))
    if starts is None:
        return None
    topic = Topic(given.topic, settings, starts, given.max_offsets_per_trigger if reading.limited else None)
    records = RecordSource(ranges_of(reading.spark, topic), partial(read_ranges, settings=settings), format)
    return records, topic_measure(topic)


def _starts(reading: Reading, topic: KafkaTopic) -> dict[int, int] | None:
    """Where partitions begin that do not begin at their first records; None if only Spark's checkpoint knows."""
    if topic.since == OFFSET_BEGINNING:
        return {}
    return None if reading.starts is None else reading.starts.of(reading.stream.name.lower(), topic.start)


def live_settings(stream: StreamDef) -> dict[str, str]:
    """Return librdkafka's settings for a topic to follow; ``ConfigError`` if it lacks one of the stream's options."""
    client = client_options(options_of(stream.options))
    settings = consumer_settings(client)
    if settings is None:
        lacking = [name for name, value in client.items() if consumer_settings({name: value}) is None]
        raise ConfigError(
            f"{stream.name}: real time reads Kafka with librdkafka, which has no equivalent of its options",
            detail=", ".join(lacking or client),
            hint="replace them (docs/sql/connectors.md#kafka), or leave out mode = 'real_time'",
        )
    return settings


def live_records(reading: Reading) -> LiveRecords:
    """Return the topic for a query in real time to follow; raises as ``live_settings`` does."""
    given, settings = options_of(reading.stream.options), live_settings(reading.stream)
    return LiveRecords(KafkaTopic(given.topic, settings, _since(reading.seek, given)), _record_format(reading, given))


def _record_format(reading: Reading, given: KafkaOptions) -> RecordFormat:
    columns, changing = reading.columns, reading.changing

    def by_spark(records: DataFrame) -> DataFrame:
        return decode_records(with_position(records), given.format, columns, given.format_options, changing)

    return RecordFormat(
        RAW_SCHEMA,
        decoder_of(reading.spark, given.format, columns, given.format_options, changing),
        by_spark,
        is_text=given.format in ("json", "csv", DEBEZIUM) and not has_registry(given.format_options),
        has_deltas=given.format == DEBEZIUM,
    )


def _since(seek: Seek | None, options: KafkaOptions) -> int:
    """Where a query begins, in the form of ``KafkaTopic``."""
    if seek is not None and seek.to == "time" and seek.since is not None:
        return -(-seek.since // 1000)
    begins = options.starting if seek is None else seek.to
    return OFFSET_END if begins == LATEST else OFFSET_BEGINNING


def read_stored(
    spark: SparkSession, columns: StructType, options: Mapping[str, str], *, changing: StreamDef | None = None
) -> DataFrame:
    """Return a batch frame with the same columns: all records, up to the topic's end whenever the frame is read."""
    given = options_of(options)
    settings = {**_source_options(spark, given), "startingOffsets": "earliest", "endingOffsets": "latest"}
    records = spark.read.format("kafka").options(**settings).load()
    return decode_records(with_position(records), given.format, columns, given.format_options, changing)


def _source_options(spark: SparkSession, options: KafkaOptions) -> dict[str, str]:
    require_package(spark, Package.KAFKA)
    settings = {"kafka.isolation.level": "read_committed", **client_options(options)}
    return {**settings, "subscribe": options.topic, "includeHeaders": "true"}


def _starting(seek: Seek | None, options: KafkaOptions) -> dict[str, str]:
    """Return where a query begins. Spark honours it only for a new checkpoint."""
    if seek is None:
        return {"startingOffsets": options.starting}
    if seek.to != "time" or seek.since is None:
        return {"startingOffsets": seek.to}
    # a partition without records since that time is read from its end
    millis = -(-seek.since // 1000)
    return {"startingTimestamp": str(millis), "startingOffsetsByTimestampStrategy": "latest"}


def decode_records(
    records: DataFrame, format: str, columns: StructType, options: Mapping[str, str], changing: StreamDef | None
) -> DataFrame:
    """Return the rows of the records that ``with_position`` returns, with deletes by key in a changing stream."""
    if changing is None:
        return decode(records.drop(KEY), VALUE, format, columns, options)
    records = records.drop(*RECORD_COLUMNS)
    if format == DEBEZIUM:
        # Debezium sends a record without a value after each delete, for the compaction of the topic
        return decode_changes(_without_tombstones(records), VALUE, changing, columns, options)
    marked = records.withColumns({BY_KEY: F.col(VALUE).isNull(), MICROS: F.unix_micros(TP_TIME)})
    if not has_registry(options):
        return with_deletes(decode(marked, VALUE, format, columns, options), changing, columns)
    # as text, such a key would be another one
    is_framed = F.col(BY_KEY) & (F.substring(F.col(KEY), 1, 1) == F.lit(b"\0"))
    marked = marked.withColumn(_FRAMED_KEY, F.when(is_framed, F.base64(KEY)))
    rows = with_deletes(decode(marked, VALUE, format, columns, options), changing, columns)
    reason = F.when(F.col(_FRAMED_KEY).isNotNull(), _NO_TEXT).otherwise(F.col(BAD))
    return rows.withColumns({BAD: reason, RAW: F.coalesce(_FRAMED_KEY, RAW)}).drop(_FRAMED_KEY)


def _without_tombstones(records: DataFrame) -> DataFrame:
    has_value = F.col(VALUE).isNotNull()
    return records.where(has_value | F.col(PACKED).isNotNull() if PACKED in records.columns else has_value)


def with_position(records: DataFrame) -> DataFrame:
    """Return Kafka's records as ``_value`` and ``_key``, with the hidden columns of a source."""
    # through hexadecimal text, because ANSI mode has no cast from a number to its bytes
    hexadecimal = F.concat(
        F.lpad(F.hex(F.col("partition").cast("bigint")), 8, "0"), F.lpad(F.hex(F.col("offset")), 16, "0")
    )
    part = F.concat(F.col("topic"), F.lit("-"), F.col("partition").cast("string"))
    return records.select(
        F.col("value").alias(VALUE),
        F.col("key").alias(KEY),
        F.coalesce(part, F.lit("")).alias(PART),
        F.unhex(hexadecimal).alias(SEQUENCE),
        F.col("timestamp").alias(TP_TIME),
        F.col("partition").alias(TP_PARTITION),
        F.col("offset").alias(TP_OFFSET),
        F.col("headers").alias(TP_HEADERS),
        *(name for name in records.columns if name == PACKED),
    )
