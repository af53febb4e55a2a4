"""A range of a partition: no read waits for records that the range cannot have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from watersmeet.records import kafka
from watersmeet.records.kafka import KafkaRange, read_range


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return b"{}"

    def error(self) -> None:
        return None

    def __len__(self) -> int:
        return 2


class Broker:
    """Has offsets 0 to 9; as librdkafka does, it would wait if it were asked for more than there are."""

    def __init__(self) -> None:
        self.position = 0
        self.asked: list[int] = []

    def consume(self, most: int, _seconds: float) -> list[Message]:
        self.asked.append(most)
        found = [Message(offset) for offset in range(self.position, min(self.position + min(most, 3), 10))]
        self.position += len(found)
        return found


def test_a_read_asks_for_no_more_than_is_left_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()

    @contextmanager
    def assigned(*_: object) -> Iterator[Broker]:
        yield broker

    monkeypatch.setattr(kafka, "_assigned", assigned)
    (records,) = read_range(KafkaRange("t", 0, 0, 8), {})
    assert len(records.values) == 8
    assert broker.asked == [8, 5, 2]
