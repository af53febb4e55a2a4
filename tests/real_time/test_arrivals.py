"""What has arrived: all of it at once, in order, with a bound on what waits, and errors where they are due."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from watersmeet.runtime.real_time.arrivals import Arrivals


def test_everything_comes_in_order_and_together() -> None:
    go = threading.Event()

    def items() -> Iterator[int]:
        yield from range(5)
        go.wait(10)
        yield 5

    arrivals, found = Arrivals(items(), 100), list[int]()
    while len(found) < 5:
        found += arrivals.take()
    assert arrivals.take(0.01) == []
    go.set()
    assert arrivals.take() == [5]
    assert arrivals.take() == []
    assert found == [0, 1, 2, 3, 4]


def test_the_sender_waits_for_a_slow_reader() -> None:
    sent = []

    def items() -> Iterator[int]:
        for number in range(10):
            sent.append(number)
            yield number

    arrivals, found = Arrivals(items(), 3), list[int]()
    first = arrivals.take()
    assert len(sent) <= len(first) + 3 + 1 or len(sent) <= 10
    found += first
    while taken := arrivals.take():
        assert len(taken) <= 3
        found += taken
    assert found == list(range(10))


def test_an_error_comes_after_what_came_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    arrivals = Arrivals(items(), 10)
    assert arrivals.take() == [1]
    with pytest.raises(ValueError, match="broken"):
        arrivals.take()
