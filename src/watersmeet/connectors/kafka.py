"""Kafka as a source and a sink, over Spark's own Kafka package.

A source has its frontiers per partition (``_part`` is ``topic-partition``) and a position that a replay repeats
(``_seq``: partition, offset). Before a query starts, ``partitions`` asks the broker for the topic, so that a missing
topic or a broker that cannot be reached is one sentence within ``CHECK_SECONDS``, not a failed query.

References to secrets (``${env:NAME}``, ``${file:/path}``) are resolved in ``brokers`` and in the options of Kafka's
client (``kafka.*``), as late as can be, and nowhere else.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import PART, SEQUENCE, TP_DELTA, TP_TIME, spark_name
from watersmeet.connectors.debezium import decode_changes
from watersmeet.connectors.deletes import BY_KEY, KEY, MICROS, with_deletes
from watersmeet.connectors.envelope import DEBEZIUM
from watersmeet.connectors.formats import decode, encode
from watersmeet.connectors.packages import Package, require_package
from watersmeet.connectors.upsert import net_frame
from watersmeet.errors import ConfigError, ConnectorError, did_you_mean
from watersmeet.runtime.failures import known_error
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.secrets import hide, masked, masked_value, resolve
from watersmeet.settings.seek import Seek

CHECK_SECONDS = 9.0
"""The longest that the look at the broker before a query may take."""
_CONNECT_SECONDS = 2.0

VALUE = "_value"
_FORMAT_PREFIXES = ("json.", "csv.", "avro.", "protobuf.")
_CLIENT_PREFIX = "kafka."
_SERVERS = "kafka.bootstrap.servers"
_RESERVED = (
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.key.serializer",
    "kafka.value.deserializer",
    "kafka.value.serializer",
)
#: Spark's own formats end at milliseconds, and two keys may differ by less.
_WHOLE_TIMES = {
    "json.timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "json.timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_ADMIN_PREFIXES = ("security.", "sasl.", "ssl.", "client.", "socket.")


def _names(text: object) -> object:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if isinstance(text, str) else text


class KafkaOptions(BaseModel):
    """The WITH options of a Kafka stream. Printing it shows no secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    brokers: Annotated[str, Field(min_length=1)]
    """``host:port``, several with commas; ``kafka.bootstrap.servers`` is another name for it."""
    format: Literal["json", "csv", "avro", "protobuf", "debezium-json"] = "json"
    starting: Literal["earliest", "latest"] = "earliest"
    """Where a query without a checkpoint begins."""
    max_offsets_per_trigger: Annotated[int, Field(gt=0)] | None = None
    """The most records of one micro-batch, over all partitions."""
    key: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    """Columns that make the record's key in a sink: one as its text, several as a JSON object."""
    changelog: bool = False
    """Sink: take a changelog, with ``_tp_delta`` in the values."""
    format_options: dict[str, str] = {}
    client: dict[str, str] = {}
    """The ``kafka.*`` options, as written: references to secrets are not resolved here."""

    def __repr__(self) -> str:
        shown = {**self.model_dump(exclude={"client", "format_options"}), **masked(self.client)}
        shown["brokers"] = self.shown_brokers
        return f"KafkaOptions({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    __str__ = __repr__

    @property
    def shown_brokers(self) -> str:
        """The brokers as messages name them."""
        return masked_value("brokers", self.brokers)


def options_of(options: Mapping[str, str]) -> KafkaOptions:
    """The options of a WITH clause, checked; ``ConfigError`` for what is missing, unknown or wrong."""
    given = dict(options)
    for name in _RESERVED:
        if name in given:
            raise ConfigError(f"option {name} cannot be set: Spark sets it itself", option=name)
    servers = given.pop(_SERVERS, None)
    if servers is not None and given.setdefault("brokers", servers) != servers:
        raise ConfigError(f"brokers and {_SERVERS} are two names of one option, and differ", option=_SERVERS)
    nested = {"client": (_CLIENT_PREFIX,), "format_options": _FORMAT_PREFIXES}
    return parse_options(KafkaOptions, "kafka", given, nested=nested)


def check_options(stream: StreamDef) -> None:
    """Raise ``ConfigError`` for options that are wrong, for secrets written out, and for two kinds of key."""
    given = options_of(stream.options)
    if stream.changes and given.key:
        raise ConfigError(
            f"option key: the PRIMARY KEY of {stream.name} is the key of its records",
            hint="leave out key, or the PRIMARY KEY",
            option="key",
        )
    if stream.changes and given.changelog:
        raise ConfigError(
            f"changelog = 'true' appends each change, but {stream.name} has a PRIMARY KEY, by which it takes them as"
            " upserts and deletes",
            hint="leave out changelog, or the PRIMARY KEY",
            option="changelog",
        )


def _client_options(options: KafkaOptions) -> dict[str, str]:
    resolved = {name: resolve(value) for name, value in options.client.items()}
    return {**resolved, _SERVERS: resolve(options.brokers)}


# Source -------------------------------------------------------------------------------------------------------------


def read_stream(
    spark: SparkSession,
    columns: StructType,
    options: Mapping[str, str],
    *,
    limited: bool = True,
    changing: StreamDef | None = None,
    seek: Seek | None = None,
) -> DataFrame:
    """A streaming frame of the topic: ``columns``, ``_bad``, ``_raw``, ``_part``, ``_seq`` and ``_tp_time``.

    ``_part`` is ``topic-partition``, ``_seq`` the partition (4 bytes) and the offset (8 bytes), both big-endian, and
    ``_tp_time`` the record's timestamp. Only committed records of transactions are read, unless
    ``kafka.isolation.level`` says otherwise. ``limited`` honours ``max_offsets_per_trigger``. ``changing`` is the
    stream, where its rows change: there a record without a value is a delete. A query without a checkpoint begins at
    ``seek``, else where the option ``starting`` says. Raises ``ConfigError`` or ``ConnectorError``; the broker is not
    asked: call ``partitions`` first.
    """
    given = options_of(options)
    settings = {**_source_options(spark, given), **_starting(seek, given)}
    if given.max_offsets_per_trigger is not None and limited:
        settings["maxOffsetsPerTrigger"] = str(given.max_offsets_per_trigger)
    records = spark.readStream.format("kafka").options(**settings).load()
    return decode_records(with_position(records), given.format, columns, given.format_options, changing)


def read_stored(
    spark: SparkSession, columns: StructType, options: Mapping[str, str], *, changing: StreamDef | None = None
) -> DataFrame:
    """The same as a batch: all records that the topic has, up to where it ends whenever the frame is read."""
    given = options_of(options)
    settings = {**_source_options(spark, given), "startingOffsets": "earliest", "endingOffsets": "latest"}
    records = spark.read.format("kafka").options(**settings).load()
    return decode_records(with_position(records), given.format, columns, given.format_options, changing)


def _source_options(spark: SparkSession, options: KafkaOptions) -> dict[str, str]:
    require_package(spark, Package.KAFKA)
    return {"kafka.isolation.level": "read_committed", **_client_options(options), "subscribe": options.topic}


def _starting(seek: Seek | None, options: KafkaOptions) -> dict[str, str]:
    """Where a query begins: Spark honours it when the checkpoint is new, and never again."""
    if seek is None:
        return {"startingOffsets": options.starting}
    if seek.to != "time" or seek.since is None:
        return {"startingOffsets": seek.to}
    # a partition without a record of that time or later is read from its end
    millis = -(-seek.since // 1000)
    return {"startingTimestamp": str(millis), "startingOffsetsByTimestampStrategy": "latest"}


def decode_records(
    records: DataFrame, format: str, columns: StructType, options: Mapping[str, str], changing: StreamDef | None
) -> DataFrame:
    """The rows of the records that ``with_position`` gives, with deletes by key where the stream changes."""
    if changing is None:
        return decode(records.drop(KEY), VALUE, format, columns, options)
    if format == DEBEZIUM:
        # Debezium sends a record without a value after each delete, for the compaction of the topic
        return decode_changes(records.where(F.col(VALUE).isNotNull()), VALUE, changing, columns, options)
    marked = records.withColumns({BY_KEY: F.col(VALUE).isNull(), MICROS: F.unix_micros(TP_TIME)})
    return with_deletes(decode(marked, VALUE, format, columns, options), changing, columns)


def with_position(records: DataFrame) -> DataFrame:
    """Kafka's records as ``_value`` and ``_key``, with the hidden columns of a source."""
    # By way of hexadecimal text: ANSI mode has no cast from a number to its bytes.
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
    )


def partitions(spark: SparkSession, options: Mapping[str, str]) -> tuple[str, ...]:
    """The ``_part`` names that the topic's records can have, in the order of their partitions.

    Raises ``ConnectorError``, in one sentence and within ``CHECK_SECONDS``, where no broker answers, the topic does
    not exist, or the broker refuses.
    """
    given = options_of(options)
    require_package(spark, Package.KAFKA)
    deadline = time.monotonic() + CHECK_SECONDS
    _check_reachable(given)
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(_admin_settings(jvm, given))
        names = jvm.java.util.ArrayList()
        names.add(given.topic)
        described = admin.describeTopics(names).allTopicNames()
        left = max(1, int((deadline - time.monotonic()) * 1000))
        topic = described.get(left, jvm.java.util.concurrent.TimeUnit.MILLISECONDS).get(given.topic)
        numbers = sorted(int(each.partition()) for each in topic.partitions())
    except Py4JJavaError as error:
        raise _failure(error.java_exception, given) from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ZERO)
    return tuple(f"{given.topic}-{number}" for number in numbers)


def _admin_settings(jvm: Any, options: KafkaOptions) -> Any:
    wanted = {name.removeprefix(_CLIENT_PREFIX): value for name, value in _client_options(options).items()}
    settings = jvm.java.util.Properties()
    for name, value in wanted.items():
        if name == "bootstrap.servers" or name.startswith(_ADMIN_PREFIXES):
            settings.setProperty(name, value)
    settings.setProperty("request.timeout.ms", "3000")
    settings.setProperty("default.api.timeout.ms", "6000")
    return settings


def _check_reachable(options: KafkaOptions) -> None:
    """Raise ``ConnectorError`` if no broker takes a connection: Kafka's client would retry, and log each try."""
    brokers = resolve(options.brokers)
    by_reference = brokers != options.brokers
    deadline = time.monotonic() + 2 * _CONNECT_SECONDS
    reasons = []
    for address in filter(None, (part.strip() for part in brokers.split(","))):
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 65536:
            shown = options.shown_brokers if by_reference else masked_value("brokers", address)
            raise ConfigError(f"option brokers: {shown!r} is not host:port")
        left = min(_CONNECT_SECONDS, deadline - time.monotonic())
        if left <= 0:
            break
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=left).close()
            return
        except OSError as error:
            reasons.append(f"{masked_value('brokers', address)}: {error.strerror or 'no answer in time'}")
    raise ConnectorError(
        f"no Kafka broker can be reached at {options.shown_brokers}",
        detail=None if by_reference else "; ".join(reasons) or None,
        hint="is the broker running, and is its address right?",
    )


def _failure(exception: Any, options: KafkaOptions) -> ConnectorError:
    """The error that a user sees for what Kafka's client threw."""
    cause = exception.getCause() or exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    kind = str(cause.getClass().getSimpleName())
    at = f"the Kafka broker at {options.shown_brokers}"
    if kind == "UnknownTopicOrPartitionException":
        return ConnectorError(f"topic {options.topic!r} does not exist on {at}", hint="create it, or correct its name")
    if kind == "TimeoutException":
        return ConnectorError(
            f"{at} did not answer in time", hint="is it a Kafka broker, and do the kafka.security.* options fit it?"
        )
    said = hide(str(cause.getMessage() or kind), options.client).splitlines()[0]
    return ConnectorError(f"{at} refused: {said}")


# Sink ---------------------------------------------------------------------------------------------------------------


def write_batch(
    frame: DataFrame,
    batch_id: int,
    options: Mapping[str, str],
    *,
    key: str = "",
    changing: StreamDef | None = None,
) -> None:
    """Write all rows of one micro-batch to the topic; returns when the broker has them.

    At least once: where a batch is tried again after some of its rows were written, those come twice. Every record
    carries the header ``_batch`` (the batch's number, as text) and, where it is given, ``_query`` (``key``, which names
    query, checkpoint and batch), so that a consumer may drop repeats: a batch is repeated as a whole, with equal
    values, before any later one is written. A consumer whose rows are unique by their key, or in themselves, drops
    what it has seen with the same header already.

    The value is the row in the stream's format; the key, from the option ``key``, is the column's text, or for
    several columns a JSON object. ``changing`` is the stream, where it has a primary key: then each key has one record
    at most, the key being a JSON object of its columns, and the value NULL where no row of the key holds any more; a
    compacted topic keeps what holds, however often a batch came. Raises ``ConfigError`` or ``ConnectorError``.
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
        **_client_options(given),
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
        partitions(frame.sparkSession, options)  # says it better where the broker or the topic is the reason
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
    """The key's columns as JSON that deletes.py reads."""
    columns = F.struct(*(F.col(spark_name(name)) for name in stream.primary_key))
    return F.to_json(columns, {name.removeprefix("json."): value for name, value in _WHOLE_TIMES.items()})


def _value(frame: DataFrame, options: KafkaOptions, stream: StreamDef) -> Column:
    """The declared columns of a row that holds, with times as in the key; NULL for one that does not."""
    row = encode(
        frame,
        options.format,
        {**_WHOLE_TIMES, **options.format_options},
        [column.name for column in stream.columns],
    )
    return F.when(F.col(TP_DELTA) > 0, row)
