"""Ranges of Kafka partitions, read in the worker by librdkafka.

A process keeps one consumer for each set of settings, because connecting takes longer than reading.  Nothing is read
ahead between ranges: the next range of a partition may be another worker's.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from watersmeet.columns import PART, SEQUENCE, TP_HEADERS, TP_OFFSET, TP_PARTITION, TP_TIME
from watersmeet.errors import ConnectorError, OutageError
from watersmeet.records.kafka_errors import may_pass
from watersmeet.state.bytes_at_once import bytes_at_once

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: The columns of Spark's Kafka reader that connectors/kafka/source.py reads.
RAW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", _HEADERS),
    ]
)
_SETTINGS = {
    # librdkafka asks for a group, though nothing joins it or commits; whoever may read with Spark may use this prefix
    "group.id": "spark-kafka-source-watersmeet",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # What is read beyond the end of a range is thrown away, so little is read ahead.  A full queue is looked at again
    # after a second by default.
    "queued.max.messages.kbytes": 8_192,
    "fetch.queue.backoff.ms": 5,
    "fetch.error.backoff.ms": 50,
    # A fetch past the end of one range is on its way when the next range begins, and holds up its first fetch.
    "fetch.wait.max.ms": 10,
    # a consumer that is kept would report each attempt to connect to a broker that has stopped
    "log_level": 2,
}
_MESSAGES = 2_000
_MOST_RECORDS = 50_000
_WAIT_SECONDS = 0.5
#: The largest of the last records that were read of a topic, in bytes.
_last_sizes: dict[str, int] = {}
#: Longer outages are the query's to wait for, which shows them.
_PATIENCE_SECONDS = 30.0
_ANSWER_SECONDS = 10.0


class KafkaRange(NamedTuple):
    """The records of a partition from offset ``start`` until before ``end``."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KafkaRecords:
    """Records of a topic; ``values`` are their bytes, ``partition`` is that of all of them (None: of several)."""

    messages: Sequence[Message]
    values: pa.Array
    topic: str
    partition: int | None

    def hidden(self, names: Sequence[str], numbers: np.ndarray) -> pa.Table:
        """The hidden columns with the values that connectors/kafka/source.py computes."""
        columns = {}
        if PART in names:
            columns[PART] = self._parts(numbers)
        if SEQUENCE in names:
            columns[SEQUENCE] = _places(self._partitions(numbers), self._offsets(numbers))
        if TP_TIME in names:
            columns[TP_TIME] = self._timestamps(numbers)
        if TP_PARTITION in names:
            columns[TP_PARTITION] = pa.array(self._partitions(numbers))
        if TP_OFFSET in names:
            columns[TP_OFFSET] = pa.array(self._offsets(numbers))
        if TP_HEADERS in names:
            columns[TP_HEADERS] = self._headers(numbers)
        return pa.table(columns)

    def raw(self, numbers: np.ndarray) -> pa.RecordBatch:
        """The records with these numbers as ``RAW_SCHEMA``."""
        columns = [
            pa.array([self.messages[number].key() for number in numbers], pa.binary()),
            self.values.take(pa.array(numbers)),
            pa.repeat(self.topic, len(numbers)),
            pa.array(self._partitions(numbers)),
            pa.array(self._offsets(numbers)),
            self._timestamps(numbers),
            self._headers(numbers),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)

    def _parts(self, numbers: np.ndarray) -> pa.Array:
        if self.partition is not None:
            return pa.repeat(f"{self.topic}-{self.partition}", len(numbers))
        return pa.array([f"{self.topic}-{number}" for number in self._partitions(numbers)], pa.string())

    def _partitions(self, numbers: np.ndarray) -> np.ndarray:
        if self.partition is not None:
            return np.full(len(numbers), self.partition, np.int32)
        return np.fromiter((self.messages[number].partition() for number in numbers), np.int32, len(numbers))

    def _offsets(self, numbers: np.ndarray) -> np.ndarray:
        return np.fromiter((offset_of(self.messages[number]) for number in numbers), np.int64, len(numbers))

    def _headers(self, numbers: np.ndarray) -> pa.Array:
        found = ((self.messages[number].headers() or None) for number in numbers)
        named = [each and [{"key": key, "value": value} for key, value in each] for each in found]
        return pa.array(named, _HEADERS)

    def _timestamps(self, numbers: np.ndarray) -> pa.Array:
        millis = np.fromiter((self.messages[number].timestamp()[1] for number in numbers), np.int64, len(numbers))
        return pc.multiply(pa.array(millis), 1000).cast(pa.timestamp("us", "UTC"))


def read_ranges(ranges: pa.RecordBatch, settings: Mapping[str, str]) -> Iterator[KafkaRecords]:
    """Yield the records of ranges, one per row with the columns of ``KafkaRange``; for the rest see ``read_range``."""
    for row in ranges.to_pylist():
        yield from read_range(KafkaRange(**row), settings)


def read_range(wanted: KafkaRange, settings: Mapping[str, str]) -> Iterator[KafkaRecords]:
    """Yield the records of a range.

    ``settings`` are those of librdkafka.  Raises ``OutageError`` if nothing comes for half a minute, ``ConnectorError``
    if records have been deleted or the broker refuses.
    """
    gathered: list[Message] = []
    nbytes = 0
    for messages in _consumed(wanted, settings):
        gathered += messages
        nbytes += sum(map(len, messages))
        if len(gathered) >= _MOST_RECORDS or nbytes >= bytes_at_once(nbytes, len(gathered)):
            yield message_records(gathered, wanted.topic, wanted.partition)
            gathered, nbytes = [], 0
    if gathered:
        yield message_records(gathered, wanted.topic, wanted.partition)


def message_records(messages: Sequence[Message], topic: str, partition: int | None) -> KafkaRecords:
    """Messages of one partition (None: of several) as records."""
    values = pa.array([message.value() for message in messages], pa.binary())
    return KafkaRecords(messages, values, topic, partition)


def _consumed(wanted: KafkaRange, settings: Mapping[str, str]) -> Iterator[list[Message]]:
    """Yield the messages of a range as they come.

    Offsets have gaps where records were compacted, were aborted or mark the end of a transaction, so the range may end
    with no message: then librdkafka reports the end of the partition.  As many are asked for as have about the bytes
    that are read at once, going by the last ones of the topic; only one at first.
    """
    position, last = wanted.start, _last_sizes.get(wanted.topic)
    with _assigned(wanted, settings) as consumer:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while position < wanted.end:
            # librdkafka waits until it has as many as are asked for: no more than the range can have
            most = min(_most_messages(last), wanted.end - position)
            before, found = position, consumer.consume(most, _WAIT_SECONDS)
            messages = [message for message in found if message.error() is None]
            if len(messages) < len(found):
                reports = (message for message in found if message.error() is not None)
                position = max(position, *(_after(message, wanted) for message in reports))
            if messages:
                last = _last_sizes[wanted.topic] = max(map(len, messages))
                position = max(position, offset_of(messages[-1]) + 1)
                if position > wanted.end:
                    messages = messages[: bisect_left(messages, wanted.end, key=offset_of)]
                yield messages
            if position > before:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise OutageError(
                    f"Kafka sent no records of {wanted.topic}-{wanted.partition} from offset {position} for "
                    f"{_PATIENCE_SECONDS:.0f} seconds",
                    hint="is the broker running? The query can be resumed",
                )


def _most_messages(last: int | None) -> int:
    """How many messages to ask for, if the last ones had up to so many bytes."""
    return 1 if last is None else max(min(bytes_at_once(last, 1) // max(last, 1), _MESSAGES), 1)


@contextmanager
def _assigned(wanted: KafkaRange, settings: Mapping[str, str]) -> Iterator[Consumer]:
    consumer = _consumer(tuple(settings.items()), wanted.topic)
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
    try:
        yield consumer
    finally:
        consumer.unassign()


@cache
def _consumer(settings: tuple[tuple[str, str], ...], topic: str) -> Consumer:
    """A consumer that has reached a broker: a task that is tried again in an outage fails sooner than the first one."""
    consumer = new_consumer(dict(settings))
    with answering(topic):
        consumer.list_topics(topic, timeout=_ANSWER_SECONDS)
    return consumer


def new_consumer(settings: Mapping[str, str], more: Mapping[str, str | int | bool] | None = None) -> Consumer:
    """A consumer with a user's settings of librdkafka, and ``more`` beside our own."""
    try:
        return Consumer({**_SETTINGS, **(more or {}), **settings})
    except KafkaException as error:
        raise ConnectorError(f"Kafka's client cannot be made: {error.args[0].str()}") from None


def _after(message: Message, wanted: KafkaRange) -> int:
    """The position that a message which is none reports: the end of the partition; other errors are raised."""
    error = message.error()
    assert error is not None
    if error.code() == KafkaError._PARTITION_EOF:
        return offset_of(message)
    raise_unless_passing(error, f"{wanted.topic}-{wanted.partition} from offset {wanted.start} on")
    return 0


def raise_unless_passing(error: KafkaError, records: str) -> None:
    """Raise ``ConnectorError`` about ``records``, unless the client will try again by itself."""
    code = error.code()
    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise ConnectorError(
            f"records of {records} are gone: deleted by the topic's retention, or with the topic",
            hint="start the query anew, without its checkpoint, to go on with what the topic has",
        )
    if error.retriable() or may_pass(error):
        return
    raise ConnectorError(f"Kafka refused to send records of {records}: {error.str()}")


@contextmanager
def answering(topic: str) -> Iterator[None]:
    """Raise ``OutageError`` where no broker answers a question about a topic, ``ConnectorError`` where one refuses."""
    try:
        yield
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        kind = OutageError if may_pass(reason) else ConnectorError
        raise kind(
            f"Kafka did not say which records topic {topic} has: {reason.str()}",
            hint="is the broker running? The query can be resumed",
        ) from None


def offset_of(message: Message) -> int:
    """The offset of a message."""
    offset = message.offset()
    assert offset is not None
    return offset


def _places(partitions: np.ndarray, offsets: np.ndarray) -> pa.Array:
    """Each record's partition (4 bytes) and offset (8 bytes), big-endian: they sort like numbers."""
    places = np.empty((len(offsets), 3), ">u4")
    places[:, 0] = partitions
    places[:, 1:] = offsets.astype(">u8").view(">u4").reshape(len(offsets), 2)
    width = pa.binary(12)
    return pa.Array.from_buffers(width, len(offsets), [None, pa.py_buffer(places)]).cast(pa.binary())
