"""What both kernels of the windowed join share: when two rows match, and what each side brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, JoinKind, Side, quote, shift


@dataclass(frozen=True, slots=True)
class SideColumns:
    """The columns that results need of a side, and those that the condition needs (keys, residual).

    ``time`` is the name under which results carry the side's event time, where they do.
    """

    output: tuple[str, ...]
    condition: tuple[str, ...] = ()
    time: str | None = None

    @property
    def stored(self) -> tuple[str, ...]:
        """What the state must hold of a row, beside its event time."""
        return tuple(name for name in dict.fromkeys((*self.condition, *self.output)) if name != self.time)


@dataclass(frozen=True, slots=True)
class Key:
    """An equality of a column of each side; null-safe: NULL equals NULL."""

    left: str
    right: str
    null_safe: bool = False

    def of(self, side: Side) -> str:
        """The column of one side."""
        return self.left if side is Side.LEFT else self.right


@dataclass(frozen=True, slots=True)
class WindowMatch:
    """A windowed join as it was asked for; input 0 is the left stream, input 1 the right one.

    Rows l and r match where the keys are equal, ``lower <= r.$t - l.$t <= upper`` (None: no such bound), and the
    ``residual`` is true: DuckDB SQL over ``l`` and ``r``, rendered by the planner from a bound expression.  Results
    have the columns of ``left.output`` and then of ``right.output``, which is empty for semi and anti joins.
    ``slack`` is how far the frontier is expected to lie behind the newest rows.
    """

    kind: JoinKind
    left: SideColumns
    right: SideColumns
    keys: tuple[Key, ...]
    lower: int | None
    upper: int | None
    residual: str | None = None
    slack: int = 0

    def columns(self, side: Side) -> SideColumns:
        """The columns of one side."""
        return self.left if side is Side.LEFT else self.right

    @property
    def output(self) -> tuple[str, ...]:
        """The names of the result columns."""
        return (*self.left.output, *self.right.output)

    # -- keys ------------------------------------------------------------------------------------------------------

    def key_columns(self, side: Side) -> list[str]:
        """The columns of one side that must equal the other's."""
        return [key.of(side) for key in self.keys]

    def probes(self, side: Side, rows: pa.Table) -> pa.Table:
        """The keys of rows of a side, by which rows of the other are sought; NULL where it meets nothing is left out.

        They are of the other side's types: the planner sees to it.
        """
        probes = rows.select(self.key_columns(side))
        for number, key in enumerate(self.keys):
            if not key.null_safe and probes.column(number).null_count:
                probes = probes.filter(pc.is_valid(probes.column(number)))
        return probes

    # -- time ------------------------------------------------------------------------------------------------------

    @property
    def partition_width(self) -> int | None:
        """How wide a time partition of the state should be: an eighth of what rows lie apart."""
        if self.lower is None or self.upper is None:
            return None
        return max((self.upper - self.lower + self.slack) // 8, 1)

    def closed_before(self, side: Side, frontier: int) -> int:
        """Rows of a side with ``$t`` below this have all their partners at ``frontier``: their window has closed."""
        if side is Side.LEFT:
            return shift(frontier, None if self.upper is None else -self.upper)
        return shift(frontier, self.lower)

    def partner_times(self, side: Side, low: int, high: int) -> tuple[int, int]:
        """Between which times rows of a side lie that can match rows across with ``low <= $t <= high``."""
        if side is Side.LEFT:  # r - upper <= l <= r - lower
            first = NEVER if self.upper is None else shift(low, -self.upper)
            last = FOREVER if self.lower is None else shift(high, -self.lower)
        else:  # l + lower <= r <= l + upper
            first = NEVER if self.lower is None else shift(low, self.lower)
            last = FOREVER if self.upper is None else shift(high, self.upper)
        return first, last

    # -- SQL -------------------------------------------------------------------------------------------------------

    def condition_sql(self) -> str:
        """The match, over ``l`` and ``r``."""
        terms = [
            f"l.{quote(key.left)} {'IS NOT DISTINCT FROM' if key.null_safe else '='} r.{quote(key.right)}"
            for key in self.keys
        ]
        if self.lower is not None:
            terms.append(f"r.{quote(TIME)} >= l.{quote(TIME)} + {self.lower}")
        if self.upper is not None:
            terms.append(f"r.{quote(TIME)} <= l.{quote(TIME)} + {self.upper}")
        if self.residual is not None:
            terms.append(f"({self.residual})")
        return " AND ".join(terms) or "TRUE"

    def output_sql(self) -> str:
        """The result columns, taken from ``l`` and ``r``."""
        return ", ".join(
            f"{side.alias}.{quote(TIME if name == self.columns(side).time else name)} AS {quote(name)}"
            for side in Side
            for name in self.columns(side).output
        )


def number_rows(rows: pa.Table, first: int) -> pa.Table:
    """Give each row its id."""
    return rows.append_column(RID, pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)))


def time_range(rows: pa.Table) -> tuple[int, int]:
    """Least and greatest event time; an empty range where there is none."""
    times = pc.min_max(rows[TIME])
    if not times["min"].is_valid:
        return FOREVER, NEVER
    return times["min"].as_py(), times["max"].as_py()
