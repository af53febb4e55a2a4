"""A range of a partition: no read waits for records that the range cannot have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from watersmeet.records import kafka
from watersmeet.records.kafka import KafkaRange, read_range


class Message:
    def __init__(self, offset: int, value: bytes) -> None:
        self._offset, self._value = offset, value

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value

    def error(self) -> None:
        return None

    def __len__(self) -> int:
        return len(self._value)


class Broker:
    """Has offsets 0 to 9; as librdkafka does, it would wait if it were asked for more than there are."""

    def __init__(self, value: bytes = b"{}") -> None:
        self.position, self.value = 0, value
        self.asked: list[int] = []

    def consume(self, most: int, _seconds: float) -> list[Message]:
        self.asked.append(most)
        found = [Message(offset, self.value) for offset in range(self.position, min(self.position + min(most, 3), 10))]
        self.position += len(found)
        return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker], list[int]]:
    """Reads the first eight records of a broker; returns how many each table has."""
    monkeypatch.setattr(kafka, "_last_sizes", {})

    def read(broker: Broker) -> list[int]:
        @contextmanager
        def assigned(*_: object) -> Iterator[Broker]:
            yield broker

        monkeypatch.setattr(kafka, "_assigned", assigned)
        return [len(records.values) for records in read_range(KafkaRange("t", 0, 0, 8), {})]

    return read


def test_a_read_asks_for_no_more_than_is_left_of_the_range(read: Callable[[Broker], list[int]]) -> None:
    broker, again = Broker(), Broker()
    assert read(broker) == [8]
    assert broker.asked == [1, 7, 4, 1]  # how large records are is not known before the first
    assert read(again) == [8]
    assert again.asked == [8, 5, 2]


def test_large_records_are_read_a_few_at_a_time(read: Callable[[Broker], list[int]]) -> None:
    three, one = Broker(bytes(3 << 20)), Broker(bytes(20 << 20))
    assert read(three) == [3, 4, 1]
    assert three.asked == [1, 2, 2, 2, 1]
    assert read(one) == [2, *([1] * 6)]
    assert one.asked == [2, *([1] * 6)]
