"""Hot keys: those with so many rows in a batch that one bucket would do the work of all.

For a hot key, rows of one side are spread over the buckets and rows of the other go to all of them, as copies.  A pair
is still formed once, since each spread row lies in one bucket and meets every partner there; so the side that is spread
may be one whose rows come out alone, the other may not.  (Fragment and replicate, chosen for hot keys only: Xu et al.,
"Handling data skew in parallel joins in shared-nothing systems", SIGMOD 2008.)

Which keys are hot is decided between two batches, and rows that are stored already stay where they are.  So a key takes
one step after the other:

=========  =========================  ============================  ==================================================
phase      rows of the spread side    rows of the other side        until
=========  =========================  ============================  ==================================================
COPIED     go home                    go to all buckets             those of the other side that lie only at home are
                                                                    past
SPREAD     go to any, by their time   go to all buckets             it has not been hot for ``COLD_BATCHES`` batches
GATHERED   go home                    go to all buckets             those that were spread are past
=========  =========================  ============================  ==================================================

Home is the bucket of the key's hash.  Keys are told apart by that hash: of two with the same, both are spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np

from watersmeet.kernels.api import FOREVER, NEVER

#: A key that has not been hot for so many batches goes home.
COLD_BATCHES = 16
#: A key is not hot unless it has this share of a bucket's even share of the rows.
LEAST_SHARE = 1 / 8
#: About so many rows of a portion are looked at to find keys that may be hot.
_SAMPLE = 4096
#: Of each row that is spread so many are copied at most.
_MOST_COPIES = 2
#: Newest rows that lie further ahead than so many times the usual are told from the others.
_FAR = 4
#: A task tells of so many keys at most.
_MOST_TOLD = 64
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Phase(StrEnum):
    """How far the rows of a hot key have been moved."""

    COPIED = "copied"
    SPREAD = "spread"
    GATHERED = "gathered"


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key by its hash: ``spread`` is the input whose rows are spread.

    The phase ends once rows of the newest event time ``until`` are past; ``cold`` counts the batches since it was hot.
    """

    spread: int
    phase: Phase
    until: int = NEVER
    cold: int = 0


HotKeys = Mapping[int, HotKey]


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """Of an operator: the inputs whose rows may be spread, and from how many rows in a batch on a key is hot.

    Without inputs keys that have been spread are gathered.  ``reach`` is how far the newest rows lie, as a rule, from
    those that are past: a key is not begun while a row lies far ahead, for it would be copied until that is past.
    """

    inputs: tuple[int, ...]
    least_rows: int
    reach: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What a log says: the keys, and after which batch (None: it has no entry yet)."""

    batch: int | None = None
    keys: HotKeys = field(default_factory=dict)


NO_ENTRY = Entry()


class HotKeyLog(Protocol):
    """The hot keys of one operator as one batch finds and leaves them; every task of a batch finds the same."""

    def read(self) -> Entry:
        """The newest entry before this batch."""

    def settle(self, before: Entry, after: HotKeys, seen: Sequence[int]) -> Entry:
        """Say what holds after this batch: an entry of its own if that is new, else the one ``before``.

        Where another attempt in this run of the query has left one, that one holds.  What an earlier run left of this
        batch, which it did not commit, does not count.  ``seen`` are numbers that the decision rests on: attempts have
        the same.  Raises ``CheckpointError`` where they differ, so that the entry is not of an attempt.
        """


# -- which keys are hot ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sampled:
    """What a packing task has seen of the keys of its rows: hashes of some, each with how many it stands for."""

    hashes: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    rows: int = 0

    def add(self, hashes: np.ndarray) -> None:
        """Look at some of the rows of a portion: one of every few, in no regular distance."""
        stride = max(1, len(hashes) // _SAMPLE)
        first = np.arange(0, len(hashes) - stride + 1, stride)
        chosen = hashes[first + (first * 40503 >> 8) % stride]
        self.hashes.append(chosen)
        self.weights.append(np.full(len(chosen), stride))
        self.rows += len(hashes)

    def frequent(self, buckets: int) -> dict[int, int]:
        """About how many rows have the keys that may be hot."""
        if self.rows == 0:
            return {}
        keys, places = np.unique(np.concatenate(self.hashes), return_inverse=True)
        rows = np.bincount(places, weights=np.concatenate(self.weights))
        most = np.argsort(-rows, kind="stable")[:_MOST_TOLD]
        least = self.rows * LEAST_SHARE / buckets
        return {int(keys[i]): int(rows[i]) for i in most if rows[i] >= least}


@dataclass(slots=True)
class Seen:
    """What all packing tasks of a batch have seen of one input's keys."""

    rows: int
    keys: dict[int, int]  # by hash, about how many rows have it

    def add(self, rows: int, keys: Mapping[int, int]) -> None:
        """Take in what one task has seen."""
        self.rows += rows
        for key, count in keys.items():
            self.keys[key] = self.keys.get(key, 0) + count


def next_keys(
    keys: HotKeys,
    seen: Mapping[int, Seen],
    newest: Sequence[int],
    closed: Sequence[int],
    rule: SpreadRule,
    buckets: int,
) -> dict[int, HotKey]:
    """The hot keys after a batch.

    ``newest`` is the newest event time that each input has brought so far, ``FOREVER`` where it is not known; rows of
    an input before ``closed`` are past.
    """
    hot = _hot(seen, rule, buckets)
    far = {input for input in (0, 1) if newest[input] == FOREVER or newest[input] - closed[input] > _FAR * rule.reach}
    moved = {key: _moved(each, hot.get(key), newest, closed) for key, each in keys.items()}
    begun = {
        key: HotKey(input, Phase.COPIED, newest[_other(input)])
        for key, input in hot.items()
        if key not in keys and _other(input) not in far
    }
    return {**{key: each for key, each in moved.items() if each is not None}, **begun}


def _hot(seen: Mapping[int, Seen], rule: SpreadRule, buckets: int) -> dict[int, int]:
    """Keys that were hot in a batch, each with the input to spread: that of more rows.

    Where the rows to be copied are many more, copying them costs more than is gained.
    """
    found: dict[int, tuple[int, int]] = {}
    for input in rule.inputs:
        told = seen.get(input, Seen(0, {}))
        least = max(rule.least_rows, told.rows * LEAST_SHARE / buckets)
        for key, rows in told.keys.items():
            copies = seen.get(_other(input), Seen(0, {})).keys.get(key, 0)
            if rows >= least and copies <= _MOST_COPIES * rows and rows > found.get(key, (0, 0))[0]:
                found[key] = rows, input
    return {key: input for key, (_, input) in found.items()}


def _moved(key: HotKey, hot: int | None, newest: Sequence[int], closed: Sequence[int]) -> HotKey | None:
    """A hot key after one more batch; None where it is one like others again."""
    key = replace(key, cold=0 if hot == key.spread else key.cold + 1)
    spread, other = key.spread, _other(key.spread)
    is_cold = key.cold >= COLD_BATCHES
    match key.phase:
        case Phase.COPIED if is_cold:
            return None  # nothing has been spread
        case Phase.COPIED if closed[other] > key.until:
            return replace(key, phase=Phase.SPREAD, until=NEVER)
        case Phase.SPREAD if is_cold:
            return replace(key, phase=Phase.GATHERED, until=newest[spread])
        case Phase.GATHERED if closed[spread] > key.until:
            return None
        case Phase.GATHERED if not is_cold:
            return replace(key, phase=Phase.SPREAD, until=NEVER)
    return key


def _other(input: int) -> int:
    return 1 - input


# -- where rows go -----------------------------------------------------------------------------------------------------


def place(indexes: np.ndarray, hashes: np.ndarray, times: np.ndarray, keys: HotKeys, input: int, buckets: int) -> None:
    """Change the bucket index of the rows that are spread; by event time, so that each attempt puts it in the same."""
    spread = [key for key, each in keys.items() if each.phase is Phase.SPREAD and each.spread == input]
    if spread:
        rows = np.isin(hashes, spread)
        mixed = (times[rows].view(np.uint64) * _MIX) >> np.uint64(33)
        indexes[rows] = mixed % np.uint64(buckets)


def copied(hashes: np.ndarray, keys: HotKeys, input: int) -> np.ndarray | None:
    """Which rows go to all buckets; None where there are none."""
    copies = [key for key, each in keys.items() if each.spread != input]
    if not copies:
        return None
    rows = np.isin(hashes, copies)
    return rows if rows.any() else None
