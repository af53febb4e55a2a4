"""A batch of records that go to Kafka in one transaction, once however often it is written.

One producer writes the whole batch, and in the same transaction its number, as the offset that a consumer group named
after the query has committed.  So the number is there if and only if the records are:

    init_transactions    fences an attempt that may still run, and ends its transaction: all of it counts, or nothing
    committed offset     beyond this batch: it is there already, and nothing is written
    begin_transaction, records, offset, commit_transaction

Consumers that read committed records alone (``isolation.level = read_committed``) see each batch once, and whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from watersmeet.errors import ConnectorError, SinkOutageError
from watersmeet.records.kafka_errors import may_pass
from watersmeet.records.kafka_producer import WRITTEN_SCHEMA, Headers, Sending

T = TypeVar("T")
_ANSWER_SECONDS = 30.0
_ABORT_SECONDS = 2.0
#: How long a batch may take; brokers allow 15 minutes by default.  Its consumers wait no longer for one that is lost.
_SETTINGS = {"transaction.timeout.ms": "600000"}
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class TransactionalWriter:
    """Writes the batches of a query to a topic, each with the same ``headers``.

    ``settings`` are those of librdkafka, ``connection`` those among them that a consumer takes too.  ``query`` names
    the query and its checkpoint.
    """

    topic: str
    settings: Mapping[str, str] = field(repr=False)  # may hold secrets
    connection: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str]
    query: str
    batch: int

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write records with the columns of ``RECORD_SCHEMA``, unless the batch was committed before.

        All records of a batch must come in one call.  Raises ``SinkOutageError`` if no broker answers, and
        ``ConnectorError`` if it refuses, or if another attempt at the batch began after this one.
        """
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        written = 0
        if first is not None:
            sending = Sending(self.topic, {**_SETTINGS, **self.settings, "transactional.id": self.query})
            self._tried(lambda: sending.producer.init_transactions(_ANSWER_SECONDS))
            with self._group() as group:
                if not self._is_committed(group):
                    with _aborting(sending.producer):
                        written = self._transact(sending, group, first, rows)
        yield pa.RecordBatch.from_arrays([pa.array([written])], schema=WRITTEN_SCHEMA)

    def _transact(
        self, sending: Sending, group: Consumer, first: pa.RecordBatch, rows: Iterator[pa.RecordBatch]
    ) -> int:
        headers: Headers = [(name, text.encode()) for name, text in self.headers.items()]
        producer, written = sending.producer, 0
        producer.begin_transaction()
        try:
            for batch in chain([first], rows):
                sending.send(batch, headers)
                written += batch.num_rows
            noted = [TopicPartition(self.topic, 0, self.batch + 1)]
            metadata = group.consumer_group_metadata()
            self._tried(lambda: producer.send_offsets_to_transaction(noted, metadata, _ANSWER_SECONDS))
            self._tried(lambda: producer.commit_transaction(_ANSWER_SECONDS))  # it waits for the records
        except BaseException:
            sending.raise_failure()  # a record that was refused is the reason, if there is one
            raise
        return written

    def _is_committed(self, group: Consumer) -> bool:
        asked = [TopicPartition(self.topic, 0)]
        (found,) = self._tried(lambda: group.committed(asked, timeout=_ANSWER_SECONDS))
        if found.error is not None:
            raise self._failure(found.error)
        return bool(found.offset > self.batch)

    @contextmanager
    def _group(self) -> Iterator[Consumer]:
        consumer = Consumer({**self.connection, "group.id": self.query, "enable.auto.commit": False, "log_level": 2})
        try:
            yield consumer
        finally:
            consumer.close()

    def _tried(self, call: Callable[[], T]) -> T:
        """Call until it succeeds, or half a minute is over."""
        until = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                return call()
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if not error.retriable() or time.monotonic() > until:
                    raise self._failure(error) from None

    def _failure(self, error: KafkaError) -> ConnectorError:
        what = f"Kafka did not take batch {self.batch} for topic {self.topic!r}"
        if error.code() in _FENCED:
            return ConnectorError(
                f"{what}: another run of the query has begun to write it", hint="let one of them continue"
            )
        kind = SinkOutageError if may_pass(error) or error.retriable() else ConnectorError
        return kind(f"{what}: {error.str()}")


@contextmanager
def _aborting(producer: Producer) -> Iterator[None]:
    """End the transaction where the block fails, as far as a broker answers; else the next attempt ends it."""
    try:
        yield
    except BaseException:
        with suppress(KafkaException):
            producer.abort_transaction(_ABORT_SECONDS)
        raise
