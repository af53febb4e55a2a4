"""The match of a windowed join, and the keys and columns that all joins share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, JoinKind, Mark, Side, StateView, StepFrontiers, quote, shift

#: Fields of matches that are SQL, or tuples of it.
_SQL_FIELDS = ("residual", "alternative", "expiries")


@dataclass(frozen=True, slots=True)
class SideColumns:
    """A side's columns in results (``output``), and those in conditions: keys and residual.

    ``time`` names the side's event time in results (None: they do not have it).
    """

    output: tuple[str, ...]
    condition: tuple[str, ...] = ()
    time: str | None = None

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns of a row in the state, beside its event time."""
        return tuple(name for name in dict.fromkeys((*self.condition, *self.output)) if name != self.time)


@dataclass(frozen=True, slots=True)
class Key:
    """An equality of a left and a right column; if ``null_safe``, NULL equals NULL."""

    left: str
    right: str
    null_safe: bool = False

    def of(self, side: Side) -> str:
        """Return the column of one side."""
        return self.left if side is Side.LEFT else self.right


def clamped(time: str) -> str:
    """Return SQL that keeps a HUGEINT between ``NEVER`` and ``FOREVER``, as BIGINT; NULL stays."""
    first, last = NEVER + 1, FOREVER - 1  # at the end of input the frontier has passed every time
    return f"CAST(CASE WHEN {time} > {last} THEN {last} WHEN {time} < {first} THEN {first} ELSE {time} END AS BIGINT)"


@dataclass(frozen=True, slots=True)
class WindowMatch:
    """A windowed join; input 0 is the left stream, input 1 the right one.

    Rows l and r match if ``lower <= r.$t - l.$t <= upper`` (None: no such bound), the keys are equal, and the
    ``residual`` is true: DuckDB SQL over ``l`` and ``r``, which the planner renders from a bound expression.  Results
    have the columns of ``left.output``, then of ``right.output``, which is empty for semi and anti joins.
    ``slack`` is the expected distance of the frontier from the newest rows.  Bounds and slack are in units of ``$t``.
    A mark join has a ``mark``, the last column of its results.  What it stores does not depend on it, but what the next
    join stores does, which has its name.
    """

    kind: JoinKind
    left: SideColumns
    right: SideColumns
    keys: tuple[Key, ...]
    lower: int | None
    upper: int | None
    residual: str | None = None
    slack: int = 0
    mark: Mark | None = field(default=None, repr=False)

    def columns(self, side: Side) -> SideColumns:
        """Return the columns of one side."""
        return self.left if side is Side.LEFT else self.right

    @property
    def passing(self) -> str | None:
        """SQL that tests whether a left row ``l`` is a result whatever its partners; None: no row is."""
        return None

    @property
    def numbered(self) -> tuple[Side, Side]:
        """The order in which new rows of the sides get their ids."""
        return Side.LEFT, Side.RIGHT

    @property
    def output(self) -> tuple[str, ...]:
        """The names of the result columns."""
        return (*self.left.output, *self.right.output, *([] if self.mark is None else [self.mark.name]))

    @property
    def passed_on(self) -> tuple[str, ...]:
        """The result columns of which no step reads the values."""
        read = {
            *self.left.condition,
            *self.right.condition,
            *self.key_columns(Side.LEFT),
            *self.key_columns(Side.RIGHT),
        }
        texts = " ".join(str(value) for name, value in fields_of(self).items() if name in _SQL_FIELDS)
        output = (*self.left.output, *self.right.output)
        return tuple(name for name in output if name not in read and quote(name) not in texts)

    # -- keys ------------------------------------------------------------------------------------------------------

    def key_columns(self, side: Side) -> list[str]:
        """Return the key columns of one side."""
        return [key.of(side) for key in self.keys]

    def probes(self, side: Side, rows: pa.Table) -> pa.Table:
        """Return the keys of a side's rows, to look up rows of the other side; without NULLs that match nothing.

        The planner makes sure that both sides' key columns have equal types.
        """
        probes = rows.select(self.key_columns(side))
        for number, key in enumerate(self.keys):
            if not key.null_safe and probes.column(number).null_count:
                probes = probes.filter(pc.is_valid(probes.column(number)))
        return probes

    # -- time ------------------------------------------------------------------------------------------------------

    def time_column(self, side: Side) -> str:
        """Return the column that has the event time of a side's rows."""
        del side
        return TIME

    def arriving(self, side: Side, rows: pa.Table, state: StateView) -> pa.Table:
        """Return new rows of a side as they are joined and stored."""
        del side, state
        return rows

    @property
    def partition_width(self) -> int | None:
        """The width of a time partition of the state: an eighth of the time that rows stay.

        With bounds of ±10 minutes and 4 minutes of slack, (10 + 10 + 4) / 8 = 3 minutes.
        """
        if self.lower is None or self.upper is None:
            return None
        return max((self.upper - self.lower + self.slack) // 8, 1)

    def closed_before(self, side: Side, frontier: int) -> int:
        """Return the time below which rows of a side have all their partners at ``frontier``."""
        if side is Side.LEFT:
            return shift(frontier, None if self.upper is None else -self.upper)
        return shift(frontier, self.lower)

    def due_times(self, side: Side, frontiers: StepFrontiers) -> tuple[int, int]:
        """Return the least and greatest time of the rows of a side that become final in this step."""
        return self.closed_before(side, frontiers.before), self.closed_before(side, frontiers.after) - 1

    def gone_before(self, side: Side, frontier: int) -> int:
        """Return the time below which rows of a side find no partner, though they might have had one."""
        del side, frontier
        return NEVER

    def counter_of_expired(self, side: Side, frontier: int) -> str | None:
        """Return the counter of rows of a side that leave before they have all their partners (None: none do)."""
        del side, frontier
        return None

    def partner_times(self, side: Side, others: pa.Table) -> tuple[int, int]:
        """Return the least and greatest ``$t`` of a side's rows that may match some rows of the other side."""
        return self.times_between(side, *time_range(others))

    def times_between(self, side: Side, low: int, high: int) -> tuple[int, int]:
        """Return the least and greatest time that bounds allow a side, if the other has times ``low`` to ``high``."""
        if side is Side.LEFT:  # r - upper <= l <= r - lower
            first = NEVER if self.upper is None else shift(low, -self.upper)
            last = FOREVER if self.lower is None else shift(high, -self.lower)
        else:  # l + lower <= r <= l + upper
            first = NEVER if self.lower is None else shift(low, self.lower)
            last = FOREVER if self.upper is None else shift(high, self.upper)
        return first, last

    # -- SQL -------------------------------------------------------------------------------------------------------

    def condition_sql(self) -> str:
        """Return the match condition over ``l`` and ``r``."""
        terms = [
            f"l.{quote(key.left)} {'IS NOT DISTINCT FROM' if key.null_safe else '='} r.{quote(key.right)}"
            for key in self.keys
        ]
        left, right = (f"{side.alias}.{quote(self.time_column(side))}" for side in Side)
        if self.lower is not None:
            terms.append(f"{right} >= {left} + {self.lower}")
        if self.upper is not None:
            terms.append(f"{right} <= {left} + {self.upper}")
        if self.residual is not None:
            terms.append(f"({self.residual})")
        return " AND ".join(terms) or "TRUE"

    def conditions_sql(self) -> list[str]:
        """Return the match condition as conditions that exclude each other.

        Without keys, DuckDB would compare each row with each.  All partners of a row are in two spans of time that are
        as long as the window: so rows are joined by the span in which the partners begin, and by that where they end.
        """
        whole = self.condition_sql()
        if self.keys or self.lower is None or self.upper is None:
            return [whole]
        left, right = (f"{side.alias}.{quote(self.time_column(side))}" for side in Side)
        length = self.upper - self.lower + 1
        first, last = (f"({left} + {bound}) // {length}" for bound in (self.lower, self.upper))
        return [
            f"{right} // {length} = {first} AND {whole}",
            f"{right} // {length} = {last} AND {first} <> {last} AND {whole}",
        ]

    def output_sql(self, *, matched: bool = False) -> str:
        """Return the result columns, selected from ``l`` and ``r``; ``matched``: a left row alone has a partner."""
        columns = [
            f"{side.alias}.{quote(TIME if name == self.columns(side).time else name)} AS {quote(name)}"
            for side in Side
            for name in self.columns(side).output
        ]
        if self.mark is not None:
            columns.append(f"{matched is not self.mark.negated} AS {quote(self.mark.name)}")
        return ", ".join(columns)

    @property
    def passes_as_matched(self) -> bool:
        """Whether a left row that is a result whatever its partners has the mark of one with a partner."""
        return self.mark is not None and not self.mark.negated


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOrAlternative(WindowMatch):
    """A semi or anti join that may have an ``alternative``: DuckDB SQL over ``l``.

    Left rows that meet it are results whatever their partners, and match nothing.  A class of its own, since a field
    more would change what is noted of every join in checkpoints.
    """

    alternative: str | None

    @property
    def passing(self) -> str | None:
        """The alternative; where it is NULL, a row does not pass."""
        return None if self.alternative is None else f"coalesce({self.alternative}, FALSE)"


def fields_of(match: WindowMatch) -> dict[str, Any]:
    """Return the fields of a match by name, to build one of a subclass."""
    return {each.name: getattr(match, each.name) for each in fields(match)}


def marks_of(side: Side) -> str:
    """Return the relation with the marks of a side's stored rows: the ids of those that have had a partner."""
    return f"{side.value}_matched"


def number_rows(rows: pa.Table, first: int) -> pa.Table:
    """Append row ids, from ``first`` on."""
    return rows.append_column(RID, pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)))


def time_range(rows: pa.Table, column: str = TIME) -> tuple[int, int]:
    """Return the least and greatest event time; (FOREVER, NEVER) if there is none."""
    times = pc.min_max(rows[column])
    if not times["min"].is_valid:
        return FOREVER, NEVER
    return times["min"].as_py(), times["max"].as_py()
