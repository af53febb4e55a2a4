"""The ASOF join: each left row with the one right row of its key that is nearest in time.

Matches      keys equal; of the right rows on the side asked for, and within the tolerance, the one nearest in time:
             BACKWARD the newest at or before the left row's time, FORWARD the oldest at or after it, NEAREST the
             nearer of both (at equal distance the earlier).  ``strict`` leaves out equal times.
Residual     tested on that one row: a left row whose nearest fails it has no partner
Ties         of right rows with one key and time the last in the order of their source counts
NULL keys    match nothing, unless the key is null-safe; NULL times (padded rows of an earlier join) match nothing
Final        once no right row can come that is nearer: BACKWARD when l.$t < F; FORWARD when the one found lies below F
             or l.$t + tolerance < F; NEAREST when one of both holds, or the earlier one is nearer than F
State        left rows that are not final; right rows at or after F, and of each key the newest below F (FORWARD: none)

A temporal join in event time (FOR SYSTEM_TIME AS OF) is this join BACKWARD, the versions being the right side.
That the newest version below the frontier must be kept for each key is the lesson of RisingWave's issue 25939.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.match import Key, SideColumns, number_rows

#: Right rows below the frontier are reduced to the newest of each key once there are so many of them …
_LEAST_SETTLED = 50_000


class Direction(Enum):
    """On which side of the left row's time its partner is looked for."""

    BACKWARD = "backward"
    FORWARD = "forward"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True)
class AsofJoin:
    """The kernel; input 0 is the left stream, input 1 the right one.

    ``residual`` is DuckDB SQL over ``l`` and ``r``; ``tolerance`` the greatest distance, in units of the axis;
    ``sequence`` the right side's column that orders rows of one time.  With ``outer`` left rows without a partner
    come out padded.  The output has the columns of ``left.output`` and then of ``right.output``.
    """

    left: SideColumns
    right: SideColumns
    keys: tuple[Key, ...]
    direction: Direction
    sequence: str
    strict: bool = False
    tolerance: int | None = None
    outer: bool = False
    residual: str | None = None

    @property
    def partition_width(self) -> int | None:
        """Rows have no bound in time."""
        return None

    def live_relations(self, frontier: int) -> dict[str, int]:
        """What is stored is needed, whatever the frontier."""
        return {"left": NEVER, "right": NEVER, "settled": NEVER}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Give the left rows that have become final; keep the rest, and what later ones may meet."""
        con = state.connection
        con.register("left_new", number_rows(inputs[0], first_rid))
        con.register("right_new", inputs[1])
        try:
            return _Step(self, state, frontiers).run()
        finally:
            for name in ("waiting", "candidates"):
                con.execute(f"DROP TABLE IF EXISTS {name}")
            con.unregister("left_new")
            con.unregister("right_new")


class _Step:
    def __init__(self, join: AsofJoin, state: StateView, frontiers: StepFrontiers) -> None:
        self.join = join
        self.state = state
        self.frontier = frontiers.after
        backward, forward = join.direction is Direction.BACKWARD, join.direction is Direction.FORWARD
        # rows below these are done with, though segments may still hold them
        self.low_left = frontiers.before if backward else NEVER
        self.low_right = frontiers.before if forward else NEVER

    def run(self) -> StepResult:
        result = StepResult()
        self._execute(f"CREATE TEMP TABLE waiting AS {self._waiting()}")
        self._execute(f"CREATE TEMP TABLE candidates AS {self._candidates()}")
        self._settle_ties()
        joined, ready = self._joined()
        result.changes = self._table(f"SELECT {self._output()} FROM {joined} WHERE {ready} AND {self._kept()}")
        self._keep_left(result, joined, ready)
        self._keep_right(result)
        return result

    # -- rows ------------------------------------------------------------------------------------------------------

    def _waiting(self) -> str:
        """Left rows that may have become final."""
        high = FOREVER
        if self.join.direction is Direction.BACKWARD and self.frontier != FOREVER:
            high = self.frontier - 1
        rows = f"SELECT * FROM left_new WHERE {quote(TIME)} IS NULL OR {quote(TIME)} <= {high}"
        stored = self.state.scan("left", self.low_left, high)
        return rows if stored is None else f"{rows} UNION ALL BY NAME SELECT * FROM {stored}"

    def _candidates(self) -> str:
        """Right rows that the waiting ones may meet."""
        parts = ["right_new", *(scan for name in ("right", "settled") if (scan := self._stored(name)) is not None)]
        rows = " UNION ALL BY NAME ".join(f"SELECT * FROM {part}" for part in parts)
        where = [f"r.{quote(TIME)} IS NOT NULL"]
        if self.join.keys:
            where.append(f"EXISTS (SELECT 1 FROM waiting AS l WHERE {self._same_key()})")
        if self.join.direction is Direction.BACKWARD:
            where.append(f"r.{quote(TIME)} <= (SELECT max({quote(TIME)}) FROM waiting)")
        return f"SELECT * FROM ({rows}) AS r WHERE {' AND '.join(where)}"

    def _settle_ties(self) -> None:
        """Of candidates with one key and time only the last stays: DuckDB's ASOF JOIN would take any."""
        group = ", ".join([*(quote(key.right) for key in self.join.keys), quote(TIME)])
        tied = self.state.connection.sql(f"SELECT 1 FROM candidates GROUP BY {group} HAVING count(*) > 1 LIMIT 1")
        if tied.fetchall():
            self._execute(
                f"CREATE OR REPLACE TEMP TABLE candidates AS SELECT * FROM candidates QUALIFY row_number() OVER "
                f"(PARTITION BY {group} ORDER BY {quote(self.join.sequence)} DESC) = 1"
            )

    # -- the join --------------------------------------------------------------------------------------------------

    def _joined(self) -> tuple[str, str]:
        """FROM clause that gives each waiting row ``l`` its candidate ``r``, and the condition that it is final."""
        l_time, r_time, frontier = f"l.{quote(TIME)}", f"r.{quote(TIME)}", self.frontier
        ready = ["FALSE"]
        if self.join.tolerance is not None:
            ready.append(f"{l_time} < {max(NEVER, frontier - self.join.tolerance)}")
        if frontier == FOREVER:
            ready.append("TRUE")
        ready.append(f"{l_time} IS NULL")
        match self.join.direction:
            case Direction.BACKWARD:
                return self._asof(">", "l", "r"), "TRUE"
            case Direction.FORWARD:
                ready.append(f"{r_time} < {frontier}")
                return self._asof("<", "l", "r"), f"({' OR '.join(ready)})"
            case Direction.NEAREST:
                ready.append(f"n.after < {frontier}")
                ready.append(f"{l_time} - n.before + {l_time} < {frontier}")
                return self._nearest(), f"({' OR '.join(ready)})"

    def _asof(self, sign: str, left: str, right: str) -> str:
        compare = sign if self.join.strict else f"{sign}="
        on = f"{left}.{quote(TIME)} {compare} {right}.{quote(TIME)}"
        if self.join.keys:
            on = f"{self._same_key(left, right)} AND {on}"
        return f"waiting AS {left} ASOF LEFT JOIN candidates AS {right} ON {on}"

    def _nearest(self) -> str:
        """Both neighbours of each row, and the nearer of them as ``r``."""
        time, rid = quote(TIME), quote(RID)
        neighbours = [
            f"(SELECT l.{rid}, l.{time}, r.{time} AS t, r.rowid AS row FROM {self._asof(sign, 'l', 'r')}) AS {alias}"
            for sign, alias in ((">", "b"), ("<", "a"))
        ]
        earlier = f"a.t IS NULL OR b.{time} - b.t <= a.t - b.{time}"
        nearer = f"b.t AS before, a.t AS after, CASE WHEN {earlier} THEN b.row ELSE a.row END AS row"
        both = f"SELECT b.{rid}, {nearer} FROM {neighbours[0]} JOIN {neighbours[1]} USING ({rid})"
        return f"waiting AS l JOIN ({both}) AS n USING ({rid}) LEFT JOIN candidates AS r ON r.rowid = n.row"

    def _matches(self) -> str:
        terms = [f"r.{quote(TIME)} IS NOT NULL"]
        if self.join.tolerance is not None:
            terms.append(f"abs(l.{quote(TIME)} - r.{quote(TIME)}) <= {self.join.tolerance}")
        if self.join.residual is not None:
            terms.append(f"coalesce({self.join.residual}, FALSE)")
        return " AND ".join(terms)

    def _kept(self) -> str:
        return "TRUE" if self.join.outer else self._matches()

    def _output(self) -> str:
        columns = []
        for side, alias in ((self.join.left, "l"), (self.join.right, "r")):
            for name in side.output:
                value = f"{alias}.{quote(TIME if name == side.time else name)}"
                if alias == "r" and self.join.outer:
                    value = f"CASE WHEN {self._matches()} THEN {value} END"
                columns.append(f"{value} AS {quote(name)}")
        return ", ".join(columns)

    # -- state -----------------------------------------------------------------------------------------------------

    def _keep_left(self, result: StepResult, joined: str, ready: str) -> None:
        names = ", ".join(quote(name) for name in (TIME, RID, *self.join.left.stored))
        if self.join.direction is Direction.BACKWARD:
            result.store["left"] = self._table(f"SELECT {names} FROM left_new WHERE {quote(TIME)} >= {self.frontier}")
            result.forget["left"] = self.frontier
            return
        qualified = ", ".join(f"l.{quote(name)}" for name in (TIME, RID, *self.join.left.stored))
        result.store["left"] = self._table(f"SELECT {qualified} FROM {joined} WHERE ({ready}) IS NOT TRUE")
        result.forget["left"] = FOREVER  # those stored before stand in the new rows, where they wait still

    def _keep_right(self, result: StepResult) -> None:
        names = ", ".join(quote(name) for name in dict.fromkeys((TIME, *self.join.right.stored, self.join.sequence)))
        after = f"{quote(TIME)} >= {self.frontier}"
        new = f"SELECT {names} FROM right_new WHERE {quote(TIME)} IS NOT NULL"
        if self.join.direction is Direction.FORWARD:
            result.store["right"] = self._table(f"{new} AND {after}")
            result.forget["right"] = self.frontier
            return
        if not self._is_due():
            result.store["right"] = self._table(new)
            return
        parts = [new]
        parts += [
            f"SELECT {names} FROM {scan}" for each in ("right", "settled") if (scan := self._stored(each)) is not None
        ]
        rows = " UNION ALL BY NAME ".join(parts)
        keys = ", ".join(quote(key.right) for key in self.join.keys)
        order = f"{quote(TIME)} DESC, {quote(self.join.sequence)} DESC"
        result.store["right"] = self._table(f"SELECT * FROM ({rows}) WHERE {after}")
        result.store["settled"] = self._table(
            f"SELECT * FROM ({rows}) WHERE NOT {after} QUALIFY row_number() OVER "
            f"({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {order}) = 1"
        )
        result.forget["right"] = result.forget["settled"] = FOREVER

    def _is_due(self) -> bool:
        """Whether right rows below the frontier have become many enough to reduce them to the newest of each key."""
        below = self._count("right", self.frontier - 1) if self.frontier > NEVER else 0
        return below >= max(_LEAST_SETTLED, self._count("settled", FOREVER))

    def _count(self, relation: str, high: int) -> int:
        scan = self.state.scan(relation, NEVER, high)
        if scan is None:
            return 0
        ((rows,),) = self.state.connection.sql(f"SELECT count(*) FROM {scan}").fetchall()
        return int(rows)

    # -- SQL -------------------------------------------------------------------------------------------------------

    def _same_key(self, left: str = "l", right: str = "r") -> str:
        return " AND ".join(
            f"{left}.{quote(key.left)} {'IS NOT DISTINCT FROM' if key.null_safe else '='} {right}.{quote(key.right)}"
            for key in self.join.keys
        )

    def _stored(self, relation: str) -> str | None:
        return self.state.scan(relation, self.low_right, FOREVER)

    def _table(self, sql: str) -> pa.Table:
        return self.state.connection.sql(sql).to_arrow_table()

    def _execute(self, sql: str) -> None:
        self.state.connection.execute(sql)
