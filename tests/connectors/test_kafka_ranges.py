"""Ranges of a topic's offsets: their shares of a batch."""

from __future__ import annotations

import pytest

from watersmeet.connectors.kafka_ranges import limited


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
