"""Aggregates of groups, updated as rows arrive and are retracted.

Emits      at once, for each group whose result differs after the step: -1 of the result emitted before, +1 of the new
           one; only +1 for a new group, only -1 for a group without rows.  A global aggregate has one row from the
           first step on, even without input.  With ``final``, once for each group that has ended, and nothing before
NULLs      in the keys form one group; NULL arguments are ignored (functions.py)
Late rows  where groups end: by the frontier; otherwise none
Final      once a group has ended: ``end <= F``.  Without an ``end``, never
State      per group that has not ended, running totals, bags of values and the emitted result: of each a log of what
           steps added, and a settled part.  A log with as many rows as the settled part (and 10,000) is merged into it.
           So the size of the state follows the groups (and the values in bags), not their changes
Cost       follows the groups that a step touches: their totals are updated, and their bags are read whole

A retraction repeats the stored result; it is never computed again.

    +1 (a, 5)              ⇒  + (a, count 1, min 5)
    +1 (a, 3)  +1 (b, 1)   ⇒  - (a, 1, 5)  + (a, 2, 3)  + (b, 1, 1)
    -1 (a, 3)  -1 (b, 1)   ⇒  - (a, 2, 3)  + (a, 1, 5)  - (b, 1, 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from watersmeet.errors import LimitError
from watersmeet.kernels.aggregate.final_step import run_final
from watersmeet.kernels.aggregate.parts import Bag, Total
from watersmeet.kernels.aggregate.step import SHOWN, TOTALS, run, settled
from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult, shift
from watersmeet.kernels.homes import ByKey, Homes


@dataclass(frozen=True, slots=True)
class Output:
    """A result column: SQL over a group's totals and figures, and its type."""

    name: str
    sql: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The kernel; ``keys`` are (name, SQL over the input rows, type), and ``where`` filters the input rows.

    With ``changes``, rows carry ``$w``.  With ``always``, there is a result even without rows.  Results have the
    columns of ``keys``, then of ``outputs``.  ``end`` is SQL over the keys: the time from which on no row of a group
    comes.  With ``gives_ids``, results that may be retracted have an ``$id``; with ``once``, none is retracted.  Input
    rows that are ``gathered`` stand for ``$rows`` rows each.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    totals: tuple[Total, ...]
    bags: tuple[Bag, ...]
    outputs: tuple[Output, ...]
    where: str | None = None
    changes: bool = False
    always: bool = False
    end: str | None = field(default=None, repr=False)
    final: bool = field(default=False, repr=False)
    once: bool = field(default=False, repr=False)
    gives_ids: bool = field(default=False, repr=False)
    gathered: bool = field(default=False, repr=False)

    @property
    def emits(self) -> tuple[str | None, bool, bool, bool] | None:
        """How results are emitted, where they are not a changelog for the end of the query."""
        found = (self.end, self.final, self.once, self.gives_ids)
        return found if any(found) else None

    @property
    def partition_width(self) -> int | None:
        """None: rows have no bound in time."""
        return None

    @property
    def output_types(self) -> dict[str, pa.DataType]:
        """The result columns, and their types."""
        return {**{name: type for name, _, type in self.keys}, **{each.name: each.type for each in self.outputs}}

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations of the state, each of which also has a settled part."""
        shown = () if self.final else (SHOWN,)
        return (TOTALS, *(bag.name for bag in self.bags), *shown)

    @property
    def homes(self) -> Homes | None:
        """All relations have the columns of the keys; without keys, a row does not tell which rows it is made of."""
        return {name: ByKey(0) for name in self.live_relations(NEVER)} if self.keys else None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return all relations; where groups end, from the first end that has not come."""
        low = NEVER if self.end is None else shift(frontier, 1)
        return {name: low for relation in self.relations for name in (relation, settled(relation))}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply new and retracted rows; emit the difference that they make, or the results of groups that end."""
        try:
            return (run_final if self.final else run)(self, state, inputs[0], first_rid, frontiers)
        except (duckdb.InvalidInputException, duckdb.OutOfRangeException, duckdb.ConversionException) as error:
            raise LimitError(
                f"an aggregate has left the range of its type: {_first_line(error)}",
                hint="CAST its argument to a type with more digits, on a new checkpoint; nothing was lost",
            ) from None


def _first_line(error: duckdb.Error) -> str:
    """Return DuckDB's message of an error, without the error's class."""
    return str(error).splitlines()[0].split(" Error: ", 1)[-1]
