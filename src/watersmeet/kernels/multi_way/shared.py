"""Joins of several queries over shared stores: a row is stored once, and each query's new rows probe what it needs.

Matches      for each query, what its own join matches (join.py)
Ties, NULLs  as in each query's own join
Late rows    never reach the kernel; all queries have one frontier, that of the slowest of their streams
Final        as in each query's own join, at that frontier
State        the rows of each store while they can still be in a new result of some query

Example, two queries over a store of a: one joins b within 10, the other c within 60.  a@5 is stored once, by both, and
forgotten at F = 66, when the second query needs it no more.  No b can come that the first query would still join to it:
its window is a condition of the join, not only of the state.

Several queries over one set of stores: CLASH (Dossinger and Michel, "Optimizing Multiple Multi-Way Stream Joins", ICDE
2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.columns import TIME
from watersmeet.kernels.api import StateView, StepFrontiers, StepResult
from watersmeet.kernels.multi_way import step
from watersmeet.kernels.multi_way.match import MultiWayMatch
from watersmeet.kernels.multi_way.rows import StepRows
from watersmeet.kernels.multi_way.stores import Store, relation


@dataclass(frozen=True, slots=True)
class SharingJoin:
    """The join of one query.  ``reads`` names, for each of its inputs, the kernel's input that brings its rows."""

    match: MultiWayMatch
    reads: tuple[int, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class SharedJoins:
    """The kernel.  ``stored`` are the columns of each input beside its event time; its store is ``relation(input)``."""

    joins: tuple[SharingJoin, ...]
    stored: tuple[tuple[str, ...], ...]

    @property
    def partition_width(self) -> int | None:
        """The widest partition of a join; None if rows have no bound in one of them."""
        widths = [join.match.partition_width for join in self.joins]
        known = [width for width in widths if width is not None]
        return max(known) if len(known) == len(widths) else None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return all stores, each from the time at which a partner may still arrive in some query."""
        return {relation(input): self._closed_before(input, frontier) for input in range(len(self.stored))}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Join the new rows of each query with each other and with stored rows; store each row once."""
        del first_rid  # no row needs an id: none is retracted or marked
        result, found, statistics = StepResult(), [], []
        known = state.statistics.get("joins") or [None] * len(self.joins)
        for join, of_join in zip(self.joins, known, strict=True):
            new = {number: join.stores[number].of_input(inputs[read]) for number, read in enumerate(join.reads)}
            rows = StepRows(join.match, state, new, frontiers, join.stores)
            changes, learned = step.results(rows, of_join or {})
            found.append(changes)
            statistics.append(learned)
        result.changes, *result.further = found
        result.statistics = {"joins": statistics, "gauges": dict(_gauges(statistics))}
        for input, columns in enumerate(self.stored):
            new_rows = inputs[input].select([*columns, TIME])
            step.keep(result, relation(input), new_rows, self._closed_before(input, frontiers.after))
        return result

    def _closed_before(self, input: int, frontier: int) -> int:
        return min(
            join.match.closed_before(number, frontier)
            for join in self.joins
            for number, read in enumerate(join.reads)
            if read == input
        )


def _gauges(statistics: Iterable[dict[str, Any] | None]) -> Iterator[tuple[str, float]]:
    """The gauges of all joins, whose paths begin with the number of the join and a colon."""
    for number, of_join in enumerate(statistics):
        for name, value in (of_join or {}).get("gauges", {}).items():
            what, _, path = name.partition(".")
            yield f"{what}.{number}:{path}", value
