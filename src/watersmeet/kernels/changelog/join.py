"""The join of changing streams and changelogs: inputs whose rows may be replaced or retracted.

Matches     as in interval.py: lower <= r.$t - l.$t <= upper (or no window), keys equal, residual true
Ties, NULL keys, late rows: as in interval.py; which change of a primary key holds: see newest.py
Passing     left rows of a semi, anti or mark join that meet its alternative (``p OR EXISTS``) are results without a
            match.  They match nothing
Emits       at once, the difference of the join after the step and before it.  If no join follows, a result that is
            retracted and emitted again with equal values cancels out; otherwise results carry an ``$id``
Final       never without a window; with one, a row is final once no partner can arrive (as in interval.py) and no
            retraction (``$t < F``)
State       rows that hold, of both sides, until they are final; not rows that pass, unless they replace each other

A step divides each side's rows (sides.py) into new, gone (retracted or replaced), and kept ones; ``delta`` is new rows
with weight +1 and gone rows with -1::

    pairs   = delta_l x kept_r  +  kept_l x delta_r  +  new_l x new_r  -  gone_l x gone_r
    count   = partners of a row: stored with the row, changes of it logged
    padding = + new rows without a partner  - gone rows that had none
              + kept rows whose count fell to 0  - kept rows whose count rose from 0

(The product rule of differences: Budiu et al., DBSP, 2022.)  The count decides on padding, not a scan of the other
side: partners may have been forgotten.

Example, LEFT JOIN: (l, 1) is emitted padded.  (r, 1) arrives: - (1, NULL) + (1, 1).  (r, 2) replaces it under the same
key: - (1, 1) + (1, 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import (
    FOREVER,
    NEVER,
    JoinKind,
    Rows,
    Side,
    StateView,
    StepFrontiers,
    StepResult,
    made,
    most_kept,
    quote,
)
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.changelog.sides import Change, SideStep
from watersmeet.kernels.changelog.stored_rows import COUNT, StoredRows
from watersmeet.kernels.homes import ByKey, Home, Homes, WithRow
from watersmeet.kernels.match import WindowMatch, time_range
from watersmeet.kernels.row_bytes import stored_parts

#: Results of so many parts are gathered before they are grouped, if memory is little.
_MANY_PARTS = 64


@dataclass(frozen=True, slots=True)
class ChangelogJoin:
    """The kernel; ``changes`` says how the rows of the left and the right side change."""

    match: WindowMatch
    changes: tuple[Change | Newest, Change | Newest]
    gives_ids: bool = False

    @property
    def partition_width(self) -> int | None:
        """The partition width of the window."""
        return self.match.partition_width

    def final_before(self, side: Side, frontier: int) -> int:
        """Return the time below which rows of a side have all their partners and can no longer be retracted."""
        return min(self.match.closed_before(side, frontier), frontier)

    @property
    def homes(self) -> Homes | None:
        """Rows of both sides, and the logs about them."""
        found: dict[str, Home] = {}
        for side in Side:
            rows, *logs = StoredRows.relations_of(side.value)
            found[rows] = ByKey(side.index)
            found.update({log: WithRow((rows,)) for log in logs})
        return found

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return both sides, each from the time at which a row may still change."""
        return {side.value: self.final_before(side, frontier) for side in Side}

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply new rows and retractions."""
        return _Step(self, state, frontiers).run(inputs, first_rid)


@dataclass(slots=True)
class _Step:
    """One step over the tables of both sides and new and retracted ``pairs``: a table, or SQL if they are many.

    ``l_met`` and ``r_met`` have (id, by): how many partners a row of a side that counts them has gained or lost.
    """

    kernel: ChangelogJoin
    state: StateView
    frontiers: StepFrontiers
    result: StepResult = field(default_factory=StepResult)
    pairs: str = "pairs"
    sides: dict[Side, SideStep] = field(init=False)
    is_wide: bool = False

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
        self.is_wide = self.state.has_little_memory and self.parts_of_results(inputs) >= _MANY_PARTS
        self.result.changes = self.make_changes(sum(rows.num_rows for rows in inputs.values()))
        for side, step in self.sides.items():
            final_before = self.kernel.final_before(side, self.frontiers.after)
            step.store(self.result, f"{side.alias}_met", final_before, self.frontiers.after)
        return self.result

    def parts_of_results(self, inputs: Mapping[int, pa.Table]) -> int:
        """Return of how many parts DuckDB keeps the columns of a result."""
        fields = [field for rows in inputs.values() for field in rows.schema]
        return sum(stored_parts(field.type) for field in fields if field.name in self.match.output)

    def make_changes(self, arrived: int) -> Rows:
        """Return the results to emit; with many rows of one key, pairs may be any number, and are made as they go."""
        tables, most = self.state.tables, most_kept(self.state, arrived)
        pairs = self.pairs_sql()
        found = tables.make("pairs", f"{pairs} LIMIT {most}")
        if are_many := found >= most:
            tables.drop("pairs")
            self.pairs = f"({pairs})"
        for side, step in self.sides.items():
            if step.stored.counted:
                met = f"SELECT {side.alias}id AS id, sum(w) AS by FROM {self.pairs} GROUP BY ALL"
                tables.make(f"{side.alias}_met", met)
        return self.state.stream(self.changes()) if are_many else made(self.state, self.changes(), found + arrived)

    def reach(self, inputs: Mapping[int, pa.Table]) -> tuple[int, int]:
        """Return the least and greatest event time of stored rows that this step can touch.

        With rows at 10 to 20 and bounds of -5 and +3, that is 10 - 5 = 5 to 20 + 5 = 25.  A retraction carries the time
        of the row that it retracts.
        """
        lower, upper = self.match.lower, self.match.upper
        if lower is None or upper is None:
            return NEVER, FOREVER
        low, high = time_range(pa.concat_tables([inputs[side.index].select([TIME]) for side in Side]))
        if low > high:
            return FOREVER, NEVER
        span = max(abs(lower), abs(upper))
        return low - span, high + span

    def condition(self) -> str:
        """Return the match condition; rows that pass match nothing, and are still there where they replace others."""
        condition = self.match.condition_sql()
        left = self.sides[Side.LEFT]
        return condition if left.tested is None or left.newest is None else f"NOT {left.tested} AND {condition}"

    def pairs_sql(self) -> str:
        """Return SQL for new (w = 1) and retracted (w = -1) pairs: result columns, ids of both rows, and their weights.

        ``lw`` and ``rw`` are 1 for a new row, -1 for a gone one, 0 for a kept one.
        """
        columns = [output] if (output := self.match.output_sql()) else []
        for side, step in self.sides.items():
            alias = side.alias
            columns += [f"{alias}.{quote(RID)} AS {alias}id", f"{alias}.{quote(step.id_column)} AS {alias}name"]
            columns.append(f"{alias}.w AS {alias}w")
        joins = (("delta", "kept", ""), ("kept", "delta", ""), ("delta", "delta", " AND l.w = r.w"))
        return " UNION ALL ".join(
            f"SELECT {', '.join(columns)}, CAST(CASE l.w WHEN 0 THEN r.w ELSE l.w END AS TINYINT) AS w "
            f"FROM {_rows('l', left)} AS l JOIN {_rows('r', right)} AS r ON {self.condition()}{also}"
            for left, right, also in joins
        )

    # -- results ---------------------------------------------------------------------------------------------------

    def changes(self) -> str:
        """Return SQL for the results to emit."""
        kind = self.match.kind
        columns = ", ".join(quote(name) for name in self.match.output)
        changes = []
        if kind.pairs:
            id = f", lname || ':' || rname AS {quote(ID)}" if self.kernel.gives_ids else ""
            changes.append(f"SELECT {columns}, w AS {quote(WEIGHT)}{id} FROM {self.pairs}")
        for side in Side:
            if kind.emits_unmatched(side):
                changes += self.alone(side, matched=False)
        if kind.emits_alone(matched=True):
            changes += self.alone(Side.LEFT, matched=True)
        if (passing := self.sides[Side.LEFT].passing) is not None:
            shown = self.match.output_sql(matched=self.match.passes_as_matched)
            changes.append(self.row(Side.LEFT, f"SELECT * FROM {passing}", quote(WEIGHT), shown, self.id_passing()))
        everything = " UNION ALL ".join(changes)
        if self.kernel.gives_ids or not self.may_cancel_out():
            return everything
        if self.is_wide:
            everything = f"SELECT * FROM {self.gathered(changes)}"
        # emit only the balance of equal rows, each as often as the balance says
        balance = f"SELECT {columns}, CAST(sum({quote(WEIGHT)}) AS BIGINT) AS n FROM ({everything}) GROUP BY ALL"
        sign = f"CAST(sign(n) AS TINYINT) AS {quote(WEIGHT)}"
        return f"SELECT {columns}, {sign} FROM (SELECT *, unnest(range(abs(n))) FROM ({balance}))"

    def gathered(self, changes: Sequence[str]) -> str:
        """Make a table of changes, one query after the other; return its name.

        Each part of a UNION has buffers of its own for what is grouped, and hash tables of its joins.
        """
        first, *others = changes
        self.state.tables.make("gathered", first)
        for each in others:
            self.state.tables.extend("gathered", each)
        return "gathered"

    def may_cancel_out(self) -> bool:
        """Return whether a new result may equal a retracted one."""
        return not all(self.distinguishes(side) for side in Side if self.match.kind.outputs(side))

    def distinguishes(self, side: Side) -> bool:
        """Return whether a new row of a side always differs, in results, from a gone one and from padding."""
        match, step = self.match, self.sides[side]
        if step.change is Change.RETRACTED:
            return False  # a sender may retract a row and emit an equal one, if a column of its condition changed
        if step.tested is not None:
            return False  # equal rows may differ in whether they pass
        emitted = set(match.columns(side).output)
        if match.kind is JoinKind.INNER:  # one of two equal columns is enough
            emitted |= {key.of(side) for key in match.keys if key.of(side.other) in match.columns(side.other).output}
        by = step.newest.by if step.newest is not None else ()
        if not {match.columns(side).time if name == TIME else name for name in (*by, *step.visible)} <= emitted:
            return False
        # a column that is never NULL distinguishes a row from padding: a primary key, or a key that matched
        return not match.kind.pads(side) or bool(by) or not all(key.null_safe for key in match.keys)

    def alone(self, side: Side, *, matched: bool) -> list[str]:
        """Return SQL for rows of a side to emit or retract because they have no partner (``matched``: have one)."""
        alias = side.alias
        met = f"SELECT id FROM {alias}_met"  # of a new row, no partner can be gone
        is_before = f"{quote(COUNT)} {'> 0' if matched else '= 0'}"
        passes = self.passes(side, matched=matched)
        columns, id = self.match.output_sql(matched=matched), self.id_alone(side)
        if matched and self.match.kind is JoinKind.MARK:  # at its first partner a row is retracted, another one emitted
            id = f"'m' || {id}"
        is_after = f"{quote(COUNT)} + c.by {'> 0' if matched else '= 0'}"
        has_new = f"{quote(RID)} {'' if matched else 'NOT '}IN ({met})"
        kept = f"SELECT k.*, c.by FROM {alias}_kept AS k JOIN {alias}_met AS c ON k.{quote(RID)} = c.id"
        found = [
            self.row(side, f"SELECT * FROM {alias}_new AS {alias} WHERE {has_new}{passes}", 1, columns, id),
            self.row(side, f"SELECT * FROM {alias}_gone AS {alias} WHERE {is_before}{passes}", -1, columns, id),
            self.row(side, f"SELECT * FROM ({kept}) AS c WHERE NOT ({is_before}) AND {is_after}", 1, columns, id),
            self.row(side, f"SELECT * FROM ({kept}) AS c WHERE {is_before} AND NOT ({is_after})", -1, columns, id),
        ]
        if self.sides[side].change is Change.RETRACTED and not matched:
            # a row without an event time matches nothing and is not stored: its retraction needs no lookup
            untimed = f"SELECT * FROM {self.sides[side].arriving} WHERE {quote(WEIGHT)} < 0 AND {quote(TIME)} IS NULL"
            found.append(self.row(side, untimed, -1, columns, id))
        return found

    def passes(self, side: Side, *, matched: bool) -> str:
        """Return what adds rows of a side that pass to those with a partner, or takes them from those without.

        They have no partners, and are among these rows only where they replace each other.  So an anti join emits them
        as it should; in a mark join they are with those whose mark says that they pass.
        """
        step, mark = self.sides[side], self.match.mark
        if step.newest is None or step.tested is None or (mark is not None and mark.negated):
            return ""
        if matched:
            return f" OR {step.tested}"
        return f" AND NOT {step.tested}" if mark is not None else ""

    def row(self, side: Side, rows: str, weight: int | str, columns: str, id: str) -> str:
        """Return SQL for rows of one side: beside NULLs of the other's types, or alone (semi, anti, mark)."""
        alias, other = side.alias, side.other.alias
        id = f", {id} AS {quote(ID)}" if self.kernel.gives_ids else ""
        padding = f" LEFT JOIN (SELECT * FROM {other}_new WHERE FALSE) AS {other} ON FALSE"
        return f"SELECT {columns}, CAST({weight} AS TINYINT) AS {quote(WEIGHT)}{id} FROM ({rows}) AS {alias}{padding}"

    def id_alone(self, side: Side) -> str:
        """Return SQL for the ``$id`` of a result of one row."""
        alias = side.alias
        own = f"'{alias}' || CAST({alias}.{quote(self.sides[side].id_column)} AS VARCHAR)"
        if self.sides[side].change is not Change.RETRACTED:
            return own
        # a row without a time is not stored
        return f"CASE WHEN {alias}.{quote(TIME)} IS NULL THEN {self.id_of_sender(side)} ELSE {own} END"

    def id_of_sender(self, side: Side) -> str:
        """Return SQL for the ``$id`` that a row has from its sender; the prefix separates it from ids made here."""
        return f"'{side.alias}n' || {side.alias}.{quote(ID)}"

    def id_passing(self) -> str:
        """Return SQL for the ``$id`` of a row that passes and is not stored."""
        retracted = self.sides[Side.LEFT].change is Change.RETRACTED
        return self.id_of_sender(Side.LEFT) if retracted else self.id_alone(Side.LEFT)


def _rows(alias: str, kind: str) -> str:
    """Return SQL for a side's rows with ``w``: kept rows, or new and gone ones."""
    if kind == "kept":
        return f"(SELECT *, 0 AS w FROM {alias}_kept)"
    return f"(SELECT *, 1 AS w FROM {alias}_new UNION ALL SELECT *, -1 AS w FROM {alias}_gone)"
