"""The windowed join over inputs that are changelogs: a join that follows an outer or anti join under EMIT CHANGELOG.

Matches, NULLs, window, late rows: as in interval.py.  What differs is that a row may be retracted: a change with
weight -1 names, by its ``$id``, a row that came earlier with +1.  Results are the difference of two joins, before and
after the step.  With kept = stored rows that stay, new = rows that come, retracted = stored rows that go::

    pairs   = + l_new x (r_kept + r_new)              + l_kept x r_new
              - l_retracted x (r_kept + r_retracted)  - l_kept x r_retracted
    partners of a row, before and after: a count that is stored with the row and logged as it changes
    padding = + new rows with no partner  - retracted rows that had none  ± kept rows whose count left or came to 0

(The product rule of differences: Budiu et al., DBSP, 2022.)  A count per row, not a look at the other side, decides on
padding: partners may have been forgotten.  A row is kept until no retraction of it can still come (``$t < F``) and no
partner can (as in interval.py), whichever is later.

Results carry an ``$id`` of their own, made of the ids of both rows, so that joins can follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import FOREVER, NEVER, JoinKind, Side, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.match import WindowMatch, number_rows, time_range

_COUNT = "$n"


@dataclass(frozen=True, slots=True)
class ChangelogJoin:
    """The kernel; ``changelogs`` are the sides whose rows carry ``$w`` and ``$id``, the other only ever brings rows."""

    match: WindowMatch
    changelogs: tuple[Side, ...]

    @property
    def partition_width(self) -> int | None:
        """That of the window."""
        return self.match.partition_width

    def settled_before(self, side: Side, frontier: int) -> int:
        """Rows of a side below this have all their partners, and can no longer be retracted."""
        return min(self.match.closed_before(side, frontier), frontier)

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Both sides, each from the time at which a row may still change."""
        return {side.value: self.settled_before(side, frontier) for side in Side}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply rows that come and rows that are retracted."""
        step = _Step(self, state, frontiers, first_rid)
        try:
            return step.run(inputs)
        finally:
            step.close()


@dataclass(slots=True)
class _Step:
    """One step over tables ``{l,r}_{new,retractions,retracted,kept}`` and the ``pairs`` that come or go.

    Retractions are changes that arrive, retracted rows are the stored ones that they name.
    """

    kernel: ChangelogJoin
    state: StateView
    frontiers: StepFrontiers
    first_rid: int
    result: StepResult = field(default_factory=StepResult)

    def run(self, inputs: Mapping[int, pa.Table]) -> StepResult:
        for side in Side:
            self.prepare(side, inputs)
        self.state.connection.execute(f"CREATE TEMP TABLE pairs AS {self.pairs()}")
        kind = self.match.kind
        changes = []
        if kind.pairs:
            columns = ", ".join(quote(name) for name in self.match.output)
            changes.append(f"SELECT {columns}, w AS {quote(WEIGHT)}, lid || ':' || rid AS {quote(ID)} FROM pairs")
        for side in Side:
            if kind.tracks(side):
                changes += self.alone(side, matched=kind is JoinKind.SEMI)
        self.result.changes = self.table(" UNION ALL ".join(changes))
        for side in Side:
            self.store(side)
        return self.result

    @property
    def match(self) -> WindowMatch:
        return self.kernel.match

    def prepare(self, side: Side, inputs: Mapping[int, pa.Table]) -> None:
        """Tables of the rows of a side that come, that go, and that stay and can meet one of the other side's."""
        alias = side.alias
        con = self.state.connection
        rows = inputs[side.index]
        if side not in self.kernel.changelogs:
            rows = rows.append_column(WEIGHT, pa.array([1] * rows.num_rows, pa.int8()))
            rows = rows.append_column(ID, pa.nulls(rows.num_rows, pa.string()))
        first = self.first_rid if side is Side.LEFT else self.first_rid + inputs[Side.LEFT.index].num_rows
        con.register("arriving", number_rows(rows, first))
        con.execute(
            f"CREATE TEMP TABLE {alias}_new AS SELECT *, 0 AS {quote(_COUNT)} FROM arriving WHERE {quote(WEIGHT)} > 0"
        )
        con.execute(f"CREATE TEMP TABLE {alias}_retractions AS SELECT * FROM arriving WHERE {quote(WEIGHT)} < 0")
        con.unregister("arriving")
        columns = ", ".join(f"s.{quote(name)}" for name in self.stored_columns(side))
        nothing = f"SELECT {columns}, 0 AS {quote(_COUNT)} FROM {alias}_new AS s WHERE FALSE"
        live = self.live(side, *self.reach(inputs[side.other.index], rows))
        if live is None:
            con.execute(f"CREATE TEMP TABLE {alias}_retracted AS {nothing}")
            con.execute(f"CREATE TEMP TABLE {alias}_kept AS {nothing}")
            return
        con.execute(
            f"CREATE TEMP TABLE {alias}_retracted AS SELECT {columns}, s.{quote(_COUNT)} FROM {live} AS s "
            f"WHERE s.{quote(ID)} IN (SELECT {quote(ID)} FROM {alias}_retractions)"
        )
        con.execute(
            f"CREATE TEMP TABLE {alias}_kept AS SELECT {columns}, s.{quote(_COUNT)} FROM {live} AS s "
            f"WHERE s.{quote(RID)} NOT IN (SELECT {quote(RID)} FROM {alias}_retracted)"
        )

    def live(self, side: Side, low: int, high: int) -> str | None:
        """SQL of stored rows that have not been retracted, with their partners counted so far."""
        stored = self.state.scan(side.value, low, high)
        if stored is None:
            return None
        retracted = self.state.scan(_retracted(side), NEVER, FOREVER)
        where = f" WHERE {quote(RID)} NOT IN (SELECT {quote(RID)} FROM {retracted})" if retracted else ""
        counts = self.state.scan(_counts(side), NEVER, FOREVER)
        if counts is None:
            return f"(SELECT * FROM {stored}{where})"
        total = f"SELECT {quote(RID)}, sum({quote(_COUNT)}) AS n FROM {counts} GROUP BY ALL"
        return (
            f"(SELECT s.* REPLACE (s.{quote(_COUNT)} + coalesce(c.n, 0) AS {quote(_COUNT)}) "
            f"FROM (SELECT * FROM {stored}{where}) AS s LEFT JOIN ({total}) AS c USING ({quote(RID)}))"
        )

    def reach(self, others: pa.Table, own: pa.Table) -> tuple[int, int]:
        """The event times of stored rows that this step can touch.

        Retracted rows are looked up among them, and partners of those, so the range grows by their times.
        """
        lower, upper = self.match.lower, self.match.upper
        if lower is None or upper is None:
            return NEVER, FOREVER
        low, high = time_range(pa.concat_tables([others.select([TIME]), own.select([TIME])]))
        if low > high:
            return FOREVER, NEVER
        span = max(abs(lower), abs(upper))
        return low - span, high + span

    def pairs(self) -> str:
        """SQL of pairs that come (w = 1) and go (w = -1), with the row numbers and kinds of both rows."""
        on = self.match.condition_sql()
        columns = self.match.output_sql()
        meetings = [
            ("l_new", "r_kept", 1),
            ("l_new", "r_new", 1),
            ("l_retracted", "r_kept", -1),
            ("l_retracted", "r_retracted", -1),
            ("l_kept", "r_new", 1),
            ("l_kept", "r_retracted", -1),
        ]
        ids = f"l.{quote(RID)} AS lid, r.{quote(RID)} AS rid"
        return " UNION ALL ".join(
            f"SELECT {columns}{',' if columns else ''} {ids}, '{left}' AS lkind, '{right}' AS rkind, "
            f"CAST({weight} AS TINYINT) AS w FROM {left} AS l JOIN {right} AS r ON {on}"
            for left, right, weight in meetings
        )

    def alone(self, side: Side, *, matched: bool) -> list[str]:
        """SQL of the rows of a side that come out, or are retracted, because they have no partner (or one: semi)."""
        alias = side.alias
        changed = f"SELECT {alias}id AS id, sum(w) AS by FROM pairs WHERE {alias}kind = '{alias}_kept' GROUP BY ALL"
        met = f"SELECT {alias}id FROM pairs WHERE {alias}kind = '{alias}_new'"
        shown_before = f"{quote(_COUNT)} {'> 0' if matched else '= 0'}"
        after = f"{quote(_COUNT)} + c.by"
        shown_after = f"{after} {'> 0' if matched else '= 0'}"
        kept = f"SELECT k.*, c.by FROM {alias}_kept AS k JOIN ({changed}) AS c ON k.{quote(RID)} = c.id"
        untimed = f"SELECT * FROM {alias}_retractions WHERE {quote(TIME)} IS NULL"
        found = [
            self.row(side, f"SELECT * FROM {alias}_new WHERE {quote(RID)} {'' if matched else 'NOT '}IN ({met})", 1),
            self.row(side, f"SELECT * FROM {alias}_retracted WHERE {shown_before}", -1),
            self.row(side, f"{kept} WHERE {shown_before} AND NOT ({shown_after})", -1),
            self.row(side, f"{kept} WHERE NOT ({shown_before}) AND {shown_after}", 1),
        ]
        if not matched:
            # a row without an event time meets nothing and is not stored: its retraction needs no look-up
            found.append(self.row(side, untimed, -1))
        return found

    def row(self, side: Side, rows: str, weight: int) -> str:
        """SQL of rows of one side alone: beside NULLs of the other's types, or as they are (semi, anti)."""
        alias, other = side.alias, side.other.alias
        # a row without a time keeps the id it came with, since its number is not stored; marked, for its sender's ids
        # and those given here are of one form
        own = f"'{alias}' || CAST({alias}.{quote(RID)} AS VARCHAR)"
        shown = f"CASE WHEN {alias}.{quote(TIME)} IS NULL THEN '{alias}n' || {alias}.{quote(ID)} ELSE {own} END"
        padding = f" LEFT JOIN (SELECT * FROM {other}_new WHERE FALSE) AS {other} ON FALSE"
        return (
            f"SELECT {self.match.output_sql()}, CAST({weight} AS TINYINT) AS {quote(WEIGHT)}, {shown} AS {quote(ID)} "
            f"FROM ({rows}) AS {alias}{padding}"
        )

    def store(self, side: Side) -> None:
        """Log rows that came, rows that went, and changed counts of rows that stay."""
        alias = side.alias
        settled = self.kernel.settled_before(side, self.frontiers.after)
        columns = ", ".join(f"s.{quote(name)}" for name in self.stored_columns(side))
        counts = f"SELECT {alias}id AS id, sum(w) AS by FROM pairs GROUP BY ALL"
        live = f"s.{quote(TIME)} >= {settled}"
        self.result.store[side.value] = self.table(
            f"SELECT {columns}, CAST(coalesce(c.by, 0) AS INT) AS {quote(_COUNT)} FROM {alias}_new AS s "
            f"LEFT JOIN ({counts}) AS c ON s.{quote(RID)} = c.id WHERE {live}"
        )
        self.result.store[_retracted(side)] = self.table(
            f"SELECT s.{quote(RID)}, s.{quote(TIME)} FROM {alias}_retracted AS s WHERE {live}"
        )
        self.result.store[_counts(side)] = self.table(
            f"SELECT s.{quote(RID)}, s.{quote(TIME)}, CAST(c.by AS INT) AS {quote(_COUNT)} FROM {alias}_kept AS s "
            f"JOIN ({counts}) AS c ON s.{quote(RID)} = c.id WHERE {live} AND c.by <> 0"
        )
        for relation in (side.value, _retracted(side), _counts(side)):
            self.result.forget[relation] = settled

    def stored_columns(self, side: Side) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.match.columns(side).stored, TIME, RID, ID)))

    def table(self, sql: str) -> pa.Table:
        return self.state.connection.sql(sql).to_arrow_table()

    def close(self) -> None:
        con = self.state.connection
        con.unregister("arriving")
        for side in Side:
            for kind in ("new", "retractions", "retracted", "kept"):
                con.execute(f"DROP TABLE IF EXISTS {side.alias}_{kind}")
        con.execute("DROP TABLE IF EXISTS pairs")


def _retracted(side: Side) -> str:
    """The relation that names stored rows of a side which have been retracted."""
    return f"{side.value}_retracted"


def _counts(side: Side) -> str:
    """The relation of changes to how many partners stored rows of a side have."""
    return f"{side.value}_counts"
