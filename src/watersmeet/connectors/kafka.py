"""The ``kafka`` connector, over Spark's own Kafka package."""

from __future__ import annotations

from pyspark.sql import DataFrame

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
from watersmeet.settings.secrets import hide, masked, resolve
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


class KafkaConnector(StoredConnector, SinkConnector):
    """The Kafka topic ``topic`` at ``brokers`` (``host:port``, separated by commas), as source and as sink.


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
        return f"KafkaOptions({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    __str__ = __repr__


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
    """Raise ``ConfigError`` for options that are wrong, and for two kinds of key."""
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

    def open_source(self, reading: Reading) -> Source:
        """Return the topic as a source with the frontiers of its partitions.

        Raises ``ConnectorError``, within ``kafka_broker.CHECK_SECONDS``, where the broker or the topic is missing.
        """
        options = reading.stream.options
        parts = partitions(reading.spark, options)
        frame = read_stream(
            reading.spark,
            reading.columns,
            options,
            limited=reading.limited,
            changing=reading.changing,
            seek=reading.seek,
        )
        return Source(frame, parts)

    def open_stored(self, reading: Reading) -> DataFrame:
        """Return the records that the topic has, up to its end whenever the frame is read."""
        partitions(reading.spark, reading.stream.options)  # its errors are clearer than Spark's
        return read_stored(reading.spark, reading.columns, reading.stream.options, changing=reading.changing)

    def open_sink(self, writing: Writing) -> WriteBatch:
        """Return what writes a batch as records."""
        options, changing = writing.stream.options, writing.changing
        return lambda rows, batch_id, key: write_batch(rows, batch_id, options, key=key, changing=changing)
