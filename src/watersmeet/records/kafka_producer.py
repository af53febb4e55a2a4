"""Records that go to Kafka from a worker, by librdkafka.

A process keeps one producer for each topic and set of settings, because connecting takes longer than a small batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from watersmeet.errors import ConnectorError, SinkOutageError
from watersmeet.records.kafka_errors import may_pass

#: The columns of the records to write; a NULL key or value is one that the record does not have.
RECORD_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
#: What ``write`` yields: how many records the broker has taken.
WRITTEN_SCHEMA = pa.schema([("written", pa.int64())])
_SETTINGS = {
    # a failure is raised; a report of each success would cost as much as sending
    "delivery.report.only.error": True,
    # keys go where Kafka's Java client, and so Spark, sends them
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "message.timeout.ms": 30_000,  # longer outages are the query's to wait for, which shows them
    "message.max.bytes": 1_048_576,  # as the Java client
    # a worker sends faster than the broker takes; what waits is in its memory
    "queue.buffering.max.kbytes": 65_536,
    # a producer that is kept would report each attempt to connect to a broker that has stopped
    "log_level": 2,
}
Headers = list[tuple[str, str | bytes | None]]
_ANSWER_SECONDS = 10.0
_RETRY_SECONDS = 0.1
_FULL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class KafkaWriter:
    """Writes records to a topic, each with the same ``headers``; ``settings`` are those of librdkafka."""

    topic: str
    settings: Mapping[str, str] = field(repr=False)  # may hold secrets
    headers: Mapping[str, str]

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write records with the columns of ``RECORD_SCHEMA``; return when the broker has all of them.

        Raises ``ConnectorError`` if the topic is not there or the broker refuses a record, and ``SinkOutageError`` if
        it takes none for half a minute. Records before that one may have been written.
        """
        headers: Headers = [(name, text.encode()) for name, text in self.headers.items()]
        written = 0
        try:
            for batch in batches:
                _sending(self.topic, tuple(self.settings.items())).send(batch, headers)
                written += batch.num_rows
            if written:
                _sending(self.topic, tuple(self.settings.items())).finish()
        except BaseException:
            _sending.cache_clear()  # its records that wait are not those of the next batch
            raise
        yield pa.RecordBatch.from_arrays([pa.array([written])], schema=WRITTEN_SCHEMA)


@cache
def _sending(topic: str, settings: tuple[tuple[str, str], ...]) -> Sending:
    return Sending(topic, dict(settings))


class Sending:
    """A producer, and the failures that it has reported."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._topic = topic
        self._failed: list[KafkaError] = []
        try:
            self.producer = Producer({**_SETTINGS, **settings, "on_delivery": self._report})
        except KafkaException as error:
            raise ConnectorError(f"Kafka's client cannot be made: {error.args[0].str()}") from None
        self._wait_for_topic()

    def send(self, batch: pa.RecordBatch, headers: Headers) -> None:
        """Hand the records to the producer, waiting where it has as many as it may keep."""
        produce, topic = self.producer.produce, self._topic
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            while True:
                try:
                    produce(topic, value, key, headers=headers)
                    break
                except BufferError:
                    self.producer.poll(_FULL_SECONDS)
                except KafkaException as error:
                    raise self.refused(error.args[0], 1) from None
        self.producer.poll(0)
        self.raise_failure()

    def finish(self) -> None:
        """Wait until the broker has answered for all records."""
        self.producer.flush()
        self.raise_failure()

    def _wait_for_topic(self) -> None:
        """Wait for the topic's partitions, which a broker may be about to create."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                error = self.producer.list_topics(self._topic, timeout=_ANSWER_SECONDS).topics[self._topic].error
            except KafkaException as raised:
                error = raised.args[0]
            if error is None:
                return
            if time.monotonic() > deadline:
                raise self.refused(error)
            time.sleep(_RETRY_SECONDS)

    def _report(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def raise_failure(self) -> None:
        """Raise the first failure that the broker has reported, if there is one."""
        if self._failed:
            raise self.refused(self._failed[0], len(self._failed))

    def refused(self, error: KafkaError, count: int = 0) -> ConnectorError:
        """The error to raise where the broker does not take so many records."""
        records = f"{count:,} records" if count > 1 else "a record" if count else "records"
        kind = SinkOutageError if may_pass(error) else ConnectorError
        return kind(f"Kafka did not take {records} for topic {self._topic!r}: {error.str()}")
