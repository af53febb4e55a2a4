"""Window functions over the rows of each partition, in an order; with a limit, of its first rows alone.

Ties       where a function numbers or counts rows, those that the order does not tell apart follow each other by their
           other columns, so that the cut of batches does not matter.  RANK, DENSE_RANK and RANGE take them together
No order   the first rows of append-only input are those that come first, those of a batch in the order of their
           columns (``by_arrival``).  Of other input they are the first by their columns: what is revised and comes back
           within a batch, as the steps of a join below may do, would otherwise come anew
Emits      at once, the difference of the results after the step and before it: a row is retracted when another one
           displaces it behind the limit, or changes a value of it that results show.  With ``final``, the first rows of
           each partition that has ended, and nothing before.  ``once``, the first rows by arrival, which stay the first
NULLs      in the keys form one partition; in the order they are least
Late rows  where partitions end: by the frontier; otherwise none
Final      once a partition has ended: ``end <= F``.  Without an ``end``, never
State      of append-only input with a limit, the first rows of each partition that has not ended: a row behind them
           never comes forward.  Otherwise, and where values of the first rows take rows behind them, all its rows that
           hold
Cost       follows the rows of the partitions that a step touches

    row_number() <= 1, by v descending
    +1 (a, 5)            ⇒  + (a, 5)
    +1 (a, 3)  +1 (a, 9) ⇒  - (a, 5)  + (a, 9)
    -1 (a, 9)            ⇒  - (a, 9)  + (a, 5)      (a changelog: an append-only stream has no -1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, shift
from watersmeet.kernels.changelog.stored_rows import StoredRows
from watersmeet.kernels.homes import Homes
from watersmeet.kernels.over.step import ROWS, run


@dataclass(frozen=True, slots=True)
class Value:
    """A column computed over a partition: a ``call`` of DuckDB over kept columns, its ``frame``, and its type.

    If ``tied``, rows are in an order without ties.
    """

    name: str
    call: str
    type: pa.DataType
    frame: str = ""
    tied: bool = True


@dataclass(frozen=True, slots=True)
class Over:
    """The kernel; ``keys`` are (name, SQL over the input rows, type), ``order`` are (name, SQL, descending).

    ``arguments`` are (name, SQL over the input rows) of what the ``values`` read.  ``output`` are the input's columns
    in the results, (name, SQL); results have those of the values that are ``shown`` too.  ``limit`` is the most that
    the value of a name may be; the first ``skipped`` are no results.  With ``reads_behind``, values of
    rows within it take rows behind it.  ``where`` filters the input rows.  With ``changes``, rows carry ``$w`` and
    ``$id``.
    ``end`` is SQL over the keys: the time from which on no row of a partition comes.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    order: tuple[tuple[str, str, bool], ...]
    arguments: tuple[tuple[str, str], ...]
    values: tuple[Value, ...]
    output: tuple[tuple[str, str], ...]
    shown: tuple[str, ...] = ()
    limit: tuple[str, int] | None = None
    skipped: int = 0
    reads_behind: bool = False
    where: str | None = None
    changes: bool = False
    end: str | None = None
    final: bool = False
    by_arrival: bool = False
    once: bool = False
    gives_ids: bool = False

    @property
    def keeps_first(self) -> bool:
        """Whether the first rows of each partition are all that is kept of it."""
        return self.limit is not None and not self.changes and not self.reads_behind

    @property
    def partition_width(self) -> int | None:
        """None: rows are stored under the end of their partition."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Rows have the columns of the keys; without keys there is one bucket."""
        return StoredRows.homes_of(ROWS) if self.keys else None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the rows of partitions that have not ended."""
        return {ROWS: NEVER if self.end is None else shift(frontier, 1)}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply new and retracted rows; emit the difference that they make, or the results of partitions that end."""
        return run(self, state, inputs[0], first_rid, frontiers)
