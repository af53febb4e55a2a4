"""Kafka topics as a sink."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA, spark_name
from watersmeet.connectors.formats import encode
from watersmeet.connectors.kafka_broker import partitions
from watersmeet.connectors.kafka_options import KafkaOptions, client_options, options_of
from watersmeet.connectors.net_changes import net_frame
from watersmeet.connectors.packages import Package, require_package
from watersmeet.errors import ConfigError, ConnectorError, did_you_mean
from watersmeet.runtime.failures import known_error
from watersmeet.settings.secrets import hide

#: Spark's default formats end at milliseconds; two keys may differ by less.
_WHOLE_TIMES = {
    "json.timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "json.timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def write_batch(
    frame: DataFrame,
    batch_id: int,
    options: Mapping[str, str],
    *,
    key: str = "",
    changing: StreamDef | None = None,
) -> None:
    """Write all rows of one micro-batch to the topic, and return when the broker has them.

    Delivery is at least once: if a batch is retried after some of its rows were written, those rows appear twice.
    Every record carries the header ``_batch`` (the batch's number, as text) and, with ``key``, the header ``_query``
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
    if changing is None:
        record = (_key(frame, given.key), encode(frame, given.format, given.format_options))
    else:
        frame = net_frame(frame, changing)
        record = (_primary_key(changing), _value(frame, given, changing))
    written = frame.select(
        record[0].alias("key"),
        record[1].alias("value"),
        F.array(
            *[F.struct(F.lit(k).alias("key"), F.encode(F.lit(v), "UTF-8").alias("value")) for k, v in headers.items()]
        ).alias("headers"),
    )
    settings = {
        "kafka.max.block.ms": "10000",
        **client_options(given),
        "topic": given.topic,
        "includeHeaders": "true",
    }
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        written.write.format("kafka").options(**settings).save()
    except (PySparkException, Py4JError) as error:
        if (ours := known_error(hide(str(error), given.client))) is not None:
            raise ours from None
        partitions(frame.sparkSession, options)  # its errors are clearer where the broker or the topic is the reason
        said = hide(str(error), given.client).strip().splitlines()[0]
        raise ConnectorError(f"batch {batch_id} could not be written to topic {given.topic!r}: {said}") from None


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


def _value(frame: DataFrame, options: KafkaOptions, stream: StreamDef) -> Column:
    """Return the declared columns of a row that holds, with times as in the key; NULL for a retraction."""
    row = encode(
        frame,
        options.format,
        {**_WHOLE_TIMES, **options.format_options},
        [column.name for column in stream.columns],
    )
    return F.when(F.col(TP_DELTA) > 0, row)
