"""An index of rows by a hash of their key: where, among all rows of a relation, those of some keys lie.

Entries are single numbers, a hash above a *place*, in sorted runs: those of the segments that were added, merged four
of a size into one, as in a log-structured merge tree (O'Neil et al., 1996).  Each run knows how its hashes begin and
where those that begin alike start, so what a search costs follows the keys that are sought and the number of runs, not
the rows.  Rows of one hash need not be of one key: whoever asks compares the keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

import numpy as np

from watersmeet.state.key_hashes import Numbers

Counts = np.ndarray[tuple[int], np.dtype[np.int32]]

FAN_IN = 4
#: Runs of more entries are not merged: they go as a whole when the rows of an earlier time go.
MOST_MERGED = 1_000_000
#: A place is a number below this; the hash has the bits above.
MOST_PLACES = 1 << 32
_PLACE = np.uint64(MOST_PLACES - 1)
_HASH = ~_PLACE
#: Of the beginnings of hashes by which a run is searched, about: few that are not sought are seen …
_BEGINNINGS_PER_ENTRY = 8
#: … and few entries are looked at for one that is.
_ENTRIES_PER_START = 2
#: If more entries must be looked at for each row that may be found, it is not worth to count the rows.
_LOOKED_AT_PER_ROW = 4


class KeyIndex:
    """Places by hash, added and left out again in *blocks*: the rows of one segment, from a first place on."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._rows: dict[int, int] = {}  # of each block that is not left out, by its first place

    @property
    def blocks(self) -> Set[int]:
        """The first places of all blocks that are not left out."""
        return self._rows.keys()

    def add(self, first: int, hashes: Numbers) -> None:
        """Add a block: ``hashes`` of the rows at the places from ``first`` on."""
        entries = (hashes & _HASH) | np.arange(first, first + len(hashes), dtype=np.uint64)
        entries.sort()
        self._rows[first] = len(hashes)
        self._runs.append(_Run(entries, {first}))
        self._merge()

    def leave_out(self, first: int) -> None:
        """Take a block away, if there is one."""
        if self._rows.pop(first, None) is None:
            return
        kept = []
        for run in self._runs:
            live = sum(self._rows.get(block, 0) for block in run.blocks)
            if 2 * live > len(run.entries):
                kept.append(run)
            elif live:
                kept.append(self._merged([run]))
        self._runs = kept

    def find(self, hashes: Numbers, blocks: Collection[int], most: int) -> Numbers | None:
        """The places, in order, of all rows with one of these hashes in some blocks, by their first places.

        None where they are more than ``most``.
        """
        sought = np.sort(hashes & _HASH)
        sought = sought[np.append(True, sought[1:] != sought[:-1])[: len(sought)]]
        near = [run.near(sought) for run in self._runs if not run.blocks.isdisjoint(blocks)]
        if sum(each.count() for each in near) > _LOOKED_AT_PER_ROW * most:
            return None
        places = np.sort(np.concatenate([np.empty(0, np.uint64), *(each.equal() for each in near)]) & _PLACE)
        places = places[self._is_in(blocks, places)]
        return places if len(places) <= most else None

    def _merge(self) -> None:
        while due := next((runs for runs in self._tiers().values() if len(runs) >= FAN_IN), None):
            self._runs = [run for run in self._runs if run not in due]
            self._runs.append(self._merged(due))

    def _tiers(self) -> Mapping[int, list[_Run]]:
        tiers: dict[int, list[_Run]] = defaultdict(list)
        for run in self._runs:
            if len(run.entries) <= MOST_MERGED:
                tiers[(len(run.entries).bit_length() + 1) // 2].append(run)  # four times as many, one more
        return tiers

    def _merged(self, runs: list[_Run]) -> _Run:
        blocks = set().union(*(run.blocks for run in runs))
        entries = np.concatenate([run.entries for run in runs])
        if not blocks <= self._rows.keys():
            entries = entries[self._is_in(self._rows, entries & _PLACE)]
        entries.sort(kind="stable")  # it merges what is sorted already
        return _Run(entries, blocks & self._rows.keys())

    def _is_in(self, blocks: Collection[int], places: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of each place whether it is of one of some blocks that are not left out."""
        firsts = np.array(sorted(blocks), dtype=np.uint64)
        ends = firsts + np.array([self._rows[int(first)] for first in firsts], dtype=np.uint64)
        block = np.searchsorted(firsts, places, side="right")
        return np.append(np.uint64(0), ends)[block] > places


class _Run:
    """Sorted entries of some blocks."""

    def __init__(self, entries: Numbers, blocks: set[int]) -> None:
        self.entries = entries
        self.blocks = blocks
        # which beginnings there are, one bit each: most hashes that are sought are not in most runs
        self._bits_seen = _bits_of(len(entries) * _BEGINNINGS_PER_ENTRY)
        seen = np.zeros(1 << self._bits_seen, dtype=np.bool_)
        seen[_beginnings(entries, self._bits_seen)] = True
        self._seen = np.packbits(seen, bitorder="little")
        # where those entries start that begin alike
        self._bits = _bits_of(len(entries) // _ENTRIES_PER_START)
        self._starts = np.zeros((1 << self._bits) + 1, dtype=np.int32)
        np.cumsum(np.bincount(_beginnings(entries, self._bits), minlength=1 << self._bits), out=self._starts[1:])

    def near(self, sought: Numbers) -> _Near:
        """The entries that begin like these hashes."""
        seen = _beginnings(sought, self._bits_seen)
        sought = sought[(self._seen[seen >> 3] >> (seen & 7).astype(np.uint8) & 1).view(np.bool_)]
        beginnings = _beginnings(sought, self._bits)
        starts = self._starts[beginnings]
        return _Near(self.entries, sought, starts, self._starts[beginnings + 1] - starts)


@dataclass(slots=True)
class _Near:
    """Entries that begin like hashes that are sought: for each hash where they start, and how many they are."""

    entries: Numbers
    sought: Numbers
    starts: Counts
    numbers: Counts

    def count(self) -> int:
        return int(self.numbers.sum(dtype=np.int64))

    def equal(self) -> Numbers:
        """Those with one of the hashes."""
        # all of them, one after the other
        shift = np.repeat(self.starts - (np.cumsum(self.numbers) - self.numbers), self.numbers)
        entries = self.entries[np.arange(len(shift)) + shift]
        equal: Numbers = entries[(entries & _HASH) == np.repeat(self.sought, self.numbers)]
        return equal


def _bits_of(number: int) -> int:
    return max(number, 1).bit_length()


def _beginnings(hashes: Numbers, bits: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The highest bits of hashes, or of entries."""
    return (hashes >> np.uint64(64 - bits)).view(np.int64)
