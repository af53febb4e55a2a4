"""The windowed join over inputs that are themselves corrected: a join that follows an outer or anti join, as changelog.

Matches, NULLs, window, late rows: as in interval.py.  What differs is that a row may be taken back: a change with
weight -1 names, by its ``$id``, a row that came earlier with +1.  Results are the difference of two joins, before and
after the step.  With kept = stored rows that stay, new = rows that come, gone = rows taken back::

    pairs   = + l_new x (r_kept + r_new)  - l_gone x (r_kept + r_gone)  + l_kept x r_new  - l_kept x r_gone
    partners of a row, before and after: a count that is stored with the row and logged as it changes
    padding = + new rows with no partner  - gone rows that had none  ± kept rows whose count left or came to 0

(The product rule of differences: Budiu et al., DBSP, 2022.)  A count per row, not a look at the other side, decides on
padding: partners may have been forgotten.  A row is kept until no correction of it can still come (``$t < F``) and no
partner can (as in interval.py), whichever is later.

Results carry an ``$id`` of their own, made of the ids of both rows, so that joins can follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import FOREVER, NEVER, JoinKind, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.interval_sql import match_sql, number, output_sql, time_range

_COUNT = "$n"
_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class CorrectedJoin:
    """The kernel; ``weighted`` inputs carry ``$w`` and ``$id``, the others only ever bring rows."""

    join: IntervalJoin
    weighted: frozenset[int]

    @property
    def partition_width(self) -> int | None:
        """As of the join."""
        return self.join.partition_width

    def dead_before(self, input: int, frontier: int) -> int:
        """Rows below this have all their partners, and can no longer be taken back."""
        dead = self.join.dead_before(input, frontier)
        return min(dead, frontier)

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Both sides, each from the time at which a row may still change."""
        return {side: self.dead_before(input, frontier) for input, side in enumerate(_SIDES)}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply rows that come and rows that are taken back."""
        step = _Step(self, state, frontiers, first_rid)
        try:
            return step.run(inputs)
        finally:
            step.close()


@dataclass(slots=True)
class _Step:
    """One step over tables ``{l,r}_{new,gone,kept}`` and the ``pairs`` that come or go."""

    kernel: CorrectedJoin
    state: StateView
    frontiers: StepFrontiers
    first_rid: int
    result: StepResult = field(default_factory=StepResult)

    def run(self, inputs: Mapping[int, pa.Table]) -> StepResult:
        for input, side in enumerate(_SIDES):
            self.prepare(input, side, inputs)
        self.state.connection.execute(f"CREATE TEMP TABLE pairs AS {self.pairs()}")
        kind = self.kernel.join.kind
        changes = []
        if kind.pairs:
            columns = ", ".join(quote(name) for name in self.output_names)
            changes.append(f"SELECT {columns}, w AS {quote(WEIGHT)}, lid || ':' || rid AS {quote(ID)} FROM pairs")
        for side, tracks in zip(_SIDES, (kind.tracks_left, kind.keeps_right), strict=True):
            if tracks:
                changes += self.alone(side, matched=kind is JoinKind.SEMI)
        self.result.changes = self.table(" UNION ALL ".join(changes))
        for input, side in enumerate(_SIDES):
            self.store(input, side)
        return self.result

    def prepare(self, input: int, side: str, inputs: Mapping[int, pa.Table]) -> None:
        """Tables of the rows of a side that come, that go, and that stay and can meet one of the other side's."""
        alias = side[0]
        con = self.state.connection
        rows = inputs[input]
        if input not in self.kernel.weighted:
            rows = rows.append_column(WEIGHT, pa.array([1] * rows.num_rows, pa.int8()))
            rows = rows.append_column(ID, pa.nulls(rows.num_rows, pa.string()))
        first = self.first_rid if input == 0 else self.first_rid + inputs[0].num_rows
        con.register("arriving", number(rows, first))
        con.execute(
            f"CREATE TEMP TABLE {alias}_new AS SELECT *, 0 AS {quote(_COUNT)} FROM arriving WHERE {quote(WEIGHT)} > 0"
        )
        con.execute(f"CREATE TEMP TABLE {alias}_back AS SELECT * FROM arriving WHERE {quote(WEIGHT)} < 0")
        con.unregister("arriving")
        columns = ", ".join(f"s.{quote(name)}" for name in self.stored_columns(input))
        nothing = f"SELECT {columns}, 0 AS {quote(_COUNT)} FROM {alias}_new AS s WHERE FALSE"
        live = self.live(side, *self.reach(inputs[1 - input], rows))
        if live is None:
            con.execute(f"CREATE TEMP TABLE {alias}_gone AS {nothing}")
            con.execute(f"CREATE TEMP TABLE {alias}_kept AS {nothing}")
            return
        con.execute(
            f"CREATE TEMP TABLE {alias}_gone AS SELECT {columns}, s.{quote(_COUNT)} FROM {live} AS s "
            f"WHERE s.{quote(ID)} IN (SELECT {quote(ID)} FROM {alias}_back)"
        )
        con.execute(
            f"CREATE TEMP TABLE {alias}_kept AS SELECT {columns}, s.{quote(_COUNT)} FROM {live} AS s "
            f"WHERE s.{quote(RID)} NOT IN (SELECT {quote(RID)} FROM {alias}_gone)"
        )

    def live(self, side: str, low: int, high: int) -> str | None:
        """SQL of stored rows that have not been taken back, with their partners counted so far."""
        stored = self.state.scan(side, low, high)
        if stored is None:
            return None
        gone = self.state.scan(f"{side}_gone", NEVER, FOREVER)
        where = f" WHERE {quote(RID)} NOT IN (SELECT {quote(RID)} FROM {gone})" if gone else ""
        counts = self.state.scan(f"{side}_counts", NEVER, FOREVER)
        if counts is None:
            return f"(SELECT * FROM {stored}{where})"
        total = f"SELECT {quote(RID)}, sum({quote(_COUNT)}) AS n FROM {counts} GROUP BY ALL"
        return (
            f"(SELECT s.* REPLACE (s.{quote(_COUNT)} + coalesce(c.n, 0) AS {quote(_COUNT)}) "
            f"FROM (SELECT * FROM {stored}{where}) AS s LEFT JOIN ({total}) AS c USING ({quote(RID)}))"
        )

    def reach(self, others: pa.Table, own: pa.Table) -> tuple[int, int]:
        """The event times of stored rows that this step can touch.

        Rows taken back are looked up among them, and partners of those, so the range grows by their times.
        """
        join = self.kernel.join
        if join.lower is None or join.upper is None:
            return NEVER, FOREVER
        low, high = time_range(pa.concat_tables([others.select([TIME]), own.select([TIME])]))
        if low > high:
            return FOREVER, NEVER
        span = max(abs(join.lower), abs(join.upper))
        return low - span, high + span

    def pairs(self) -> str:
        """SQL of pairs that come (w = 1) and go (w = -1), with the row numbers and kinds of both rows."""
        on = match_sql(self.kernel.join)
        columns = output_sql(self.kernel.join, {"left": "l", "right": "r"})
        meetings = [
            ("l_new", "r_kept", 1),
            ("l_new", "r_new", 1),
            ("l_gone", "r_kept", -1),
            ("l_gone", "r_gone", -1),
            ("l_kept", "r_new", 1),
            ("l_kept", "r_gone", -1),
        ]
        ids = f"l.{quote(RID)} AS lid, r.{quote(RID)} AS rid"
        return " UNION ALL ".join(
            f"SELECT {columns}{',' if columns else ''} {ids}, '{left}' AS lkind, '{right}' AS rkind, "
            f"CAST({weight} AS TINYINT) AS w FROM {left} AS l JOIN {right} AS r ON {on}"
            for left, right, weight in meetings
        )

    def alone(self, side: str, *, matched: bool) -> list[str]:
        """SQL of the rows of a side that come out, or are taken back, because they have no partner (or one: semi)."""
        alias = side[0]
        changed = f"SELECT {alias}id AS id, sum(w) AS by FROM pairs WHERE {alias}kind = '{alias}_kept' GROUP BY ALL"
        met = f"SELECT {alias}id FROM pairs WHERE {alias}kind = '{alias}_new'"
        shown_before = f"{quote(_COUNT)} {'> 0' if matched else '= 0'}"
        after = f"{quote(_COUNT)} + c.by"
        shown_after = f"{after} {'> 0' if matched else '= 0'}"
        kept = f"SELECT k.*, c.by FROM {alias}_kept AS k JOIN ({changed}) AS c ON k.{quote(RID)} = c.id"
        untimed = f"SELECT * FROM {alias}_back WHERE {quote(TIME)} IS NULL"
        found = [
            self.row(side, f"SELECT * FROM {alias}_new WHERE {quote(RID)} {'' if matched else 'NOT '}IN ({met})", 1),
            self.row(side, f"SELECT * FROM {alias}_gone WHERE {shown_before}", -1),
            self.row(side, f"{kept} WHERE {shown_before} AND NOT ({shown_after})", -1),
            self.row(side, f"{kept} WHERE NOT ({shown_before}) AND {shown_after}", 1),
        ]
        if not matched:
            # a row without an event time meets nothing and is not stored: its correction needs no look-up
            found.append(self.row(side, untimed, -1))
        return found

    def row(self, side: str, rows: str, weight: int) -> str:
        """SQL of rows of one side alone: beside NULLs of the other's types, or as they are (semi, anti)."""
        alias, other = ("l", "r") if side == "left" else ("r", "l")
        join = self.kernel.join
        columns = output_sql(join, {"left": "l", "right": "r"})
        # a row without a time keeps the id it came with, since its number is not stored
        own = f"'{alias}' || CAST({alias}.{quote(RID)} AS VARCHAR)"
        shown = f"CASE WHEN {alias}.{quote(TIME)} IS NULL THEN {alias}.{quote(ID)} ELSE {own} END"
        padding = f" LEFT JOIN (SELECT * FROM {other}_new WHERE FALSE) AS {other} ON FALSE"
        return (
            f"SELECT {columns}, CAST({weight} AS TINYINT) AS {quote(WEIGHT)}, {shown} AS {quote(ID)} "
            f"FROM ({rows}) AS {alias}{padding}"
        )

    def store(self, input: int, side: str) -> None:
        """Log rows that came, rows that went, and changed counts of rows that stay."""
        alias = side[0]
        dead = self.kernel.dead_before(input, self.frontiers.after)
        columns = ", ".join(f"s.{quote(name)}" for name in self.stored_columns(input))
        counts = f"SELECT {alias}id AS id, sum(w) AS by FROM pairs GROUP BY ALL"
        self.result.store[side] = self.table(
            f"SELECT {columns}, CAST(coalesce(c.by, 0) AS INT) AS {quote(_COUNT)} FROM {alias}_new AS s "
            f"LEFT JOIN ({counts}) AS c ON s.{quote(RID)} = c.id WHERE s.{quote(TIME)} >= {dead}"
        )
        live = f"s.{quote(TIME)} >= {dead}"
        self.result.store[f"{side}_gone"] = self.table(
            f"SELECT s.{quote(RID)}, s.{quote(TIME)} FROM {alias}_gone AS s WHERE {live}"
        )
        self.result.store[f"{side}_counts"] = self.table(
            f"SELECT s.{quote(RID)}, s.{quote(TIME)}, CAST(c.by AS INT) AS {quote(_COUNT)} FROM {alias}_kept AS s "
            f"JOIN ({counts}) AS c ON s.{quote(RID)} = c.id WHERE {live} AND c.by <> 0"
        )
        for relation in (side, f"{side}_gone", f"{side}_counts"):
            self.result.forget[relation] = dead

    @property
    def output_names(self) -> tuple[str, ...]:
        join = self.kernel.join
        return (*join.left.output, *join.right.output)

    def stored_columns(self, input: int) -> tuple[str, ...]:
        side = self.kernel.join.left if input == 0 else self.kernel.join.right
        return tuple(dict.fromkeys((*side.stored, TIME, RID, ID)))

    def table(self, sql: str) -> pa.Table:
        return self.state.connection.sql(sql).to_arrow_table()

    def close(self) -> None:
        con = self.state.connection
        con.unregister("arriving")
        for alias in "lr":
            for kind in ("new", "back", "gone", "kept"):
                con.execute(f"DROP TABLE IF EXISTS {alias}_{kind}")
        con.execute("DROP TABLE IF EXISTS pairs")
