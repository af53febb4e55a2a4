"""The ``kafka`` connector, over Spark's own Kafka package."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from watersmeet.catalog.streams import StreamDef
from watersmeet.connectors.connector import Reading, SinkConnector, StoredConnector, WriteBatch, Writing
from watersmeet.connectors.formats.registry_options import pinned
from watersmeet.connectors.kafka.broker import partitions
from watersmeet.connectors.kafka.client import producer_settings
from watersmeet.connectors.kafka.options import PREFIXES, KafkaOptions, client_options, options_of
from watersmeet.connectors.kafka.sink import (
    is_exactly_once,
    lacking_options,
    live_records_of,
    reach,
    take_back,
    with_schema,
    write_batch,
)
from watersmeet.connectors.kafka.source import (
    live_records,
    live_settings,
    read_stored,
    read_stream,
    worker_records,
)
from watersmeet.connectors.sink_changelogs import Changelogs
from watersmeet.errors import ConfigError, UnsupportedError
from watersmeet.runtime.real_time.sinks import LiveSink
from watersmeet.runtime.source_frames import Source


class KafkaConnector(StoredConnector, SinkConnector):
    """The Kafka topic ``topic`` at ``brokers`` (``host:port``, separated by commas), as source and as sink.

    ``format`` is ``json`` (the default), ``avro`` or ``protobuf``; a source also reads ``csv`` and, for changing
    streams, ``debezium-json``. ``json.*``, ``csv.*``, ``avro.*`` and ``protobuf.*`` are options of the format,
    ``kafka.*`` those of Kafka's client. As a source, each partition has its own frontier; a query without a checkpoint
    begins at ``starting`` (``earliest``, the default, or ``latest``), and ``max_offsets_per_trigger`` limits the
    records of a micro-batch. In a changing stream a record without a value is a delete. As a sink, it writes at least
    once and marks repeats by headers; if ``delivery`` is ``exactly_once``, each batch in a transaction. ``key`` names
    the columns of the record's key. With a PRIMARY KEY it writes upserts and deletes; with ``changelog`` it appends
    each change with its ``_tp_delta``. With ``registry.*`` the values are in the wire format of a schema registry:
    ``registry.url``, ``registry.subject`` (by default the topic's name and ``-value``), ``registry.version``,
    ``registry.auto_register``, ``registry.user``, ``registry.password``, ``registry.token`` and ``registry.ca``.
    """

    name = "kafka"
    model = KafkaOptions
    prefixes = PREFIXES
    changelogs = (Changelogs.BY_KEY, Changelogs.IF_ASKED)

    def check(self, stream: StreamDef) -> None:
        """Raise ``ConfigError`` for wrong options, and for ``key`` or ``changelog`` beside a PRIMARY KEY."""
        given = options_of(stream.options)
        if stream.changes and given.key:
            raise ConfigError(
                f"option key: the PRIMARY KEY of {stream.name} is the key of its records",
                hint="leave out key, or the PRIMARY KEY",
                option="key",
            )
        if stream.changes and given.changelog:
            raise ConfigError(
                f"changelog = 'true' appends each change, but {stream.name} has a PRIMARY KEY, by which it takes them"
                " as upserts and deletes",
                hint="leave out changelog, or the PRIMARY KEY",
                option="changelog",
            )

    def limits_batches(self, stream: StreamDef) -> bool:
        """Return whether the stream has the option ``max_offsets_per_trigger``."""
        return options_of(stream.options).max_offsets_per_trigger is not None

    def open_source(self, reading: Reading) -> Source:
        """Return the topic as a source with the frontiers of its partitions.

        Raises ``ConnectorError``, within ``kafka_broker.CHECK_SECONDS``, where the broker or the topic is missing.
        """
        if reading.live:
            live_settings(reading.stream)  # before the broker is asked, which Spark may not reach with them either
        parts = partitions(reading.spark, reading.stream.options)
        reading = replace(reading, stream=_pinned(reading.stream))
        options = reading.stream.options
        frame = read_stream(
            reading.spark,
            reading.columns,
            options,
            limited=reading.limited,
            changing=reading.changing,
            seek=reading.seek,
        )
        if reading.live:
            return Source(frame, parts, live=live_records(reading))
        if (found := worker_records(reading)) is None:
            return Source(frame, parts)
        records, measure = found
        return Source(frame, parts, records=records, measures=(measure,))

    def open_stored(self, reading: Reading) -> DataFrame:
        """Return the records that the topic has, up to its end whenever the frame is read."""
        partitions(reading.spark, reading.stream.options)  # its errors are clearer than Spark's
        options = _pinned(reading.stream).options
        return read_stored(reading.spark, reading.columns, options, changing=reading.changing)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what writes a batch as records."""
        options, changing = with_schema(writing.stream), writing.changing
        given = options_of(options)
        if is_exactly_once(given) and producer_settings(client_options(given)) is None:
            raise lacking_options(given)
        return lambda rows, batch_id, key: write_batch(rows, batch_id, options, key=key, changing=changing)

    def reach(self, spark: SparkSession, stream: StreamDef) -> None:
        """Ask the broker for the topic."""
        reach(spark, stream.options)

    def open_live_sink(self, writing: Writing) -> LiveSink:
        """Return what writes rows as records, as they come."""
        options, changing = with_schema(writing.stream), writing.changing
        if is_exactly_once(options_of(options)):
            raise UnsupportedError(
                f"{writing.stream.name}: delivery = 'exactly_once' makes a transaction of a batch, and real time has no"
                " batches",
                hint="leave out delivery: the headers _run and _runs of each record say which ones are repeated "
                "(docs/real-time.md); or leave out mode = 'real_time'",
            )
        records = partial(live_records_of, options=options, changing=changing)
        if changing is None or not writing.changelog:
            return LiveSink(records)
        return LiveSink(records, take_back=partial(take_back, options=options))


def _pinned(stream: StreamDef) -> StreamDef:
    """Return the stream with the version of its schema that counts while a query runs."""
    given = options_of(stream.options)
    return stream.model_copy(update={"options": {**stream.options, **pinned(given.format_options, given.format)}})
