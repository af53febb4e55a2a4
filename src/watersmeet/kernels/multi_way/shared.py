"""Joins of several queries over shared stores: a row is stored once, and each query's new rows probe what it needs.

Matches      for each query, what its own join matches (join.py)
Ties, NULLs  as in each query's own join
Late rows    never reach the kernel; all queries have one frontier, that of the slowest of their streams
Final        as in each query's own join, at that frontier
State        the rows of each store while they can still be in a new result of some query

Example, two queries over a store of a: one joins b within 10, the other c within 60.  a@5 is stored once for both, and
forgotten at F = 66, when the second no longer needs it.  Until then a b@20 still finds a@5, but the first query does
not join them: its window is a condition of the join, not only a bound of the state.

Several queries over one set of stores: CLASH (Dossinger and Michel, "Optimizing Multiple Multi-Way Stream Joins", ICDE
2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.kernels.api import StateView, StepFrontiers, StepResult, shift
from watersmeet.kernels.homes import ByKey, Homes
from watersmeet.kernels.multi_way import step
from watersmeet.kernels.multi_way.match import MultiWayMatch, longest
from watersmeet.kernels.multi_way.rows import StepRows
from watersmeet.kernels.multi_way.stores import Store, relation


@dataclass(frozen=True, slots=True)
class QueryJoin:
    """The join of one query.  ``reads`` names, for each of its inputs, the kernel's input that brings its rows."""

    match: MultiWayMatch
    reads: tuple[int, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class SharedJoins:
    """The kernel.  ``stored`` are the columns of each input beside its event time; its store is ``relation(input)``."""

    joins: tuple[QueryJoin, ...]
    stored: tuple[tuple[str, ...], ...]

    @property
    def partition_width(self) -> int | None:
        """The widest partition of a join; None if rows have no bound in one of them."""
        return longest(join.match.partition_width for join in self.joins)

    def reach(self, input: int) -> int | None:
        """Return the longest reach of a store's rows in a query (None: they stay for ever)."""
        return longest(
            join.match.inputs[number].reach
            for join in self.joins
            for number, read in enumerate(join.reads)
            if read == input
        )

    @property
    def homes(self) -> Homes | None:
        """The rows of each store."""
        return {relation(input): ByKey(input) for input in range(len(self.stored))}

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
            new = {number: join.stores[number].read(inputs[read]) for number, read in enumerate(join.reads)}
            rows = StepRows(join.match, state, new, frontiers, join.stores)
            changes, learned = step.results(rows, of_join or {})
            found.append(changes)
            statistics.append(learned)
        result.changes, *result.further = found
        result.statistics = {"joins": statistics, "gauges": dict(_gauges(statistics))}
        for input, columns in enumerate(self.stored):
            step.keep(result, relation(input), inputs[input], columns, self._closed_before(input, frontiers.after))
        return result

    def _closed_before(self, input: int, frontier: int) -> int:
        reach = self.reach(input)
        return shift(frontier, None if reach is None else -reach)


def _gauges(statistics: Iterable[dict[str, Any] | None]) -> Iterator[tuple[str, float]]:
    """The gauges of all joins, whose paths begin with the number of the join and a colon."""
    for number, of_join in enumerate(statistics):
        for name, value in (of_join or {}).get("gauges", {}).items():
            what, _, path = name.partition(".")
            yield f"{what}.{number}:{path}", value
