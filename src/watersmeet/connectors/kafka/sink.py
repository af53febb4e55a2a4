"""Kafka topics as a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA, spark_name
from watersmeet.connectors.formats.registered import as_sink, registered_encoder
from watersmeet.connectors.formats.registry_options import (
    SUBJECT,
    VERSION,
    has_registry,
    registry_options,
    required_version,
)
from watersmeet.connectors.formats.values import encode, format_of
from watersmeet.connectors.kafka import void_results
from watersmeet.connectors.kafka.broker import partitions
from watersmeet.connectors.kafka.client import connection_settings, producer_settings
from watersmeet.connectors.kafka.options import KafkaOptions, client_options, options_of
from watersmeet.connectors.kafka.void_results import WAS, header_array, headers_of
from watersmeet.connectors.net_changes import net_frame, null_key
from watersmeet.connectors.packages import Package, require_package
from watersmeet.connectors.stream_schema import spark_schema
from watersmeet.errors import ConfigError, ConnectorError, OutageError, SinkOutageError, did_you_mean
from watersmeet.records.kafka_producer import RECORD_SCHEMA, WRITTEN_SCHEMA, KafkaWriter
from watersmeet.records.kafka_transactions import TransactionalWriter
from watersmeet.runtime.failures import cause_of, is_of_this_machine, kafka_is_unreachable, known_error
from watersmeet.runtime.real_time.operator_task import EPOCH
from watersmeet.runtime.real_time.sinks import ByKafka, RunName
from watersmeet.settings.secrets import hide

#: Spark's default formats end at milliseconds; two keys may differ by less.
_WHOLE_TIMES = {
    "json.timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "json.timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Records that come together leave together, with little delay.
_SOON = {"kafka.linger.ms": "2"}


def write_batch(
    frame: DataFrame,
    batch_id: int,
    options: Mapping[str, str],
    *,
    key: str = "",
    changing: StreamDef | None = None,
) -> None:
    """Write all rows of one micro-batch to the topic, and return when the broker has them.

    Delivery is at least once: if a batch is retried after some of its rows were written, those rows appear twice.  With
    ``delivery = 'exactly_once'`` a batch is one transaction, which is made once (records/kafka_transactions.py).  Every
    record carries the header ``_batch`` (the batch's number, as text) and, with ``key``, the header ``_query``
    (``key``, which names query, checkpoint and batch). A batch is repeated as a whole, with equal values, before any
    later one is written, so a consumer with unique rows or keys can drop what it has read with the same header.

    The value is the row in the stream's format. The key, from the option ``key``, is one column's text or a JSON object
    of several columns. ``changing`` is the stream if it has a primary key. Then a batch has at most one record per key:
    its key is a JSON object of the key columns, its value NULL where the key has no row any more, so a compacted topic
    holds the current rows however often a batch is written. Raises ``ConfigError`` or ``ConnectorError``.
    """
    given = options_of(options)
    require_package(frame.sparkSession, Package.KAFKA)
    headers = {"_batch": str(batch_id), **({"_query": key} if key else {})}
    if changing is not None:
        frame = net_frame(frame, changing)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        _write(frame, given, changing, headers, key.removesuffix(f"-{batch_id:012d}"), batch_id)
    except (PySparkException, Py4JError) as error:
        raise _failure(
            f"batch {batch_id} could not be written to topic {given.topic!r}", error, frame, options
        ) from None


def with_schema(stream: StreamDef) -> dict[str, str]:
    """Return the options of a sink, whose schema is registered, or has its version, from now on.

    A sink without declared columns, or whose values have ``_tp_delta`` too, registers its schema with the first batch.
    Raises as ``encode``.
    """
    given = options_of(stream.options)
    if not has_registry(given.format_options):
        return stream.options
    options = {**stream.options, SUBJECT: registry_options(given.format_options).subject}
    if not registry_options(options).auto_register:
        with as_sink():
            options[VERSION] = str(required_version(registry_options(options)).version)
    if stream.columns and not given.changelog:
        registered_encoder(format_of(given.format), spark_schema(stream), options)
    return options


def _failure(what: str, error: Exception, frame: DataFrame, options: Mapping[str, str]) -> Exception:
    """Return the error to report where a batch could not be computed or written; ``error`` where Kafka has no part."""
    text = hide(str(error), options_of(options).client)
    ours = known_error(text)
    if ours is None and is_of_this_machine(error):
        return error
    is_of_sink = isinstance(ours, SinkOutageError) or not isinstance(ours, OutageError)
    if ours is not None and not (is_of_sink and isinstance(ours, ConnectorError)):
        return ours
    try:
        reach(frame.sparkSession, options)  # its errors are clearer where the broker or the topic is the reason
    except SinkOutageError as outage:
        return SinkOutageError(f"{what}: {outage.message}", detail=outage.detail, waits_for=outage.waits_for)
    except ConnectorError as clearer:
        return clearer
    if ours is not None:
        return ours
    kind = SinkOutageError if kafka_is_unreachable(text) else ConnectorError
    return kind(f"{what}: {cause_of(text)}", hint="fix the cause and run the query again: it writes the batch anew")


def reach(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Raise ``SinkOutageError`` where no broker answers, and ``ConnectorError`` as ``partitions`` does."""
    try:
        partitions(spark, options)
    except OutageError as error:
        raise SinkOutageError(error.message, detail=error.detail, hint=error.hint, waits_for=error.waits_for) from None


def _write(
    frame: DataFrame,
    given: KafkaOptions,
    changing: StreamDef | None,
    headers: Mapping[str, str],
    query: str,
    batch_id: int,
) -> None:
    """Write the rows by librdkafka in the workers; by Spark's own writer if librdkafka lacks one of the options."""
    settings = producer_settings(client_options(given))
    if settings is None:
        if is_exactly_once(given):
            raise lacking_options(given)
        marks = {name: F.lit(text) for name, text in headers.items()}
        records = frame.select(*_record(frame, given, changing, marks))
        records.write.format("kafka").options(**_sink_options(given)).save()
        return
    records = frame.select(*_record(frame, given, changing, {}))
    bodies = records.select(*(F.col(name).cast("binary") for name in RECORD_SCHEMA.names))
    writer: KafkaWriter | TransactionalWriter = KafkaWriter(given.topic, settings, headers)
    if is_exactly_once(given):
        # a transaction has one producer; the tasks before it still compute the rows side by side
        bodies = bodies.repartition(1)
        writer = TransactionalWriter(
            given.topic, settings, connection_settings(settings), headers, f"watersmeet-{query}", batch_id
        )
    bodies.mapInArrow(writer.write, from_arrow_schema(WRITTEN_SCHEMA)).collect()


def is_exactly_once(given: KafkaOptions) -> bool:
    """Return whether each batch is to be one transaction."""
    return given.delivery == "exactly_once"


def lacking_options(given: KafkaOptions) -> ConfigError:
    """Return the error for a stream whose options librdkafka does not have, which alone writes transactions."""
    client = client_options(given)
    lacking = [name for name, value in client.items() if producer_settings({name: value}) is None]
    return ConfigError(
        "delivery = 'exactly_once' writes with librdkafka, which has no equivalent of some options of the stream",
        detail=", ".join(lacking or client),
        hint="replace them (docs/sql/connectors.md#kafka), or leave out delivery",
        option="delivery",
    )


def live_records_of(
    spark: SparkSession, run: RunName, *, options: Mapping[str, str], changing: StreamDef | None
) -> ByKafka:
    """Return how a run's rows with the column ``_wm_epoch`` become records of the topic.

    Records are those of ``write_batch``; ``_batch`` is the epoch. The header ``_run`` is the run's number, ``_runs``
    has the newest runs with their first epochs, as in ``6:20 8:21``: what runs before 8 gave from epoch 21 on is void.
    The changes of a key come one after the other; one that only passes through a value may be seen with it.  Deletes
    carry what they delete in the header ``_was`` (void_results.py).
    """
    given = options_of(options)
    require_package(spark, Package.KAFKA)

    def record(frame: DataFrame, holds: Column) -> Sequence[Column]:
        headers, rows = headers_of(run, F.col(EPOCH).cast("string")), frame.drop(EPOCH)
        if changing is not None and TP_DELTA in rows.columns:
            headers[WAS] = _value(rows, given, changing, F.col(TP_DELTA) < 0)
        return _record(rows, given, changing, headers, holds)

    sink = {name: value for name, value in _sink_options(given).items() if name != "topic"}
    return ByKafka(given.topic, record, {**sink, **_SOON})


def _record(
    rows: DataFrame,
    given: KafkaOptions,
    changing: StreamDef | None,
    headers: Mapping[str, Column],
    holds: Column | None = None,
) -> list[Column]:
    """A row as a record: ``key``, ``value`` and ``headers``; for ``holds`` see ``encode``."""
    if changing is None:
        key, value = _key(rows, given.key), encode(rows, given.format, given.format_options, holds=holds)
    else:
        has_row = F.col(TP_DELTA) > 0 if TP_DELTA in rows.columns else holds
        key, value = _primary_key(changing), _value(rows, given, changing, has_row)
        if holds is not None:  # batches have been checked
            key = _required(key, changing, holds)
    return [key.alias("key"), value.alias("value"), header_array(headers).alias("headers")]


def _sink_options(given: KafkaOptions) -> dict[str, str]:
    return {
        "kafka.max.block.ms": "10000",
        **client_options(given),
        "topic": given.topic,
        "includeHeaders": "true",
    }


def _key(frame: DataFrame, names: tuple[str, ...]) -> Column:
    for name in names:
        if name not in frame.columns:
            raise ConfigError(f"option key: no column is named {name!r}", hint=did_you_mean(name, frame.columns))
    columns = [F.col(f"`{name.replace('`', '``')}`") for name in names]
    if not columns:
        return F.lit(None).cast("string")
    return columns[0].cast("string") if len(columns) == 1 else F.to_json(F.struct(*columns))


def _primary_key(stream: StreamDef) -> Column:
    """Return the key's columns as JSON that deletes.py reads."""
    columns = F.struct(*(F.col(spark_name(name)) for name in stream.primary_key))
    return F.to_json(columns, {name.removeprefix("json."): value for name, value in _WHOLE_TIMES.items()})


def _required(key: Column, stream: StreamDef, holds: Column) -> Column:
    """The key of rows that hold; a query ends with ``null_key`` at a row that has none."""
    for name in stream.primary_key:
        error = null_key(stream, name)
        raised = F.raise_error(F.lit(f"{ConnectorError.__module__}.{ConnectorError.__name__}: {error}\n"))
        key = F.when(holds & F.col(spark_name(name)).isNull(), raised).otherwise(key)
    return key


def _value(rows: DataFrame, options: KafkaOptions, stream: StreamDef, has_row: Column | None) -> Column:
    """Return the declared columns where a key ``has_row`` (None: always), with times as in the key; else NULL."""
    names = [column.name for column in stream.columns]
    return encode(rows, options.format, {**_WHOLE_TIMES, **options.format_options}, names, has_row)


def take_back(spark: SparkSession, run: RunName, since: float | None, options: Mapping[str, str]) -> None:
    """Give keys back what they had before epochs that did not commit; raises as ``write_batch`` (void_results.py)."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    given = options_of(options)
    try:
        void_results.take_back(spark, given, run, since)
    except (PySparkException, Py4JError) as error:
        what = f"results of epochs that did not commit could not be taken back from topic {given.topic!r}"
        raise _failure(what, error, spark.range(0), options) from None
