"""The first rows of each partition: those with a rank of at most ``limit`` in an order.

Ties       ROW_NUMBER: rows that the order does not tell apart are numbered by their other columns, so that the cut of
           batches does not matter.  RANK, DENSE_RANK: they share a rank
Emits      at once, the difference of the first rows after the step and before it: a row that another one displaces is
           retracted, as is one whose rank changes, if results show it.  With ``final``, the first rows of each
           partition that has ended, and nothing before
NULLs      in the keys form one partition; in the order they are least
Late rows  where partitions end: by the frontier; otherwise none
Final      once a partition has ended: ``end <= F``.  Without an ``end``, never
State      of append-only input, the first rows of each partition that has not ended: a row behind them never comes
           forward.  Of a changelog, all its rows that hold
Cost       follows the rows of the partitions that a step touches

    limit 1, by v descending
    +1 (a, 5)            ⇒  + (a, 5)
    +1 (a, 3)  +1 (a, 9) ⇒  - (a, 5)  + (a, 9)
    -1 (a, 9)            ⇒  - (a, 9)  + (a, 5)      (a changelog: an append-only stream has no -1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, shift
from watersmeet.kernels.changelog.stored_rows import StoredRows
from watersmeet.kernels.homes import ByKey, Homes, WithRow
from watersmeet.kernels.top_n.step import ROWS, run


class Rank(Enum):
    """How rows are numbered; the value is DuckDB's function."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"


@dataclass(frozen=True, slots=True)
class TopN:
    """The kernel; ``keys`` are (name, SQL over the input rows, type), ``order`` are (name, SQL, descending).

    ``output`` are the columns of the results, (name, SQL); with a ``shown`` name they have the rank too.  ``where``
    filters the input rows.  With ``changes``, rows carry ``$w`` and ``$id``.  ``end`` is SQL over the keys: the time
    from which on no row of a partition comes.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    order: tuple[tuple[str, str, bool], ...]
    output: tuple[tuple[str, str], ...]
    rank: Rank
    limit: int
    shown: str | None = None
    where: str | None = None
    changes: bool = False
    end: str | None = None
    final: bool = False
    gives_ids: bool = False

    @property
    def partition_width(self) -> int | None:
        """None: rows are stored under the end of their partition."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Rows have the columns of the keys; without keys there is one bucket."""
        rows, gone, _ = StoredRows.relations_of(ROWS)
        return {rows: ByKey(0), gone: WithRow((rows,))} if self.keys else None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the rows of partitions that have not ended."""
        return {ROWS: NEVER if self.end is None else shift(frontier, 1)}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply new and retracted rows; emit the difference that they make, or the rows of partitions that end."""
        return run(self, state, inputs[0], first_rid, frontiers)
