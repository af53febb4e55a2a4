"""One step of the interval join, as DuckDB SQL over new and stored rows (what it computes stands in interval.py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.columns import ID, MATCHED, RID, TIME, WEIGHT
from watersmeet.kernels.api import (
    FOREVER,
    NEVER,
    EmitMode,
    JoinKind,
    StateView,
    StepFrontiers,
    StepResult,
    quote,
    shift,
)
from watersmeet.kernels.interval_sql import match_sql, number, output_sql, time_range

if TYPE_CHECKING:
    from watersmeet.kernels.interval import IntervalJoin


def run(
    join: IntervalJoin,
    state: StateView,
    left: pa.Table,
    right: pa.Table,
    frontiers: StepFrontiers,
    first_rid: int,
) -> StepResult:
    """Join the new rows of both sides with each other and with what is stored; none of them is late."""
    left = number(left, first_rid)
    right = number(right, first_rid + left.num_rows)
    step = _Step(join, state, frontiers, first_rid, left, right)
    try:
        return step.run_pairs() if join.kind.pairs else step.run_semi_anti()
    finally:
        step.close()


@dataclass(slots=True)
class _Step:
    """One step over the relations ``l_new``, ``r_new`` and the stored rows that can meet them."""

    join: IntervalJoin
    state: StateView
    frontiers: StepFrontiers
    first_rid: int
    left: pa.Table
    right: pa.Table
    result: StepResult = field(default_factory=StepResult)

    def __post_init__(self) -> None:
        self.state.connection.register("l_new", self.left)
        self.state.connection.register("r_new", self.right)
        self.result.forget = {
            **self.join.live_relations(self.frontiers.after),
            "left_matched": self.dead("left"),
            "right_matched": self.dead("right"),
        }

    def close(self) -> None:
        con = self.state.connection
        con.execute("DROP TABLE IF EXISTS pairs")
        con.unregister("l_new")
        con.unregister("r_new")

    # -- joins that give pairs: inner, left, right, full ----------------------------------------------------------

    def run_pairs(self) -> StepResult:
        kind = self.join.kind
        tracked = [side for side, tracks in (("left", kind.keeps_left), ("right", kind.keeps_right)) if tracks]
        if not tracked:
            self.result.changes = self.table(self.pairs(ids=False))
        else:
            self.state.connection.execute(f"CREATE TEMP TABLE pairs AS {self.pairs(ids=True)}")
            names = ", ".join(quote(name) for name in (*self.join.left.output, *self.join.right.output))
            changes = [f"SELECT {names}{self.weight_column('1', id='NULL')} FROM pairs"]
            for side in tracked:
                changes += self.padding(side)
                self.mark(side)
            self.result.changes = self.table(" UNION ALL ".join(changes))
        self.store("left", tracked="left" in tracked)
        self.store("right", tracked="right" in tracked)
        return self.result

    def pairs(self, *, ids: bool) -> str:
        """SQL of the new pairs; with the ids of their rows and whether a stored row had a partner when it came."""
        weights = self.weight_column("1", id="NULL")
        selects = []
        for left, right, condition in self.meetings():
            columns = output_sql(self.join, {"left": "l", "right": "r"})
            extra = weights
            if ids:
                extra = ", " + ", ".join(self.id_columns("left", left) + self.id_columns("right", right))
            selects.append(f"SELECT {columns}{extra} FROM {left} AS l JOIN {right} AS r ON {condition}")
        return " UNION ALL ".join(selects)

    def id_columns(self, side: str, relation: str) -> list[str]:
        alias = side[0]
        if not self.tracks(side):
            return []
        had_partner = f"{alias}.{quote(MATCHED)}" if relation != f"{alias}_new" else "FALSE"
        return [
            f"{alias}.{quote(RID)} AS {alias}id",
            f"{alias}.{quote(TIME)} AS {alias}time",
            f"{had_partner} AS {alias}had",
        ]

    def padding(self, side: str) -> list[str]:
        """SQL of the padded rows of a side that come out in this step, and of those taken back."""
        alias = side[0]
        unmatched_new = f"{quote(RID)} NOT IN (SELECT {alias}id FROM pairs WHERE {alias}id >= {self.first_rid})"
        if self.join.emit is EmitMode.CHANGELOG:
            selects = [self.padded(side, f"{alias}_new", unmatched_new, "1")]
            if (old := self.old(side)) is not None:
                selects.append(self.padded(side, old, f"{quote(RID)} IN ({self.first_partner(side)})", "-1"))
            return selects
        final_new = f"({quote(TIME)} IS NULL OR {quote(TIME)} < {self.dead(side)}) AND {unmatched_new}"
        selects = [self.padded(side, f"{alias}_new", final_new, "1")]
        if (due := self.due(side)) is not None:
            never = f"NOT {quote(MATCHED)} AND {quote(RID)} NOT IN (SELECT {alias}id FROM pairs){self.unmarked(side)}"
            selects.append(self.padded(side, due, never, "1"))
        return selects

    def padded(self, side: str, relation: str, where: str, weight: str) -> str:
        """Rows of one side beside NULLs of the other's types."""
        alias, other = ("l", "r") if side == "left" else ("r", "l")
        columns = output_sql(self.join, {"left": "l", "right": "r"})
        columns += self.weight_column(weight, id=self.id_of(alias))
        return (
            f"SELECT {columns} FROM (SELECT * FROM {relation} WHERE {where}) AS {alias} "
            f"LEFT JOIN (SELECT * FROM {other}_new WHERE FALSE) AS {other} ON FALSE"
        )

    def first_partner(self, side: str) -> str:
        """SQL of the ids of stored rows that meet their first partner in this step."""
        alias = side[0]
        return (
            f"SELECT {alias}id FROM pairs WHERE {alias}id < {self.first_rid} AND NOT {alias}had"
            f"{self.unmarked(side, f'{alias}id')}"
        )

    def mark(self, side: str) -> None:
        """Log marks for stored rows that met their first partner and are not final yet."""
        alias = side[0]
        self.result.store[f"{side}_matched"] = self.table(
            f"SELECT {alias}id AS {quote(RID)}, any_value({alias}time) AS {quote(TIME)} FROM pairs "
            f"WHERE {alias}id IN ({self.first_partner(side)}) AND {alias}time >= {self.dead(side)} GROUP BY {alias}id"
        )

    # -- joins that give left rows: semi, anti ---------------------------------------------------------------------

    def run_semi_anti(self) -> StepResult:
        self.state.connection.execute(f"CREATE TEMP TABLE pairs AS {self.matched_left()}")
        new_matched = f"{quote(RID)} IN (SELECT lid FROM pairs)"
        columns = output_sql(self.join, {"left": "l"})
        changes = []

        def select(relation: str, where: str, weight: str) -> None:
            changes.append(
                f"SELECT {columns}{self.weight_column(weight, id=self.id_of('l'))} FROM {relation} AS l WHERE {where}"
            )

        if self.join.kind is JoinKind.SEMI:
            select("l_new", new_matched, "1")
            if (old := self.old("left")) is not None:
                select(old, new_matched, "1")
        elif self.join.emit is EmitMode.CHANGELOG:
            select("l_new", f"NOT {new_matched}", "1")
            if (old := self.old("left")) is not None:
                select(old, new_matched, "-1")
        else:
            final = f"({quote(TIME)} IS NULL OR {quote(TIME)} < {self.dead('left')})"
            select("l_new", f"{final} AND NOT {new_matched}", "1")
            if (due := self.due("left")) is not None:
                select(due, f"NOT {new_matched}{self.unmarked('left')}", "1")
        self.result.changes = self.table(" UNION ALL ".join(changes))
        self.result.store["left_matched"] = self.table(
            f"SELECT lid AS {quote(RID)}, ltime AS {quote(TIME)} FROM pairs "
            f"WHERE lid < {self.first_rid} AND ltime >= {self.dead('left')}"
        )
        # a left row that has its partner never comes out again: it need not be kept
        self.store("left", tracked=True, where=f"NOT {new_matched}")
        self.store("right", tracked=False)
        return self.result

    def matched_left(self) -> str:
        """SQL of the left rows that meet their first partner in this step."""
        selects = [
            f"SELECT l.{quote(RID)} AS lid, l.{quote(TIME)} AS ltime FROM {left} AS l SEMI JOIN {right} AS r ON {on}"
            for left, right, on in self.meetings()
        ]
        found = f"SELECT DISTINCT lid, ltime FROM ({' UNION ALL '.join(selects)})"
        marks = self.state.scan("left_matched", NEVER, FOREVER)
        return found if marks is None else f"{found} WHERE lid NOT IN (SELECT {quote(RID)} FROM {marks})"

    # -- shared ----------------------------------------------------------------------------------------------------

    def meetings(self) -> list[tuple[str, str, str]]:
        """(left relation, right relation, condition) of everything that can give a new pair."""
        right = "r_new" if (old := self.old("right")) is None else f"({self.both('r', old)})"
        found = []
        if self.left.num_rows:
            found.append(("l_new", right, match_sql(self.join)))
        if self.right.num_rows and (old := self.old("left")) is not None:
            found.append((old, "r_new", match_sql(self.join)))
        return found or [("l_new", "r_new", "FALSE")]

    def both(self, alias: str, old: str) -> str:
        side = "left" if alias == "l" else "right"
        columns = ", ".join(quote(name) for name in self.stored_columns(side))
        matched = self.tracks(side)
        return (
            f"SELECT {columns}{f', {quote(MATCHED)}' if matched else ''} FROM {old} UNION ALL "
            f"SELECT {columns}{f', FALSE AS {quote(MATCHED)}' if matched else ''} FROM {alias}_new"
        )

    def tracks(self, side: str) -> bool:
        return self.join.kind.tracks_left if side == "left" else self.join.kind.keeps_right

    def weight_column(self, weight: str, *, id: str) -> str:
        """``, weight AS $w`` where results carry one, and ``, id AS $id`` where a later join needs it."""
        if self.join.emit is EmitMode.FINAL:
            return ""
        ids = f", CAST({id} AS VARCHAR) AS {quote(ID)}" if self.join.gives_ids else ""
        return f", CAST({weight} AS TINYINT) AS {quote(WEIGHT)}{ids}"

    def id_of(self, alias: str) -> str:
        """SQL of the id under which a row that came out alone may be taken back."""
        return f"'{alias}' || CAST({alias}.{quote(RID)} AS VARCHAR)"

    def stored_columns(self, side: str) -> tuple[str, ...]:
        columns = self.join.left if side == "left" else self.join.right
        extra = [TIME]
        if self.tracks(side):
            extra.append(RID)
        return tuple(dict.fromkeys((*columns.stored, *extra)))

    def dead(self, side: str) -> int:
        """Rows of a side with a time below this are final after the step."""
        return self.join.dead_before(0 if side == "left" else 1, self.frontiers.after)

    def old(self, side: str) -> str | None:
        """Stored rows of a side that are near enough to new rows of the other to meet one."""
        other = self.right if side == "left" else self.left
        low, high = time_range(other)
        join = self.join
        before, behind = (join.upper, join.lower) if side == "left" else (join.lower, join.upper)
        sign = -1 if side == "left" else 1
        return self.state.scan(
            side,
            NEVER if before is None else shift(low, sign * before),
            FOREVER if behind is None else shift(high, sign * behind),
        )

    def due(self, side: str) -> str | None:
        """Stored rows of a side that become final in this step."""
        input = 0 if side == "left" else 1
        return self.state.scan(side, self.join.dead_before(input, self.frontiers.before), self.dead(side) - 1)

    def unmarked(self, side: str, id: str = quote(RID)) -> str:
        """`` AND id has no mark`` over the marks of earlier steps."""
        marks = self.state.scan(f"{side}_matched", NEVER, FOREVER)
        return "" if marks is None else f" AND {id} NOT IN (SELECT {quote(RID)} FROM {marks})"

    def store(self, side: str, *, tracked: bool, where: str = "TRUE") -> None:
        """Log the new rows of a side that are not final yet."""
        alias = side[0]
        columns = ", ".join(quote(name) for name in self.stored_columns(side))
        if tracked:
            matched = f"{quote(RID)} IN (SELECT {alias}id FROM pairs WHERE {alias}id >= {self.first_rid})"
            columns += f", {matched} AS {quote(MATCHED)}"
        self.result.store[side] = self.table(
            f"SELECT {columns} FROM {alias}_new WHERE {quote(TIME)} >= {self.dead(side)} AND {where}"
        )

    def table(self, sql: str) -> pa.Table:
        return self.state.connection.sql(sql).to_arrow_table()
