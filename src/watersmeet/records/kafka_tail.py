"""The end of a Kafka topic, followed as records come."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from watersmeet.records.kafka import (
    KafkaRecords,
    answering,
    message_records,
    new_consumer,
    offset_of,
    raise_unless_passing,
)

#: How long a call waits for records.
_WAIT_SECONDS = 0.02
_MOST_RECORDS = 20_000
_PATIENCE_SECONDS = 30.0
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic to follow, with settings of librdkafka.

    ``since`` is where a new query begins: a time of arrival in milliseconds, ``OFFSET_BEGINNING`` or ``OFFSET_END``.
    """

    name: str
    settings: Mapping[str, str] = field(repr=False)  # with secrets
    since: int = OFFSET_BEGINNING

    def tail(self, positions: Mapping[int, int], task: int, tasks: int) -> KafkaTail:
        """Follow a task's share of the partitions, each from its position, or from its first record.

        Raises ``ConnectorError`` if the broker does not answer, or has no such topic.
        """
        return KafkaTail(self, positions, task, tasks)

    def start(self) -> dict[int, int]:
        """Where a new query begins in each partition; none if it begins at the first records.

        A partition without records since that time is read from its end.  Raises as ``tail`` does.
        """
        if self.since == OFFSET_BEGINNING:
            return {}
        consumer = new_consumer(self.settings)
        try:
            return dict(_positions_since(consumer, self))
        finally:
            consumer.close()


def _positions_since(consumer: Consumer, topic: KafkaTopic) -> Iterator[tuple[int, int]]:
    partitions = partitions_of(consumer, topic.name)
    with answering(topic.name):
        asked = [TopicPartition(topic.name, number, topic.since) for number in partitions]
        found = asked if topic.since == OFFSET_END else consumer.offsets_for_times(asked, timeout=_ANSWER_SECONDS)
        for each in found:
            at_end = each.offset < 0
            yield each.partition, consumer.get_watermark_offsets(each, _ANSWER_SECONDS)[1] if at_end else each.offset


class KafkaTail:
    """Follows partitions of a topic.

    ``positions`` are the offsets of their next records, ``parts`` the names of the partitions.
    """

    def __init__(self, topic: KafkaTopic, positions: Mapping[int, int], task: int, tasks: int) -> None:
        self._topic = topic
        self._consumer: Consumer = new_consumer(topic.settings, _FOLLOWING)
        self._silent_since: float | None = None
        mine = [number for number in partitions_of(self._consumer, self._topic.name) if number % tasks == task]
        self.parts = {number: f"{topic.name}-{number}" for number in mine}
        self.positions = {number: positions[number] for number in mine if number in positions}
        self._consumer.assign(
            [TopicPartition(topic.name, number, self.positions.get(number, OFFSET_BEGINNING)) for number in mine]
        )

    def poll(self) -> list[KafkaRecords]:
        """Return the records that have come, those of all partitions together; waits for some milliseconds.

        Raises ``ConnectorError`` if records are gone, the broker refuses, or none has answered for half a minute.
        """
        messages = []
        for message in chain(self._consumer.consume(1, _WAIT_SECONDS), self._consumer.consume(_MOST_RECORDS, 0)):
            partition = message.partition()
            if (error := message.error()) is not None:
                raise_unless_passing(error, self._where(partition))
                self._silent_since = self._silent_since or time.monotonic()
                continue
            assert partition is not None
            self.positions[partition] = offset_of(message) + 1
            messages.append(message)
        if messages:
            self._silent_since = None
            return [
                message_records(messages, self._topic.name, None if len(self.parts) > 1 else messages[0].partition())
            ]
        if self._silent_since is not None and time.monotonic() - self._silent_since > _PATIENCE_SECONDS:
            partitions_of(self._consumer, self._topic.name)
            self._silent_since = None
        return []

    def close(self) -> None:
        """End the connection."""
        self._consumer.close()

    def _where(self, partition: int | None) -> str:
        if partition is None or partition < 0:
            return self._topic.name
        return f"{self._topic.name}-{partition} from offset {self.positions.get(partition, 0)} on"


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    """The numbers of a topic's partitions; ``ConnectorError`` if the broker does not say."""
    with answering(topic):
        found = consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)


# The broker answers after some milliseconds with all that has come, not at each record: else it and the query would do
# little but send and take single records.  What has been read ahead is kept until it is taken.
_FOLLOWING: dict[str, str | int | bool] = {
    "enable.partition.eof": False,
    "fetch.min.bytes": 65_536,
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": 65_536,
}
