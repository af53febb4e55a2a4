"""A hash index: the places of rows, by a hash of their key, over all segments of a relation.

An entry is one 64-bit number: the high half of a row's hash above its place.  Each segment adds one sorted run of
entries.  Four runs of similar size are merged into one, as in a log-structured merge tree (O'Neil et al., 1996).
Each run has a table of where the entries with a given hash prefix start, so a lookup costs by the number of keys and of
runs, not of rows.  Different keys may share a hash: callers must compare the keys themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.state.key_hashes import Numbers
from watersmeet.state.mapped_file import MappedFile, mapped_arrays

Counts = np.ndarray[tuple[int], np.dtype[np.int32]]

FAN_IN = 4
#: Longer runs are not merged: they are dropped whole once the rows of their time have expired.
MAX_MERGED = 1_000_000
#: To merge four runs takes about so many bytes for each entry of one; it may take as many as the budget.
_BYTES_PER_MERGED = 64
#: Entries that are handled at once where each needs more room than in the run.
_AT_ONCE = 131_072
#: A place is below this and takes the low 32 bits of an entry; the hash has the high 32 bits.
MAX_PLACES = 1 << 32
_PLACE = np.uint64(MAX_PLACES - 1)
_HASH = ~_PLACE
#: A run's filter has at least 8 bits for each entry, so at most 1 in 8 hashes that are not in the run passes.
_FILTER_BITS_PER_ENTRY = 8
#: At most 2 entries on average share a prefix in the table of starts.
_ENTRIES_PER_START = 2
#: A lookup gives up if it would compare more than 4 entries for each row that it may return.
_COMPARED_PER_ROW = 4


class KeyIndex:
    """Places by hash, added and removed in *blocks*: the consecutive places of one segment's rows.

    Runs that exceed the ``budget`` lie in files.
    """

    def __init__(self, budget: ArrowBudget) -> None:
        self._budget = budget
        self._runs: list[_Run] = []
        self._rows: dict[int, int] = {}  # of each live block, by its first place

    @property
    def blocks(self) -> Set[int]:
        """The first places of all live blocks."""
        return self._rows.keys()

    def add(self, first: int, hashes: Numbers) -> None:
        """Add a block: ``hashes`` of the rows at the places from ``first`` on."""
        entries = (hashes & _HASH) | np.arange(first, first + len(hashes), dtype=np.uint64)
        entries.sort()
        self._rows[first] = len(hashes)
        self._runs.append(_Run(entries, {first}, self._budget))
        self._merge()

    def close(self) -> None:
        """Drop all blocks."""
        for run in self._runs:
            run.close()
        self._runs, self._rows = [], {}

    def remove(self, first: int) -> None:
        """Remove a block, if it is in the index; runs that are half dead are rewritten."""
        if self._rows.pop(first, None) is None:
            return
        kept = []
        for run in self._runs:
            live = sum(self._rows.get(block, 0) for block in run.blocks)
            if 2 * live > len(run.entries):
                kept.append(run)
            elif live:
                kept.append(self._merged([run]))
            else:
                run.close()
        self._runs = kept

    def find(self, hashes: Numbers, blocks: Collection[int], most: int) -> Numbers | None:
        """Return the places, ascending, of all rows in ``blocks`` with one of these hashes; None if more than ``most``.

        ``blocks`` are first places of live blocks.
        """
        wanted = np.sort(hashes & _HASH)
        wanted = wanted[np.append(True, wanted[1:] != wanted[:-1])[: len(wanted)]]
        candidates = [run.candidates(wanted) for run in self._runs if not run.blocks.isdisjoint(blocks)]
        if sum(each.count() for each in candidates) > _COMPARED_PER_ROW * most:
            return None
        places = np.sort(np.concatenate([np.empty(0, np.uint64), *(each.equal() for each in candidates)]) & _PLACE)
        places = places[self._is_in(blocks, places)]
        return places if len(places) <= most else None

    def _merge(self) -> None:
        while due := next((runs for runs in self._tiers().values() if len(runs) >= FAN_IN), None):
            self._runs = [run for run in self._runs if run not in due]
            self._runs.append(self._merged(due))

    def _tiers(self) -> Mapping[int, list[_Run]]:
        """Group runs by size: each tier holds runs four times as long as the one below."""
        tiers: dict[int, list[_Run]] = defaultdict(list)
        for run in self._runs:
            if len(run.entries) <= min(MAX_MERGED, self._budget.max_bytes // _BYTES_PER_MERGED):
                tiers[(len(run.entries).bit_length() + 1) // 2].append(run)  # 16 to 63 entries: tier 3
        return tiers

    def _merged(self, runs: list[_Run]) -> _Run:
        """Close runs and return one in their place, without entries of removed blocks."""
        blocks = set().union(*(run.blocks for run in runs))
        entries = np.concatenate([run.entries for run in runs])
        if not blocks <= self._rows.keys():
            entries = entries[self._is_in(self._rows, entries & _PLACE)]
        entries.sort(kind="stable")  # merges sorted runs in linear time
        for run in runs:
            run.close()
        return _Run(entries, blocks & self._rows.keys(), self._budget)

    def _is_in(self, blocks: Collection[int], places: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return, for each place, whether it is in one of these live blocks."""
        firsts = np.array(sorted(blocks), dtype=np.uint64)
        ends = firsts + np.array([self._rows[int(first)] for first in firsts], dtype=np.uint64)
        block = np.searchsorted(firsts, places, side="right")
        return np.append(np.uint64(0), ends)[block] > places


class _Run:
    """Sorted entries of some blocks, in memory as far as the budget allows, else in a file."""

    def __init__(self, entries: Numbers, blocks: set[int], budget: ArrowBudget) -> None:
        self.blocks = blocks
        # a filter of prefixes, one bit each: most hashes are not in most runs
        self._filter_bits = _bits_of(len(entries) * _FILTER_BITS_PER_ENTRY)
        present = _present(entries, self._filter_bits)
        # where the entries of each prefix start
        self._bits = _bits_of(len(entries) // _ENTRIES_PER_START)
        starts = np.zeros((1 << self._bits) + 1, dtype=np.int32)
        np.cumsum(np.bincount(_prefixes(entries, self._bits), minlength=1 << self._bits), out=starts[1:])
        arrays: list[np.ndarray[Any, Any]] = [entries, present, starts]
        self._budget, self._taken = budget, sum(each.nbytes for each in arrays)
        self._file: MappedFile | None = None
        if not budget.take(self._taken):
            self._taken = 0
            self._file, arrays = mapped_arrays(arrays)
        self.entries: Numbers
        self.entries, self._filter, self._starts = arrays

    def close(self) -> None:
        """Give back what the run takes of the budget."""
        self._budget.give_back(self._taken)
        self._taken = 0

    def release(self) -> None:
        """Give back the pages of a file that have been read."""
        if self._file is not None:
            self._file.release()

    def candidates(self, hashes: Numbers) -> _Candidates:
        """Return the entries that share a prefix with one of these hashes."""
        prefixes = _prefixes(hashes, self._filter_bits)
        hashes = hashes[(self._filter[prefixes >> 3] >> (prefixes & 7).astype(np.uint8) & 1).view(np.bool_)]
        prefixes = _prefixes(hashes, self._bits)
        starts, ends = self._starts[prefixes], self._starts[prefixes + 1]
        self.release()
        return _Candidates(self, hashes, starts, ends - starts)


@dataclass(slots=True)
class _Candidates:
    """Entries that share a prefix with a hash: for each hash, where they start and how many there are."""

    run: _Run
    hashes: Numbers
    starts: Counts
    numbers: Counts

    def count(self) -> int:
        return int(self.numbers.sum(dtype=np.int64))

    def equal(self) -> Numbers:
        """Return the entries whose hash equals one of the hashes."""
        # starts [10, 50] and numbers [2, 3] make the positions 10 11 50 51 52
        shift = np.repeat(self.starts - (np.cumsum(self.numbers) - self.numbers), self.numbers)
        entries = self.run.entries[np.arange(len(shift)) + shift]
        self.run.release()
        equal: Numbers = entries[(entries & _HASH) == np.repeat(self.hashes, self.numbers)]
        return equal


def _present(entries: Numbers, bits: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return which prefixes ascending entries have, a bit each."""
    found = np.zeros(max((1 << bits) // 8, 1), dtype=np.uint8)
    for start in range(0, len(entries), _AT_ONCE):
        prefixes = _prefixes(entries[start : start + _AT_ONCE], bits)
        places, masks = prefixes >> 3, np.left_shift(1, prefixes & 7).astype(np.uint8)
        firsts = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        found[places[firsts]] |= np.bitwise_or.reduceat(masks, firsts)
    return found


def _bits_of(number: int) -> int:
    return max(number, 1).bit_length()


def _prefixes(hashes: Numbers, bits: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the highest bits of hashes, or of entries."""
    return (hashes >> np.uint64(64 - bits)).view(np.int64)
