"""A Kafka topic as ranges of offsets: Spark keeps the offsets, and the tasks that get the ranges read them.

Offsets are in the form of Spark's own Kafka source, ``{topic: {partition: offset}}``, so a checkpoint of one is also
one of the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec  # typed only here
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from watersmeet.errors import ConnectorError
from watersmeet.records.kafka import KafkaRange, answering
from watersmeet.records.kafka_errors import may_pass
from watersmeet.runtime.run_progress import Logged, Measure, Place, Unit
from watersmeet.runtime.source_warnings import place_of

_ANSWER_SECONDS = 10.0
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_numbers = itertools.count()

#: Offsets by topic and partition, with the partition's number as text.
Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, with settings of librdkafka.

    ``starts`` has where partitions begin that do not begin at their first records; ``limit`` is the number of records
    in a batch.
    """

    name: str
    settings: Mapping[str, str] = field(repr=False)  # with secrets
    starts: Mapping[int, int] = field(default_factory=dict)
    limit: int | None = None


def ranges_of(spark: SparkSession, topic: Topic) -> DataFrame:
    """Return a streaming frame with a row for each range of a batch, in a task of its own: see ``KafkaRange``."""

    class KafkaRanges(DataSource):
        """A class for this topic alone: Spark passes only options to a data source, and would show them in plans."""

        format = f"watersmeet_kafka_{next(_numbers)}"

        @classmethod
        def name(cls) -> str:
            return cls.format

        def schema(self) -> str:
            return "topic STRING, partition INT, start BIGINT, end BIGINT"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return _Planner(topic)

    spark.dataSource.register(KafkaRanges)
    return spark.readStream.format(KafkaRanges.format).load()


@dataclass(slots=True)
class _Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges, in a Python process beside the driver; a task only passes its range on."""

    topic: Topic
    _last: Offsets | None = field(default=None, init=False)
    _admin: AdminClient | None = field(default=None, init=False)

    def initialOffset(self) -> Offsets:
        topic = self.topic
        starts = {str(partition): offset for partition, offset in topic.starts.items()}
        return {topic.name: {**self._offsets(_EARLIEST)[topic.name], **starts}}

    def newest(self) -> Offsets:
        """The offsets at which the topic ends now."""
        return self._offsets(_LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.topic.limit is None else ReadMaxRows(self.topic.limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self.newest()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The offsets to read to; raises ``ConnectorError`` if the topic has become shorter."""
        topic, latest = self.topic.name, self._last or self.newest()
        for partition, offset in start.get(topic, {}).items():
            end = latest[topic].get(partition)
            if end is None or end < offset:
                raise ConnectorError(
                    f"{topic}-{partition} ends at offset {end or 0}, but the query has read it to {offset}: the topic "
                    "was deleted or made anew",
                    hint="start the query anew, without its checkpoint, to go on with what the topic has",
                )
        if isinstance(limit, ReadMaxRows):
            return {topic: limited(self._begins(start, latest), latest[topic], limit.max_rows)}
        return latest

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        topic, begins = self.topic.name, self._begins(start, end)
        return [
            InputPartition(KafkaRange(topic, int(partition), begins[partition], offset))
            for partition, offset in end[topic].items()
            if offset > begins[partition]
        ]

    def read(self, partition: InputPartition) -> Iterator[KafkaRange]:
        yield partition.value

    def _begins(self, start: Offsets, end: Offsets) -> dict[str, int]:
        """Where each partition begins; one that was added to the topic begins at its first record."""
        topic = self.topic.name
        begins = start.get(topic, {})
        return begins if begins.keys() >= end[topic].keys() else {**self._offsets(_EARLIEST)[topic], **begins}

    def _offsets(self, spec: OffsetSpec) -> Offsets:
        topic = self.topic.name
        with answering(topic):
            if self._admin is None:
                self._admin = AdminClient(dict(self.topic.settings))
            found = self._admin.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
            if found.error is not None and may_pass(found.error):  # the topic is not gone: its broker is
                raise KafkaException(found.error)
            asked = {TopicPartition(topic, number): spec for number in found.partitions}
            answers = self._admin.list_offsets(
                asked, isolation_level=_isolation(self.topic), request_timeout=_ANSWER_SECONDS
            )
            offsets = {each.partition: answer.result().offset for each, answer in answers.items()}
            if min(offsets.values(), default=0) < 0:  # a broker that has just started answers so, and without an error
                raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
        return {topic: {str(partition): offsets[partition] for partition in sorted(offsets)}}


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """Where the partitions of a topic begin for a query, and where they ended at one moment."""

    topic: str
    begins: Mapping[str, int]
    ends: Mapping[str, int]

    def ahead(self, place: Place, logged: Logged) -> int:
        """How many offsets lie ahead of a place: records, and what stands between them, such as marks of commits."""
        read = {**self.begins, **(place or {}).get(self.topic, {})}
        return sum(max(end - read.get(partition, 0), 0) for partition, end in self.ends.items())


def topic_measure(topic: Topic) -> Measure:
    """Return how to measure what a topic has for a query."""

    def take() -> TopicRecords:
        planner = _Planner(topic)
        return TopicRecords(topic.name, planner.initialOffset()[topic.name], planner.newest()[topic.name])

    return Measure(Unit.RECORDS, lambda source: topic.name in (place_of(source, "endOffset") or {}), take)


def limited(begins: Mapping[str, int], ends: Mapping[str, int], limit: int) -> dict[str, int]:
    """Ends that are at most ``limit`` records away in all, each partition's share in proportion to what it has.

    Like Spark's own source, a partition that has records gets at least one.
    """
    sizes = {partition: max(0, end - begins.get(partition, 0)) for partition, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    return {
        partition: begins.get(partition, 0) + min(size, max(1, limit * size // total) if size else 0)
        for partition, size in sizes.items()
    }


def _isolation(topic: Topic) -> IsolationLevel:
    uncommitted = topic.settings.get("isolation.level") == "read_uncommitted"
    return IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
