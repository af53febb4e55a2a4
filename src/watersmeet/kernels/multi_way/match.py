"""When rows of several inputs form a result of a multi-way join, when a row is padded, and how long each stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    operator's frontier (None: for ever).  An ``optional`` input is one that a LEFT JOIN adds: results without a row of
    it have NULLs.
    """

    time: str
    keys: tuple[str, ...]
    stored: tuple[str, ...]
    reach: int | None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """``lower <= time of right - time of left <= upper``, for two inputs (None: no such bound).

    Where the left time is NULL, a ``loose`` bound holds, and any other does not.
    """

    left: int
    right: int
    lower: int | None
    upper: int | None
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """A condition over some inputs: DuckDB SQL over their columns, whose names are unique in the query.

    The condition of a LEFT JOIN counts the input that the join adds among them, also where it reads no column of it.
    """

    inputs: tuple[int, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class MultiWayMatch:
    """A row of each input forms a result if the common keys are equal, all bounds hold, and all terms are true.

    A common key that is ``null_safe`` equals NULL where it is NULL.  ``bounds`` are closed: they hold every bound that
    follows from others; with optional inputs, every such bound between the first input and another.  Inputs are joined
    in their order, the first being none that is optional.  Results have the columns ``output``.  ``slack`` is the
    expected distance of the frontier from the newest rows.  Bounds, reaches and slack are in units of ``$t``.
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
        reach = longest(input.reach for input in self.inputs)
        return None if reach is None else max((reach + self.slack) // 8, 1)

    def closed_before(self, input: int, frontier: int) -> int:
        """Return the time below which rows of an input have all their partners at ``frontier``."""
        reach = self.inputs[input].reach
        return shift(frontier, None if reach is None else -reach)

    def partner_times(self, input: int, new: Mapping[int, pa.Table], due: pa.Table | None = None) -> tuple[int, int]:
        """Return the least and greatest time of an input's stored rows that this step may read.

        ``due`` are rows of the first input whose padding may become final, where some inputs are optional.
        """
        if not self.pads:
            return self._partners_of(new, input)
        low, high = self._partners_of(new, 0)
        if input == 0:
            return low, high
        # whether a row has a partner depends on all partners of the first input's row, not of the new one alone
        for rows in (new[0], due):
            least, most = (FOREVER, NEVER) if rows is None else time_range(rows)
            low, high = min(low, least), max(high, most)
        return _shifted(low, high, self.between(0, input))

    def _partners_of(self, new: Mapping[int, pa.Table], input: int) -> tuple[int, int]:
        """The least and greatest time of an input's rows that may form a result with a new row of another."""
        low, high = FOREVER, NEVER
        for other, rows in new.items():
            if other != input and rows.num_rows:
                least, most = _shifted(*time_range(rows), self.between(other, input))
                low, high = min(low, least), max(high, most)
        return low, high

    def between(self, left: int, right: int) -> Bound:
        """Return what is known of the time of ``right`` minus that of ``left``."""
        for bound in self.bounds:
            if (bound.left, bound.right) == (left, right):
                return bound
            if (bound.left, bound.right) == (right, left):
                lower, upper = bound.lower, bound.upper
                return Bound(left, right, None if upper is None else -upper, None if lower is None else -lower)
        return Bound(left, right, None, None)

    def share_near(self, input: int, others: Iterable[int]) -> float:
        """Return the share of an input's stored rows that its window around a row of each of the others holds.

        Stored rows are taken to be spread evenly over the time that they stay.
        """
        reach = self.inputs[input].reach
        if reach is None:
            return 1.0
        bounds = [self.between(other, input) for other in others if other != input]
        widths = [b.upper - b.lower + 1 for b in bounds if b.lower is not None and b.upper is not None]
        return max(min([1.0, *(width / (max(reach, 0) + self.slack + 1) for width in widths)]), 0.0)

    # -- padding ---------------------------------------------------------------------------------------------------

    @property
    def pads(self) -> bool:
        """Whether a result may lack rows of some inputs."""
        return any(input.optional for input in self.inputs)

    def due_times(self, input: int, before: int, after: int) -> tuple[int, int]:
        """Return the times of the first input's rows that can have no more partner of an input from this step on."""
        return self._padded_before(input, before), self._padded_before(input, after) - 1

    def _padded_before(self, input: int, frontier: int) -> int:
        upper = self.between(0, input).upper
        return shift(frontier, None if upper is None else -upper)

    def is_final_sql(self, input: int, frontier: int) -> str:
        """Return whether no row of an optional input can still be added to rows of those before it."""
        first = self.inputs[0]
        conditions = [f"{quote(first.time)} < {self._padded_before(input, frontier)}"]
        lacking = {bound.left for bound in self.bounds if bound.right == input and not bound.loose}
        conditions += [f"{quote(self.inputs[i].time)} IS NULL" for i in lacking if self.inputs[i].optional]
        for key, null_safe in zip(first.keys, self.null_safe, strict=True):
            if not null_safe:
                conditions.append(f"{quote(key)} IS NULL")
        return f"({' OR '.join(conditions)})"

    # -- keys ------------------------------------------------------------------------------------------------------

    def probes(self, input: int, new: Mapping[int, pa.Table], due: pa.Table | None = None) -> pa.Table:
        """Return the common keys of all new rows of other inputs, and of rows that are due, to look up rows of this."""
        own = self.inputs[input].keys
        others = {other: rows for other, rows in new.items() if other != input}
        found = [rows.select(list(self.inputs[other].keys)) for other, rows in others.items()]
        if due is not None and input > 0:
            found.append(due.select(list(self.inputs[0].keys)))
        keys = pa.concat_tables(rows.rename_columns(list(own)) for rows in found)
        for number, null_safe in enumerate(self.null_safe):
            if not null_safe and keys.column(number).null_count:
                keys = keys.filter(pc.is_valid(keys.column(number)))
        return keys

    def has_key_sql(self, input: int) -> str:
        """Return whether a row can match any, by its keys."""
        keys = zip(self.inputs[input].keys, self.null_safe, strict=True)
        return " AND ".join(f"{quote(key)} IS NOT NULL" for key, null_safe in keys if not null_safe) or "TRUE"

    # -- SQL -------------------------------------------------------------------------------------------------------

    def rows_sql(self, input: int, relation: str) -> str:
        """Return SQL for an input's rows under the names that conditions use."""
        columns = [quote(name) for name in self.inputs[input].stored]
        return f"SELECT {', '.join([*columns, f'{quote(TIME)} AS {quote(self.inputs[input].time)}'])} FROM {relation}"

    def condition_sql(self, joined: Sequence[int], input: int) -> str:
        """Return what a row of ``input`` must meet to be added to rows of the inputs that are ``joined`` already."""
        conditions = [
            f"{quote(left)} {'IS NOT DISTINCT FROM' if null_safe else '='} {quote(right)}"
            for other in joined[:1]
            for left, right, null_safe in zip(
                self.inputs[other].keys, self.inputs[input].keys, self.null_safe, strict=True
            )
        ]
        together = {*joined, input}
        conditions += [
            self._bound_sql(bound)
            for bound in self.bounds
            if input in (bound.left, bound.right) and together.issuperset((bound.left, bound.right))
        ]
        conditions += [term.sql for term in self.terms if input in term.inputs and together.issuperset(term.inputs)]
        return " AND ".join(conditions)

    def conditions_over(self, inputs: Sequence[int]) -> int:
        """Return how many conditions beside keys and bounds can be tested on rows of these inputs."""
        return sum(set(inputs).issuperset(term.inputs) for term in self.terms)

    def _bound_sql(self, bound: Bound) -> str:
        left, right = (quote(self.inputs[i].time) for i in (bound.left, bound.right))
        near = [f"{right} >= {left} + {bound.lower}"] if bound.lower is not None else []
        near += [f"{right} <= {left} + {bound.upper}"] if bound.upper is not None else []
        return f"({left} IS NULL OR ({' AND '.join(near)}))" if bound.loose else " AND ".join(near)

    @property
    def output_sql(self) -> str:
        """The result columns."""
        return ", ".join(quote(name) for name in self.output)


def longest(spans: Iterable[int | None]) -> int | None:
    """Return the longest of some spans of time; None if one is without end."""
    found = list(spans)
    known = [span for span in found if span is not None]
    return max(known) if len(known) == len(found) else None


def _shifted(low: int, high: int, bound: Bound) -> tuple[int, int]:
    """Return the least and greatest time that a bound allows for partners of rows at ``low`` to ``high``."""
    if low > high:
        return FOREVER, NEVER
    return (
        NEVER if bound.lower is None else shift(low, bound.lower),
        FOREVER if bound.upper is None else shift(high, bound.upper),
    )
