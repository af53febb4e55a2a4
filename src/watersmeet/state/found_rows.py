"""Found rows: those that index lookups have read from files last, in memory for the next lookup of the same rows.

Two generations approximate the order of last use.  Rows join the young generation when they are read, and when they are
found in the old one.  Once the young one would exceed its bounds, it becomes the old one, whose rows are dropped.

A generation consists of runs: rows of one relation and one schema, in the order of their places.  Runs of similar size
are merged, so that a lookup looks into few, and copies few rows to add some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa

from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.state.hot_bounds import HotBounds
from watersmeet.state.key_hashes import Numbers

_NOTHING = HotBounds(0, 0)


class FoundRows:
    """Rows of one bucket, by the relation that owns them (any name) and their places there.

    They keep to the bounds of ``limit`` and, with other rows in Arrow, to the ``budget``.
    """

    def __init__(self, budget: ArrowBudget) -> None:
        self._budget = budget
        self._most = _NOTHING  # in each generation
        self._young: tuple[_Run, ...] = ()
        self._old: tuple[_Run, ...] = ()

    def limit(self, bounds: HotBounds) -> None:
        """Hold rows within these bounds from now on, half of them in each generation; without this call, none."""
        self._most = bounds.part(2)

    @property
    def rows(self) -> int:
        """How many rows are held; one in both generations counts twice."""
        return _rows(self._young) + _rows(self._old)

    @property
    def nbytes(self) -> int:
        """What they take, with their places."""
        return _nbytes(self._young) + _nbytes(self._old)

    def find(self, owner: str, places: Numbers) -> tuple[list[pa.Table], Numbers]:
        """Return the rows that are held of those at these places, and the places of the others, in their order."""
        young, places = _found(self._young, owner, places)
        old, places = _found(self._old, owner, places)
        self._add(old)
        return [each.rows for each in (*young, *old)], places

    def add(self, owner: str, read: Iterable[tuple[Numbers, pa.Table]]) -> None:
        """Hold rows that ``find`` did not return, with their places."""
        if self._most != _NOTHING:
            self._add([_Run(owner, places, rows) for places, rows in read])

    def remove(self, owner: str, first: int, end: int) -> None:
        """Drop the rows of an owner at the places from ``first`` to before ``end``."""
        young, old = (
            tuple(each.without(first, end) if each.owner == owner else each for each in runs)
            for runs in (self._young, self._old)
        )
        self._hold(young, old)

    def clear(self, owner: str) -> None:
        """Drop all rows of an owner."""
        self._hold(*(tuple(each for each in runs if each.owner != owner) for runs in (self._young, self._old)))

    def _add(self, runs: Iterable[_Run]) -> None:
        """Add rows to the young generation, of which it has none."""
        by_kind: dict[tuple[str, pa.Schema], list[_Run]] = defaultdict(list)
        for run in runs:
            by_kind[run.kind].append(run)
        for alike in by_kind.values():
            run = _merged(alike)
            young = _with(self._young, run)
            if self._most.allow(_rows(young), _nbytes(young)):
                self._hold(young, self._old)
            else:
                self._hold((_fitting(run, self._most),), self._young)

    def _hold(self, young: tuple[_Run, ...], old: tuple[_Run, ...]) -> None:
        """Hold these runs in place of all others; a generation that exceeds the budget is dropped."""
        self._budget.give_back(self.nbytes)
        young, old = (tuple(each for each in runs if len(each)) for runs in (young, old))
        self._young = young if self._budget.take(_nbytes(young)) else ()
        self._old = old if self._budget.take(_nbytes(old)) else ()


class _Run:
    """Rows of one owner and one schema, with their places, which ascend."""

    def __init__(self, owner: str, places: Numbers, rows: pa.Table) -> None:
        self.owner, self.places, self.rows = owner, places, rows
        self.kind = owner, rows.schema

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def nbytes(self) -> int:
        return int(self.places.nbytes + self.rows.nbytes)

    def at(self, positions: np.ndarray) -> _Run:
        """Return a copy of the rows at some positions in the run."""
        return _Run(self.owner, self.places[positions], self.rows.take(pa.array(positions)))

    def without(self, first: int, end: int) -> _Run:
        """Return the rows whose place is not from ``first`` to before ``end``."""
        start, stop = np.searchsorted(self.places, np.array([first, end], np.uint64))
        return self if start == stop else self.at(np.r_[0:start, stop : len(self)])


def _found(runs: Iterable[_Run], owner: str, places: Numbers) -> tuple[list[_Run], Numbers]:
    """Return the rows of some runs at these places, and the places where they have none."""
    found = []
    for run in runs:
        if run.owner == owner and len(places):
            positions = np.minimum(np.searchsorted(run.places, places), len(run) - 1)
            is_there = run.places[positions] == places
            if is_there.any():
                found.append(run.at(positions[is_there]))
                places = places[~is_there]
    return found, places


def _with(runs: tuple[_Run, ...], run: _Run) -> tuple[_Run, ...]:
    """Return the runs and one more, merged with those of its kind that are at most twice as large.

    Each run of a kind is more than twice as large as the next one, so they are few, and a row is seldom copied.
    """
    merged, rows = [run], len(run)
    for each in reversed(runs):
        if each.kind == run.kind and len(each) <= 2 * rows:
            merged.append(each)
            rows += len(each)
    return (*(each for each in runs if each not in merged), _merged(merged))


def _merged(runs: list[_Run]) -> _Run:
    """Return runs of one kind as one."""
    if len(runs) == 1:
        return runs[0]
    places = np.concatenate([each.places for each in runs])
    rows = pa.concat_tables([each.rows for each in runs]).combine_chunks()
    return _Run(runs[0].owner, places, rows).at(np.argsort(places))


def _fitting(run: _Run, bounds: HotBounds) -> _Run:
    """Return the last rows of a run, or no row, within the bounds: half of them, until they fit."""
    while len(run) and not bounds.allow(len(run), run.nbytes):
        run = run.at(np.arange(len(run) - len(run) // 2, len(run)))
    return run


def _rows(runs: Iterable[_Run]) -> int:
    return sum(map(len, runs))


def _nbytes(runs: Iterable[_Run]) -> int:
    return sum(each.nbytes for each in runs)
