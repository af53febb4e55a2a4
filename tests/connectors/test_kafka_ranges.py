"""Ranges of a topic's offsets: their shares of a batch, and where they end."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from watersmeet.connectors.kafka import ranges as kafka_ranges
from watersmeet.connectors.kafka.ranges import Topic, limited
from watersmeet.errors import ConnectorError, OutageError


@pytest.mark.parametrize(
    ("begins", "ends", "limit", "expected"),
    [
        ({"0": 0, "1": 0}, {"0": 10, "1": 30}, 100, {"0": 10, "1": 30}),
        ({"0": 0, "1": 0}, {"0": 10, "1": 30}, 20, {"0": 5, "1": 15}),
        ({"0": 5, "1": 7}, {"0": 5, "1": 1000}, 10, {"0": 5, "1": 17}),
        ({"0": 0, "1": 0}, {"0": 1, "1": 1000}, 10, {"0": 1, "1": 9}),
        ({}, {"0": 8, "1": 8}, 2, {"0": 1, "1": 1}),
    ],
)
def test_each_partition_has_its_share(
    begins: dict[str, int], ends: dict[str, int], limit: int, expected: dict[str, int]
) -> None:
    assert limited(begins, ends, limit) == expected


class Admin:
    """Answers what the broker of a topic with two partitions does."""

    def __init__(self, ends: dict[int, int]) -> None:
        self._ends = ends

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=self._ends)})

    def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[Any]]:
        answers: dict[TopicPartition, Future[Any]] = {place: Future() for place in asked}
        for place, answer in answers.items():
            answer.set_result(SimpleNamespace(offset=self._ends[place.partition]))
        return answers


def latest(ends: dict[int, int], read: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, int]]:
    monkeypatch.setattr(kafka_ranges, "AdminClient", lambda settings: Admin(ends))
    return kafka_ranges._Planner(Topic("t", {})).latestOffset({"t": read}, ReadAllAvailable())


def test_a_topic_is_read_to_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert latest({0: 24, 1: 30}, {"0": 24, "1": 7}, monkeypatch) == {"t": {"0": 24, "1": 30}}


def test_a_topic_that_is_shorter_was_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectorError, match="t-0 ends at offset 3, but the query has read it to 24") as raised:
        latest({0: 3, 1: 30}, {"0": 24, "1": 7}, monkeypatch)
    assert not isinstance(raised.value, OutageError)


def test_a_broker_that_does_not_know_the_ends_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has just started: an offset of -1001 is no end, and the topic was not made anew."""
    with pytest.raises(OutageError, match="Kafka did not say which records topic t has"):
        latest({0: -1001, 1: 30}, {"0": 24, "1": 7}, monkeypatch)
