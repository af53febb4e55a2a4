"""Window functions in the order of event time, each row's values once, when no row before it can come: the kernel.

Order      by event time, then by further terms; rows that these do not tell apart follow each other by their other
           columns.  RANK, DENSE_RANK and RANGE take them together
Emits      a row with its values once its time is final: ``t < F``.  Nothing is ever taken back
NULLs      in the keys form one partition; in further terms of the order they are least
Late rows  never reach the kernel
State      rows with ``t >= F``, and what frames of later rows reach back to: the rows of the last ``time_before``, the
           last ``rows_before`` rows of each partition, and one row of running values for each partition, if a frame
           begins with the partition, or ranks are computed

    sum(v) over the last two rows, F = 10
    (5, 1) (8, 2) (12, 4)       ⇒  + (5, 1, sum 1)  + (8, 2, sum 3);  kept: (8, 2) (12, 4)
    (11, 8), F = 20             ⇒  + (11, 8, sum 10)  + (12, 4, sum 12);  kept: (12, 4)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, shift
from watersmeet.kernels.changelog.stored_rows import StoredRows
from watersmeet.kernels.homes import ByKey, Homes
from watersmeet.kernels.over.carried import Running
from watersmeet.kernels.over.in_time_step import LAST, ROWS, RUNNING, run
from watersmeet.kernels.over.kernel import Value


@dataclass(frozen=True, slots=True)
class OverInTime:
    """The kernel; ``keys`` are (name, SQL over the input rows, type), ``order`` further terms (name, SQL, descending).

    ``arguments`` are (name, SQL over the input rows) of what values read.  ``framed`` values read rows that are kept,
    ``running`` ones are added up.  ``output`` are the input's columns in the results, (name, SQL); results have those
    of the values that are ``shown`` too.  ``limit`` is the most that the running value of a name may be.  ``where``
    filters the input rows.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    order: tuple[tuple[str, str, bool], ...]
    arguments: tuple[tuple[str, str], ...]
    framed: tuple[Value, ...]
    running: tuple[Running, ...]
    output: tuple[tuple[str, str], ...]
    shown: tuple[str, ...] = ()
    limit: tuple[str, int] | None = None
    where: str | None = None
    rows_before: int = 0
    time_before: int = 0

    @property
    def partition_width(self) -> int | None:
        """None: rows are stored in one partition."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Rows have the columns of the keys; without keys there is one bucket."""
        if not self.keys:
            return None
        return {ROWS: ByKey(0), **StoredRows.homes_of(LAST), **StoredRows.homes_of(RUNNING)}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the rows that wait or that later frames reach back to, and the running values."""
        return {ROWS: shift(frontier, -self.time_before), LAST: NEVER, RUNNING: NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Store new rows; emit those whose times have become final, with their values."""
        return run(self, state, inputs[0], first_rid, frontiers)
