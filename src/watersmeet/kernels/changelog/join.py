"""The join of inputs whose rows come and go: streams that change, and results that may be taken back.

Matches, NULLs, window, late rows: as in interval.py.  Results come at once, and go with the rows that they are made of:
they are the difference of two joins, before and after the step.  Of each side (sides.py) some rows are new, some gone,
the others kept; ``delta`` are new rows with weight +1 and gone ones with -1::

    pairs   = delta_l x kept_r  +  kept_l x delta_r  +  new_l x new_r  -  gone_l x gone_r
    partners of a row, before and after: a count that is stored with the row and logged as it changes
    padding = + new rows with no partner  - gone rows that had none  ± kept rows whose count left or came to 0

(The product rule of differences: Budiu et al., DBSP, 2022.)  A count per row, not a look at the other side, decides on
padding: partners may have been forgotten.

State       rows that hold, in both inputs; with a window, a row until no retraction of it can still come (``$t < F``)
            and no partner can (as in interval.py), whichever is later
Ids         results carry an ``$id`` of their own, made of what both rows are called, where a join follows
Nothing new a pair that goes and comes again looking the same leaves no trace
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import FOREVER, NEVER, JoinKind, Side, StateView, StepFrontiers, StepResult, quote
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.changelog.sides import Change, SideStep
from watersmeet.kernels.changelog.stored import COUNT
from watersmeet.kernels.match import WindowMatch, time_range


@dataclass(frozen=True, slots=True)
class ChangelogJoin:
    """The kernel; ``changes`` says of the left and of the right side how its rows come and go."""

    match: WindowMatch
    changes: tuple[Change | Newest, Change | Newest]
    gives_ids: bool = False

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
        """Apply rows that come and rows that go."""
        step = _Step(self, state, frontiers)
        try:
            return step.run(inputs, first_rid)
        finally:
            step.close()


@dataclass(slots=True)
class _Step:
    """One step over the tables of both sides and the ``pairs`` that come or go."""

    kernel: ChangelogJoin
    state: StateView
    frontiers: StepFrontiers
    result: StepResult = field(default_factory=StepResult)
    sides: dict[Side, SideStep] = field(init=False)

    def __post_init__(self) -> None:
        self.sides = {side: SideStep(side, self.match, self.kernel.changes[side.index], self.state) for side in Side}

    @property
    def match(self) -> WindowMatch:
        return self.kernel.match

    def run(self, inputs: Mapping[int, pa.Table], first_rid: int) -> StepResult:
        low, high = self.reach(inputs)
        for side, step in self.sides.items():
            first = first_rid + (inputs[Side.LEFT.index].num_rows if side is Side.RIGHT else 0)
            self.result.counters.update(step.arrive(inputs[side.index], first, low, high))
        for step in self.sides.values():
            step.keep(low, high)
        self.state.connection.execute(f"CREATE TEMP TABLE pairs AS {self.pairs()}")
        self.result.changes = self.state.connection.sql(self.changes()).to_arrow_table()
        for side, step in self.sides.items():
            settled = self.kernel.settled_before(side, self.frontiers.after)
            step.store(self.result, self.met(side), settled, self.frontiers.after)
        return self.result

    def reach(self, inputs: Mapping[int, pa.Table]) -> tuple[int, int]:
        """The event times of stored rows that this step can touch.

        Gone rows are looked up among them, and partners of those, so the range grows by their times.
        """
        lower, upper = self.match.lower, self.match.upper
        if lower is None or upper is None:
            return NEVER, FOREVER
        low, high = time_range(pa.concat_tables([inputs[side.index].select([TIME]) for side in Side]))
        if low > high:
            return FOREVER, NEVER
        span = max(abs(lower), abs(upper))
        return low - span, high + span

    def pairs(self) -> str:
        """SQL of pairs that come (w = 1) and go (w = -1): result columns, numbers of both rows, and how they change.

        ``lw`` and ``rw`` are 1 for a row that is new, -1 for one that is gone, 0 for one that is kept.
        """
        columns = [self.match.output_sql()] if self.match.output else []
        for side, step in self.sides.items():
            alias = side.alias
            columns += [f"{alias}.{quote(RID)} AS {alias}id", f"{alias}.{quote(step.name)} AS {alias}name"]
            columns.append(f"{alias}.w AS {alias}w")
        meetings = (("delta", "kept", ""), ("kept", "delta", ""), ("delta", "delta", " AND l.w = r.w"))
        return " UNION ALL ".join(
            f"SELECT {', '.join(columns)}, CAST(CASE l.w WHEN 0 THEN r.w ELSE l.w END AS TINYINT) AS w "
            f"FROM {_rows('l', left)} AS l JOIN {_rows('r', right)} AS r ON {self.match.condition_sql()}{also}"
            for left, right, also in meetings
        )

    # -- results ---------------------------------------------------------------------------------------------------

    def changes(self) -> str:
        """SQL of the results to come and to go."""
        kind = self.match.kind
        columns = ", ".join(quote(name) for name in self.match.output)
        changes = []
        if kind.pairs:
            id = f", lname || ':' || rname AS {quote(ID)}" if self.kernel.gives_ids else ""
            changes.append(f"SELECT {columns}, w AS {quote(WEIGHT)}{id} FROM pairs")
        for side in Side:
            if kind.tracks(side):
                changes += self.alone(side, matched=kind is JoinKind.SEMI)
        everything = " UNION ALL ".join(changes)
        if self.kernel.gives_ids or not self.may_look_the_same():
            return everything
        # of rows that look the same only the balance goes out, each as often as it says
        balance = f"SELECT {columns}, CAST(sum({quote(WEIGHT)}) AS BIGINT) AS n FROM ({everything}) GROUP BY ALL"
        sign = f"CAST(sign(n) AS TINYINT) AS {quote(WEIGHT)}"
        return f"SELECT {columns}, {sign} FROM (SELECT *, unnest(range(abs(n))) FROM ({balance}))"

    def may_look_the_same(self) -> bool:
        """Whether results that come may look like results that go."""
        return not all(self.tells_apart(side) for side in Side if self.match.kind.shows(side))

    def tells_apart(self, side: Side) -> bool:
        """Whether results show enough of a side's rows to tell one that comes from one that goes, and from padding."""
        match, step = self.match, self.sides[side]
        if step.change is Change.RETRACTED:
            return False  # a sender takes back a row and gives one that looks the same where what it tests has changed
        shown = set(match.columns(side).output)
        if match.kind is JoinKind.INNER:  # one of two equal columns is enough to see
            shown |= {key.of(side) for key in match.keys if key.of(side.other) in match.columns(side.other).output}
        by = step.newest.by if step.newest is not None else ()
        if not {match.columns(side).time if name == TIME else name for name in (*by, *step.shown)} <= shown:
            return False
        # what is never NULL tells a row from padding: a primary key, or a key that met one
        return not match.kind.pads(side) or bool(by) or not all(key.null_safe for key in match.keys)

    def alone(self, side: Side, *, matched: bool) -> list[str]:
        """SQL of the rows of a side that come out, or are taken back, because they have no partner (or one: semi)."""
        alias = side.alias
        met = f"SELECT {alias}id FROM pairs WHERE {alias}w = 1"
        shown_before = f"{quote(COUNT)} {'> 0' if matched else '= 0'}"
        shown_after = f"{quote(COUNT)} + c.by {'> 0' if matched else '= 0'}"
        kept = f"SELECT k.*, c.by FROM {alias}_kept AS k JOIN ({self.met(side)}) AS c ON k.{quote(RID)} = c.id"
        found = [
            self.row(side, f"SELECT * FROM {alias}_new WHERE {quote(RID)} {'' if matched else 'NOT '}IN ({met})", 1),
            self.row(side, f"SELECT * FROM {alias}_gone WHERE {shown_before}", -1),
            self.row(side, f"SELECT * FROM ({kept}) AS c WHERE NOT ({shown_before}) AND {shown_after}", 1),
            self.row(side, f"SELECT * FROM ({kept}) AS c WHERE {shown_before} AND NOT ({shown_after})", -1),
        ]
        if self.sides[side].change is Change.RETRACTED and not matched:
            # a row without an event time meets nothing and is not stored: its retraction needs no look-up
            untimed = f"SELECT * FROM {self.sides[side].arriving} WHERE {quote(WEIGHT)} < 0 AND {quote(TIME)} IS NULL"
            found.append(self.row(side, untimed, -1))
        return found

    def met(self, side: Side) -> str:
        """SQL of (id, by): how many partners rows of a side have gained or lost."""
        return f"SELECT {side.alias}id AS id, sum(w) AS by FROM pairs GROUP BY ALL"

    def row(self, side: Side, rows: str, weight: int) -> str:
        """SQL of rows of one side alone: beside NULLs of the other's types, or as they are (semi, anti)."""
        alias, other = side.alias, side.other.alias
        id = f", {self.id_alone(side)} AS {quote(ID)}" if self.kernel.gives_ids else ""
        padding = f" LEFT JOIN (SELECT * FROM {other}_new WHERE FALSE) AS {other} ON FALSE"
        return (
            f"SELECT {self.match.output_sql()}, CAST({weight} AS TINYINT) AS {quote(WEIGHT)}{id} "
            f"FROM ({rows}) AS {alias}{padding}"
        )

    def id_alone(self, side: Side) -> str:
        """SQL of the id of a result of one row alone."""
        alias = side.alias
        own = f"'{alias}' || CAST({alias}.{quote(self.sides[side].name)} AS VARCHAR)"
        if self.sides[side].change is not Change.RETRACTED:
            return own
        # a row without a time keeps the id it came with, since its number is not stored; marked, for its sender's ids
        # and those given here are of one form
        return f"CASE WHEN {alias}.{quote(TIME)} IS NULL THEN '{alias}n' || {alias}.{quote(ID)} ELSE {own} END"

    def close(self) -> None:
        for step in self.sides.values():
            step.close()
        self.state.connection.execute("DROP TABLE IF EXISTS pairs")


def _rows(alias: str, kind: str) -> str:
    """SQL of a side's rows with ``w``: those that are kept, or those that come and go."""
    if kind == "kept":
        return f"(SELECT *, 0 AS w FROM {alias}_kept)"
    return f"(SELECT *, 1 AS w FROM {alias}_new UNION ALL SELECT *, -1 AS w FROM {alias}_gone)"
