"""What a query in real time has written to a topic, and what the documentation's rule keeps of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka_broker import Broker


@dataclass(frozen=True, slots=True)
class Result:
    """A record of a topic of results."""

    key: bytes | None
    value: dict[str, Any] | None
    headers: dict[str, str]

    @property
    def run(self) -> int:
        """The run that wrote it."""
        return int(self.headers["_run"])

    @property
    def firsts(self) -> dict[int, int]:
        """The first epochs of the newest runs, by number."""
        pairs = (named.split(":") for named in self.headers["_runs"].split())
        return {int(run): int(first) for run, first in pairs}

    @property
    def epoch(self) -> int:
        """The epoch in which it was written."""
        return int(self.headers["_batch"])


@contextmanager
def _reader(broker: Broker, topic: str, partitions: int) -> Iterator[tuple[Consumer, list[TopicPartition], int]]:
    """A consumer, the beginnings of a topic's partitions, and how many records they hold."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "test", "enable.partition.eof": False})
    try:
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        yield consumer, places, sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)
    finally:
        consumer.close()


def count(broker: Broker, topic: str, partitions: int = 2) -> int:
    """How many records a topic holds now."""
    with _reader(broker, topic, partitions) as (_, _, total):
        return total


def results(broker: Broker, topic: str, partitions: int = 2) -> list[Result]:
    """All that a topic holds now."""
    with _reader(broker, topic, partitions) as (consumer, places, left):
        consumer.assign(places)
        found = []
        while left > 0:
            messages = consumer.consume(min(left, 1000), 10.0)
            assert messages, f"{left} records of {topic} do not come"
            left -= len(messages)
            for message in messages:
                assert message.error() is None
                marks: Any = message.headers() or ()
                headers = {name: text.decode() for name, text in marks}
                value = message.value()
                found.append(Result(message.key(), None if value is None else json.loads(value), headers))
        return found


def without_repeats(found: Sequence[Result]) -> list[Result]:
    """What the documentation's rule keeps: a run voids what earlier ones gave from its first epoch on."""
    firsts: dict[int, int] = {}
    for each in found:
        firsts.update(each.firsts)

    def is_void(each: Result) -> bool:
        return any(run > each.run and first <= each.epoch for run, first in firsts.items())

    return [each for each in found if not is_void(each)]


def rows_of_topic(found: Sequence[Result]) -> set[tuple[Any, ...]]:
    """What a compacted topic keeps."""
    last = {each.key: each.value for each in found}
    return {tuple(value.values()) for value in last.values() if value is not None}
