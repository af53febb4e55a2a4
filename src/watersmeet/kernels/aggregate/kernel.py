"""Aggregates of groups over a changelog, kept right as rows come and go.

Comes out  for each group whose results are others after the step: -1 of what was shown of it, and +1 of what holds
           now; only +1 for a group's first rows, only -1 where no row is left.  A global aggregate has one row from
           the first step on, whatever there is
NULLs      in the keys make one group; as an argument they are left out (functions.py)
Late rows  none: times play no part, but for first and last
Takes back what was shown: it is stored as it went out, and never computed again
Cost       follows the groups that rows came to or went from: of these, running totals are brought forward, and bags of
           values are read whole
State      running totals, values and what is shown: of each a log of what each step added, and what was settled
           before.  The log is put together with that once it has as many rows, so state follows the number of groups
           (and of values, where those are kept) and not of the changes they saw

    +1 (a, 5)              ⇒  + (a, count 1, min 5)
    +1 (a, 3)  +1 (b, 1)   ⇒  - (a, 1, 5)  + (a, 2, 3)  + (b, 1, 1)
    -1 (a, 3)  -1 (b, 1)   ⇒  - (a, 2, 3)  + (a, 1, 5)  - (b, 1, 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from watersmeet.errors import LimitError
from watersmeet.kernels.aggregate.parts import Bag, Total
from watersmeet.kernels.aggregate.step import SHOWN, TOTALS, run, settled
from watersmeet.kernels.api import NEVER, StateView, StepFrontiers, StepResult


@dataclass(frozen=True, slots=True)
class Output:
    """A column that comes out: SQL over a group's totals and figures, and its type."""

    name: str
    sql: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The kernel; ``keys`` are (name, SQL over the input rows, type), rows for which not ``where`` are left out.

    With ``changes`` rows carry ``$w``.  ``always`` shows a row though there is nothing.  The output has the columns of
    ``keys`` and then of ``outputs``.
    """

    keys: tuple[tuple[str, str, pa.DataType], ...]
    totals: tuple[Total, ...]
    bags: tuple[Bag, ...]
    outputs: tuple[Output, ...]
    where: str | None = None
    changes: bool = False
    always: bool = False

    @property
    def partition_width(self) -> int | None:
        """Nothing is stored by time."""
        return None

    @property
    def given(self) -> dict[str, pa.DataType]:
        """The columns that come out, and their types."""
        return {**{name: type for name, _, type in self.keys}, **{each.name: each.type for each in self.outputs}}

    @property
    def relations(self) -> tuple[str, ...]:
        """What the state holds, beside what was settled of each."""
        return (TOTALS, *(bag.name for bag in self.bags), SHOWN)

    def live_relations(self, frontier: int) -> dict[str, int]:
        """All that is stored."""
        return {name: NEVER for relation in self.relations for name in (relation, settled(relation))}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply the rows that come and go; give the difference that it makes."""
        try:
            return run(self, state, inputs[0], first_rid)
        except (duckdb.InvalidInputException, duckdb.OutOfRangeException, duckdb.ConversionException) as error:
            raise LimitError(
                f"an aggregate has left its type: {_first_line(error)}",
                hint="CAST its argument to a type with more digits, on a new checkpoint; nothing was lost",
            ) from None


def _first_line(error: duckdb.Error) -> str:
    """What DuckDB says of an error, without its class."""
    return str(error).splitlines()[0].split(" Error: ", 1)[-1]
