"""When rows of several inputs form a result of a multi-way join, and how long each of them stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import TIME
from watersmeet.kernels.api import FOREVER, NEVER, quote, shift
from watersmeet.kernels.match import time_range


@dataclass(frozen=True, slots=True)
class JoinedInput:
    """One input: its common ``keys``, and the columns ``stored`` beside its event time.

    Results and conditions know its event time as ``time``.  A row stays while its ``$t >= F - reach``, F being the
    operator's frontier (None: for ever).
    """

    time: str
    keys: tuple[str, ...]
    stored: tuple[str, ...]
    reach: int | None


@dataclass(frozen=True, slots=True)
class Bound:
    """``lower <= time of right - time of left <= upper``, for two inputs (None: no such bound)."""

    left: int
    right: int
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class Term:
    """A condition over some inputs: DuckDB SQL over their columns, whose names are unique in the query."""

    inputs: tuple[int, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class MultiWayMatch:
    """A row of each input forms a result if the common keys are equal, all bounds hold, and all terms are true.

    A common key that is ``null_safe`` equals NULL where it is NULL.  ``bounds`` are closed: they hold every bound that
    follows from others.  Results have the columns ``output``.  ``slack`` is the expected distance of the frontier from
    the newest rows.  Bounds, reaches and slack are in units of ``$t``.
    """

    inputs: tuple[JoinedInput, ...]
    null_safe: tuple[bool, ...]
    bounds: tuple[Bound, ...]
    terms: tuple[Term, ...]
    output: tuple[str, ...]
    slack: int = 0

    # -- time ------------------------------------------------------------------------------------------------------

    @property
    def partition_width(self) -> int | None:
        """The width of a time partition of the state: an eighth of the longest time that rows stay."""
        reaches = [input.reach for input in self.inputs]
        known = [reach for reach in reaches if reach is not None]
        return max((max(known) + self.slack) // 8, 1) if len(known) == len(reaches) else None

    def closed_before(self, input: int, frontier: int) -> int:
        """Return the time below which rows of an input have all their partners at ``frontier``."""
        reach = self.inputs[input].reach
        return shift(frontier, None if reach is None else -reach)

    def partner_times(self, input: int, new: Mapping[int, pa.Table]) -> tuple[int, int]:
        """Return the least and greatest time of an input's rows that may form a result with a new row of another."""
        low, high = FOREVER, NEVER
        for other, rows in new.items():
            if other == input or not rows.num_rows:
                continue
            bound = self._between(other, input)
            least, most = time_range(rows)
            low = min(low, shift(least, bound.lower) if bound.lower is not None else NEVER)
            high = max(high, shift(most, bound.upper) if bound.upper is not None else FOREVER)
        return low, high

    def _between(self, left: int, right: int) -> Bound:
        for bound in self.bounds:
            if (bound.left, bound.right) == (left, right):
                return bound
            if (bound.left, bound.right) == (right, left):
                lower, upper = bound.lower, bound.upper
                return Bound(left, right, None if upper is None else -upper, None if lower is None else -lower)
        return Bound(left, right, None, None)

    # -- keys ------------------------------------------------------------------------------------------------------

    def probes(self, input: int, new: Mapping[int, pa.Table]) -> pa.Table:
        """Return the common keys of all new rows of other inputs, to look up rows of this one."""
        own = self.inputs[input].keys
        found = pa.concat_tables(
            rows.select(list(self.inputs[other].keys)).rename_columns(list(own))
            for other, rows in new.items()
            if other != input
        )
        for number, null_safe in enumerate(self.null_safe):
            if not null_safe and found.column(number).null_count:
                found = found.filter(pc.is_valid(found.column(number)))
        return found

    # -- SQL -------------------------------------------------------------------------------------------------------

    def rows_sql(self, input: int, relation: str) -> str:
        """Return SQL for an input's rows under the names that conditions use."""
        columns = [quote(name) for name in self.inputs[input].stored]
        return f"SELECT {', '.join([*columns, f'{quote(TIME)} AS {quote(self.inputs[input].time)}'])} FROM {relation}"

    def condition_sql(self, joined: Sequence[int], input: int) -> str:
        """Return what a row of ``input`` must meet to be added to rows of the inputs that are ``joined`` already."""
        first = self.inputs[joined[0]]
        conditions = [
            f"{quote(left)} {'IS NOT DISTINCT FROM' if null_safe else '='} {quote(right)}"
            for left, right, null_safe in zip(first.keys, self.inputs[input].keys, self.null_safe, strict=True)
        ]
        for other in joined:
            bound = self._between(other, input)
            here, there = quote(self.inputs[input].time), quote(self.inputs[other].time)
            if bound.lower is not None:
                conditions.append(f"{here} >= {there} + {bound.lower}")
            if bound.upper is not None:
                conditions.append(f"{here} <= {there} + {bound.upper}")
        together = {*joined, input}
        conditions += [term.sql for term in self.terms if input in term.inputs and together.issuperset(term.inputs)]
        return " AND ".join(conditions)

    @property
    def output_sql(self) -> str:
        """The result columns."""
        return ", ".join(quote(name) for name in self.output)
