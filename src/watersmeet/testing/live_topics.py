"""The topics of one test case: a topic with one partition for each stream."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from watersmeet.errors import ConnectorError

# Records bear times of 1970: a topic that forgets old records would have none.
_KEPT = {"retention.ms": "-1"}
_SECONDS = 30.0
_POLL_SECONDS = 0.05


class Topics:
    """Topics whose names begin with a prefix of their own."""

    def __init__(self, brokers: str, prefix: str) -> None:
        self._brokers = brokers
        self._prefix = prefix
        # Only ``send`` sends: what a topic receives in one call is one batch, which a consumer takes as a whole.
        self._producer = Producer({"bootstrap.servers": brokers, "linger.ms": 60_000})

    def name(self, stream: str) -> str:
        """The topic of a stream."""
        return f"{self._prefix}-{stream.lower()}"

    def create(self, streams: Iterable[str]) -> None:
        """Create the topics of streams; returns when the broker tells clients of them, which may be later."""
        admin = AdminClient({"bootstrap.servers": self._brokers, "log_level": 2})
        wanted = [NewTopic(self.name(stream), 1, 1, config=_KEPT) for stream in streams]
        for created in admin.create_topics(wanted).values():
            created.result(_SECONDS)
        deadline = time.monotonic() + _SECONDS
        for topic in wanted:
            while admin.list_topics(topic.topic, timeout=_SECONDS).topics[topic.topic].error is not None:
                if time.monotonic() > deadline:
                    raise ConnectorError(f"the broker does not know the topic {topic.topic} that it has created")
                time.sleep(_POLL_SECONDS)

    def add(self, stream: str, value: bytes, millis: int) -> None:
        """Add a record to what the next ``send`` sends; ``millis`` is its timestamp, not 0."""
        self._producer.produce(self.name(stream), value, partition=0, timestamp=millis, on_delivery=_raise)

    def send(self) -> None:
        """Send the records; ``ConnectorError`` if the broker does not take all of them."""
        if left := self._producer.flush(_SECONDS):
            raise ConnectorError(f"the broker did not take {left} records in time")


def _raise(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise ConnectorError(f"the broker did not take a record: {error.str()}")
