"""How often keys occur in each input: a sketch that counts the rows of a sample of keys.

A key is in the sample if its hash is small, so it is so in every input, and the products of its counts estimate how
many rows match (correlated sampling: Vengerov et al., "Join Size Estimation Subject to Filter Conditions", VLDB 2015).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Integers = np.ndarray[tuple[int], np.dtype[np.uint64]]
Shares = np.ndarray[tuple[int, int], np.dtype[np.float64]]

#: Hashes of keys are numbers of that many bits.
HASH_BITS = 64
#: Keys in the sample, at most.
MAX_KEYS = 128
#: The sample halves its counts whenever they stand for this many rows, so that it follows the streams.
MAX_ROWS = 200_000


@dataclass(slots=True)
class KeySample:
    """Counts of rows by input and sampled key; one key in ``2**level`` is sampled.

    ``rows`` are the rows of each input that the counts stand for; those with other keys are among them.
    """

    rows: list[float]
    level: int = 0
    counts: dict[int, list[float]] = field(default_factory=dict)  # by key, one count for each input

    @property
    def last(self) -> int:
        """The greatest hash of keys in the sample."""
        return (1 << HASH_BITS - self.level) - 1

    def add(self, rows: Mapping[int, int], inputs: Integers, hashes: Integers, counts: Integers) -> None:
        """Count rows by input, and those of them with keys in the sample: three columns, with a row for each key.

        Keys with hashes beyond ``last`` need not be among them.
        """
        for input, count in rows.items():
            self.rows[input] += count
        keys = np.union1d(hashes, np.array(list(self.counts), np.uint64))
        while (keys <= self.last).sum() > MAX_KEYS:
            self.level += 1
        sampled = hashes <= self.last
        for input, key, count in zip(*(each[sampled].tolist() for each in (inputs, hashes, counts)), strict=True):
            self.counts.setdefault(key, [0.0] * len(self.rows))[input] += count
        self.counts = {key: counts for key, counts in self.counts.items() if key <= self.last}
        if sum(self.rows) > MAX_ROWS:
            self._halve()

    def shares(self) -> Shares:
        """Return, by key and input, the share of an input's rows that have the key."""
        counts = np.array(list(self.counts.values())).reshape(-1, len(self.rows))
        return counts / np.maximum(self.rows, 1)

    def to_json(self) -> list[Any]:
        """Encode the sample."""
        return [self.level, self.rows, [[key, *counts] for key, counts in self.counts.items()]]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> KeySample:
        """Decode a sample."""
        level, rows, counts = value
        return cls(rows, level, {key: list(each) for key, *each in counts})

    def _halve(self) -> None:
        """Halve all counts; keys that were seen last long ago leave, and make room for others."""
        self.rows = [rows / 2 for rows in self.rows]
        halves = {key: [count / 2 for count in counts] for key, counts in self.counts.items()}
        self.counts = {key: counts for key, counts in halves.items() if max(counts) >= 0.25}
        if self.level and len(self.counts) < MAX_KEYS // 4:
            self.level -= 1
