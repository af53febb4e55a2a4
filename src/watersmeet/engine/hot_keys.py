"""Hot keys: keys with so many rows in a batch that one bucket would do the work of all.

For a hot key, the rows of one side are spread over the buckets, and the rows of the other side go to all buckets as
copies.  A pair is still formed once: each spread row is stored in one bucket and finds every partner there.  So only
the spread side may be one whose rows are emitted alone.  (Fragment and replicate, chosen for hot keys only: Xu et al.,
"Handling data skew in parallel joins in shared-nothing systems", SIGMOD 2008.)

Keys become hot or cold between two batches, while stored rows stay where they are.  So a key passes through phases:

=========  =========================  ========================  ======================================================
phase      rows of the spread side    rows of the other side    until
=========  =========================  ========================  ======================================================
COPIED     go home                    go to all buckets         those of the other side only at home have expired
SPREAD     go to any, by their time   go to all buckets         it has not been hot for ``COLD_BATCHES`` batches
GATHERED   go home                    go to all buckets         those that were spread have expired
=========  =========================  ========================  ======================================================

Home is the bucket of the key's hash.  Keys are known by that hash: two keys with one hash are spread together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np

from watersmeet.kernels.api import NEVER

#: A key is hot only if it has at least this share of a bucket's even share of the rows.
MIN_SHARE = 1 / 8
#: About this many rows of a batch's table are sampled to find keys that may be hot.
_SAMPLE_ROWS = 4096
#: A task reports at most this many keys.
_MAX_REPORTED = 64
#: 2**64 divided by the golden ratio (Fibonacci hashing).
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Phase(StrEnum):
    """How the rows of a hot key are routed."""

    COPIED = "copied"
    SPREAD = "spread"
    GATHERED = "gathered"


@dataclass(frozen=True, slots=True)
class HotKey:
    """A hot key, known by its hash; ``spread`` is the input whose rows are spread.

    The phase ends once rows with event time ``until`` have expired.  ``cold`` counts the batches since the key was hot.
    """

    spread: int
    phase: Phase
    until: int = NEVER
    cold: int = 0


HotKeys = Mapping[int, HotKey]


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """An operator's rule: the inputs whose rows may be spread, and how many rows in a batch make a key hot.

    With no inputs, keys that were spread before are gathered.  ``reach`` is how far the newest rows usually lie after
    the rows that are past.  A key does not become hot while a row lies far ahead: it would be copied until that row is
    past.
    """

    inputs: tuple[int, ...]
    min_rows: int
    reach: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log: the hot keys after ``batch`` (None: the log is empty)."""

    batch: int | None = None
    keys: HotKeys = field(default_factory=dict)


NO_ENTRY = Entry()


class HotKeyLog(Protocol):
    """The hot keys of one operator, before and after one batch.  Every task of a batch reads the same entry."""

    def read(self) -> Entry:
        """Return the newest entry before this batch."""

    def append(self, before: Entry, after: HotKeys, seen: Sequence[int]) -> Entry:
        """Return the entry that holds after this batch: a new one if the keys changed, else ``before``.

        An entry that another attempt of this run wrote holds.  An entry that an earlier run wrote for this batch, which
        it did not commit, is replaced.  ``seen`` holds the numbers that the decision rests on, which are equal in all
        attempts; raises ``CheckpointError`` if they differ, because the entry then belongs to another operator.
        """


# -- packing: which keys may be hot, and where rows go -----------------------------------------------------------------


@dataclass(slots=True)
class KeySample:
    """A sample of the keys that a packing task routed: hashes, and how many rows each stands for."""

    hashes: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    rows: int = 0

    def add(self, hashes: np.ndarray) -> None:
        """Sample the rows of a table: one of every stride, at irregular distances.

        Of 20,480 rows, 20,480 // 4,096 = 5 is the stride: 4,096 rows are sampled, and each stands for 5.
        """
        stride = max(1, len(hashes) // _SAMPLE_ROWS)
        first = np.arange(0, len(hashes) - stride + 1, stride)
        chosen = hashes[first + (first * 40503 >> 8) % stride]
        self.hashes.append(chosen)
        self.weights.append(np.full(len(chosen), stride))
        self.rows += len(hashes)

    def frequent(self, buckets: int) -> dict[int, int]:
        """Return the keys that may be hot, with their approximate number of rows."""
        if self.rows == 0:
            return {}
        keys, places = np.unique(np.concatenate(self.hashes), return_inverse=True)
        rows = np.bincount(places, weights=np.concatenate(self.weights))
        most = np.argsort(-rows, kind="stable")[:_MAX_REPORTED]
        least = self.rows * MIN_SHARE / buckets
        return {int(keys[i]): int(rows[i]) for i in most if rows[i] >= least}


def assign_spread_rows(
    indexes: np.ndarray, hashes: np.ndarray, times: np.ndarray, keys: HotKeys, input: int, buckets: int
) -> None:
    """Overwrite the bucket indexes of spread rows.

    The bucket follows from the event time, so every attempt sends a row to the same bucket.
    """
    spread = [key for key, each in keys.items() if each.phase is Phase.SPREAD and each.spread == input]
    if spread:
        rows = np.isin(hashes, spread)
        mixed = (times[rows].view(np.uint64) * _MIX) >> np.uint64(33)
        indexes[rows] = mixed % np.uint64(buckets)


def rows_to_copy(hashes: np.ndarray, keys: HotKeys, input: int) -> np.ndarray | None:
    """Return a mask of the rows that go to all buckets; None if there are none."""
    copies = [key for key, each in keys.items() if each.spread != input]
    if not copies:
        return None
    rows = np.isin(hashes, copies)
    return rows if rows.any() else None
