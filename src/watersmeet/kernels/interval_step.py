"""One step of the interval join, as DuckDB SQL over new and stored rows (interval.py says what it computes)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID, MATCHED, RID, TIME, WEIGHT
from watersmeet.kernels import api
from watersmeet.kernels.api import (
    EmitMode,
    JoinKind,
    Side,
    StateView,
    StepFrontiers,
    StepResult,
    quote,
)
from watersmeet.kernels.few_matches import FewMatches
from watersmeet.kernels.match import WindowMatch, marks_of, number_rows


def run(
    match: WindowMatch,
    emit: EmitMode,
    *,
    gives_ids: bool,
    state: StateView,
    inputs: Mapping[int, pa.Table],
    frontiers: StepFrontiers,
    first_rid: int,
    order: Sequence[tuple[str, bool]] = (),
    keeps_ids: bool = False,
) -> StepResult:
    """Join the new rows of both sides, none of them late, with each other and with stored rows.

    ``order``: columns that results are sorted by, each with whether it descends; without any, they are in no order.
    With ``keeps_ids``, all rows are stored with their ids; otherwise only rows of sides that track matches are.
    """
    new, next_rid = {}, first_rid
    for side in match.numbered:
        new[side] = match.arriving(side, number_rows(inputs[side.index], next_rid), state)
        next_rid += new[side].num_rows
    passing = None
    if match.passing is not None:
        rows = state.register(new[Side.LEFT])
        passing = state.register(state.query(f"SELECT * FROM {rows} AS l WHERE {match.passing}"))
        new[Side.LEFT] = state.query(f"SELECT * FROM {rows} AS l WHERE NOT {match.passing}")
    step = _Step(match, emit, gives_ids, state, frontiers, first_rid, new, passing, order, keeps_ids)
    return step.run_pairs() if match.kind.pairs else step.run_alone()


@dataclass(slots=True)
class _Step:
    """One step over new rows and the stored rows that may match them."""

    match: WindowMatch
    emit: EmitMode
    gives_ids: bool
    state: StateView
    frontiers: StepFrontiers
    first_rid: int
    new: dict[Side, pa.Table]
    passing: str | None = None  # new left rows that are results whatever their partners; they are not among ``new``
    order: Sequence[tuple[str, bool]] = ()
    keeps_ids: bool = False
    result: StepResult = field(default_factory=StepResult)
    registered: dict[Side, str] = field(default_factory=dict)
    looked_up: dict[Side, str | None] = field(default_factory=dict)
    marks: dict[Side, str | None] = field(default_factory=dict)  # where those of earlier steps are read
    matches: dict[Side, str] = field(default_factory=dict)  # tables with the ids of rows that matched
    few: FewMatches | None = None  # what was found, in Arrow, if it is little
    numbers: str | None = None  # a table with the numbers of this step: see ``number``

    def __post_init__(self) -> None:
        for side in Side:
            self.result.forget[side.value] = self.result.forget[marks_of(side)] = self.closed(side)

    # -- joins that emit pairs: inner, left, right, full ----------------------------------------------------------

    def run_pairs(self) -> StepResult:
        tracked = [side for side in Side if self.tracks_matches(side)]
        if not tracked:
            self.result.changes = self.emitted([self.pairs(ids=False)], [], self.new_rows)
        else:
            # with many rows of one key, pairs may be any number: then they are not kept, but made a second time
            most = api.most_kept(self.state, self.new_rows) if self.match.keys else None
            if self.make_pairs(self.pairs(ids=True), tracked, most):
                names = ", ".join(quote(name) for name in self.match.output)
                pairs = f"SELECT {names}{self.weight_column('1', id='NULL')} FROM {self.matches[tracked[0]]}"
                self.result.changes = self.mark_and_pad(tracked, pairs)
            else:
                self.find_matches(tracked)
                self.result.changes = self.many_pairs(tracked)
        for side in Side:
            self.store(side)
        return self.result

    def make_pairs(self, sql: str, tracked: list[Side], most: int | None = None) -> bool:
        """Make the table of pairs, or of left rows with a partner, and count them; False if ``most`` may cut it off.

        Those of a small step are an Arrow table, unless they are many.
        """
        if self.new_rows < api.MANY_ROWS:
            pairs = api.few(self.state, sql)
            if pairs is not None:
                self.matches = dict.fromkeys(tracked, self.state.register(pairs))
                self.few = FewMatches(self.match, self.state, self.frontiers, self.new, self.first_rid, pairs)
                self.result.counters["matched"] = pairs.num_rows
                return True
            if most is not None:  # in a small step, no more are kept
                return False
        limit = "" if most is None else f" LIMIT {most}"
        matched = self.state.tables.make("pairs", f"{sql}{limit}")
        if matched == most:
            self.state.tables.drop("pairs")
            return False
        self.matches = dict.fromkeys(tracked, "pairs")
        self.result.counters["matched"] = matched
        return True

    def find_matches(self, tracked: list[Side]) -> None:
        """Make tables of the rows with a partner in place of the table of pairs."""
        for side in tracked:
            selects = []
            for left, right, condition in self.joins():
                rows = {Side.LEFT: left, Side.RIGHT: right}
                selects.append(
                    f"SELECT {', '.join(self.id_columns(side, rows[side]))} FROM {rows[side]} AS {side.alias} "
                    f"SEMI JOIN {rows[side.other]} AS {side.other.alias} ON {condition}"
                )
            self.matches[side] = f"{side.alias}_matches"
            self.state.tables.make(self.matches[side], " UNION ALL ".join(selects))

    def many_pairs(self, tracked: list[Side]) -> api.Rows:
        """Return pairs that are not kept, and padded rows; count the pairs, on their way if they have no order."""
        pairs = self.pairs(ids=False)
        if self.order:
            counted = self.state.connection.execute(f"SELECT count(*) FROM ({pairs})").fetchall()
            ((self.result.counters["matched"],),) = counted
            return self.mark_and_pad(tracked, pairs)
        self.result.counters["matched"] = 0
        return api.followed_by(self.counted(self.state.stream(pairs)), self.mark_and_pad(tracked))

    def counted(self, pairs: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield pairs and count them."""
        for piece in pairs:
            self.result.counters["matched"] += piece.num_rows
            yield piece

    def emitted(self, pairs: Sequence[str], alone: Sequence[str], of_rows: int) -> api.Rows:
        """Return the results of queries for pairs, and for rows alone, over so many rows; in their order if any.

        Rows alone are those whose ids are, or are not, in some table.  DuckDB takes stored rows for few and would hash
        them; with many rows and little memory, it must hash the ids.
        """
        if not self.order and not (self.state.has_little_memory and of_rows >= api.MANY_ROWS):
            return api.made_in_turn(self.state, [*pairs, *alone], of_rows)
        if not self.order:
            parts = [api.made_in_turn(self.state, pairs, of_rows)] if pairs else []
            parts += [api.made_in_turn(self.state, alone, of_rows, joins_as_written=True)] if alone else []
            return api.followed_by(*parts)
        rows = api.in_one_table(self.state, " UNION ALL ".join([*pairs, *alone]), of_rows)
        return api.made(self.state, f"SELECT * FROM {rows} ORDER BY {api.order_sql(self.order)}", of_rows)

    def mark_and_pad(self, tracked: list[Side], *pairs: str) -> api.Rows:
        """Mark what has matched; return the pairs, if any are given, and padded rows."""
        for side in tracked:
            self.result.store[marks_of(side)] = self.new_marks(side)
        if self.few is not None and self.emit is EmitMode.FINAL and (padded := self.few.padded(tracked)) is not None:
            rows = pa.concat_tables([self.few.found.select(list(self.match.output)), *padded])
            held = f"SELECT * FROM {self.state.register(rows)}"
            return self.emitted([held], [], rows.num_rows) if self.order else rows
        of_rows = self.new_rows + self.result.counters["matched"] + sum(map(self.most_due, tracked))
        return self.emitted(pairs, [select for side in tracked for select in self.padding(side)], of_rows)

    def most_due(self, side: Side) -> int:
        """Return how many stored rows of a side become final in this step, at most."""
        return self.state.most_rows(side.value, *self.match.due_times(side, self.frontiers))

    def pairs(self, *, ids: bool) -> str:
        """Return SQL for new pairs; with ``ids``, also row ids and whether a stored row had a partner on arrival."""
        columns = self.match.output_sql()
        selects = []
        for left, right, condition in self.joins():
            extra = self.weight_column("1", id="NULL")
            if ids:
                extra = ", " + ", ".join(self.id_columns(Side.LEFT, left) + self.id_columns(Side.RIGHT, right))
            selects.append(f"SELECT {columns}{extra} FROM {left} AS l JOIN {right} AS r ON {condition}")
        return " UNION ALL ".join(selects)

    def id_columns(self, side: Side, relation: str) -> list[str]:
        alias = side.alias
        if not self.tracks_matches(side):
            return []
        had_partner = f"{alias}.{quote(MATCHED)}" if relation not in self.registered.values() else "FALSE"
        return [
            f"{alias}.{quote(RID)} AS {alias}id",
            f"{alias}.{quote(TIME)} AS {alias}time",
            f"{had_partner} AS {alias}had",
        ]

    def padding(self, side: Side) -> list[str]:
        """Return SQL for the padded rows of a side that this step emits or retracts."""
        unmatched_new = f"{quote(RID)} NOT IN ({self.matched_new(side)})"
        if self.emit is EmitMode.CHANGELOG:
            selects = [self.padded(side, self.fresh(side), unmatched_new, "1")]
            if (old := self.old(side)) is not None:
                selects.append(self.padded(side, old, f"{quote(RID)} IN ({self.first_partner(side)})", "-1"))
            return selects
        final_new = f"({quote(TIME)} IS NULL OR {quote(TIME)} < {self.closed_sql(side)}) AND {unmatched_new}"
        selects = [self.padded(side, self.fresh(side), final_new, "1")]
        if (due := self.due(side)) is not None:
            matched = f"SELECT {side.alias}id FROM {self.matches[side]}"
            never = f"NOT {quote(MATCHED)} AND {quote(RID)} NOT IN ({matched}){self.unmarked(side)}"
            selects.append(self.padded(side, due, never, "1"))
        return selects

    def padded(self, side: Side, relation: str, where: str, weight: str) -> str:
        """Return SQL for rows of one side beside NULLs of the other's types."""
        weights = self.weight_column(weight, id=_id_of(side))
        return padded_sql(self.match, side, relation, where, other=self.fresh(side.other), weights=weights)

    def matched_new(self, side: Side) -> str:
        """Return SQL for the ids of new rows that have a partner."""
        return f"SELECT {side.alias}id FROM {self.matches[side]} WHERE {side.alias}id >= {self.first_sql}"

    def first_partner(self, side: Side) -> str:
        """Return SQL for the ids of stored rows that match their first partner in this step."""
        alias = side.alias
        return (
            f"SELECT {alias}id FROM {self.matches[side]} WHERE {alias}id < {self.first_sql} AND NOT {alias}had"
            f"{self.unmarked(side, f'{alias}id')}"
        )

    def new_marks(self, side: Side) -> pa.Table:
        """Return marks for stored rows that matched their first partner and are not final yet."""
        if self.few is not None and (marks := self.few.marks(side)) is not None:
            return marks
        alias = side.alias
        return self.state.query(
            f"SELECT {alias}id AS {quote(RID)}, any_value({alias}time) AS {quote(TIME)} FROM {self.matches[side]} "
            f"WHERE {alias}id IN ({self.first_partner(side)}) AND {alias}time >= {self.closed_sql(side)} "
            f"GROUP BY {alias}id"
        )

    # -- joins that emit left rows: semi, anti, mark ------------------------------------------------------------------

    def run_alone(self) -> StepResult:
        self.make_pairs(self.matched_left(), [Side.LEFT])
        pairs = self.matches[Side.LEFT]
        new_matched = f"{quote(RID)} IN (SELECT lid FROM {pairs})"
        kind = self.match.kind
        changes = []

        def select(relation: str, where: str, weight: str, *, matched: bool) -> None:
            id = _id_of(Side.LEFT)
            if kind is JoinKind.MARK and matched:  # at its first partner a row is retracted, and another one emitted
                id = f"'m' || {id}"
            columns = self.match.output_sql(matched=matched) + self.weight_column(weight, id=id)
            changes.append(f"SELECT {columns} FROM {relation} AS l WHERE {where}")

        if self.passing is not None:
            select(self.passing, "TRUE", "1", matched=self.match.passes_as_matched)
        if kind.emits_alone(matched=True):
            select(self.fresh(Side.LEFT), new_matched, "1", matched=True)
            if (old := self.old(Side.LEFT)) is not None:
                select(old, new_matched, "1", matched=True)
        if kind.emits_alone(matched=False) and self.emit is EmitMode.CHANGELOG:
            select(self.fresh(Side.LEFT), f"NOT {new_matched}", "1", matched=False)
            if (old := self.old(Side.LEFT)) is not None:
                select(old, new_matched, "-1", matched=False)
        elif kind.emits_alone(matched=False):
            final = f"({quote(TIME)} IS NULL OR {quote(TIME)} < {self.closed_sql(Side.LEFT)})"
            select(self.fresh(Side.LEFT), f"{final} AND NOT {new_matched}", "1", matched=False)
            if (due := self.due(Side.LEFT)) is not None:
                select(due, f"NOT {new_matched}{self.unmarked(Side.LEFT)}", "1", matched=False)
        self.result.changes = self.emitted([], changes, self.new_rows + self.most_due(Side.LEFT))
        self.result.store[marks_of(Side.LEFT)] = self.new_marks(Side.LEFT)
        for side in Side:
            self.store(side)
        return self.result

    def matched_left(self) -> str:
        """Return SQL for the left rows that match their first partner in this step."""
        # without an equality DuckDB 2.0 uses an inequality join, whose SEMI form drops the other conditions
        join = "SEMI JOIN" if self.match.keys else "JOIN"
        selects = [
            f"SELECT l.{quote(RID)} AS lid, l.{quote(TIME)} AS ltime FROM {left} AS l {join} {right} AS r ON {on}"
            for left, right, on in self.joins()
        ]
        # rows with a partner are not stored, so none had one before
        found = f"SELECT DISTINCT lid, ltime, FALSE AS lhad FROM ({' UNION ALL '.join(selects)})"
        return f"{found} WHERE TRUE{self.unmarked(Side.LEFT, 'lid')}"

    # -- shared ----------------------------------------------------------------------------------------------------

    def joins(self) -> list[tuple[str, str, str]]:
        """Return (left relation, right relation, condition) of every join that may form a new pair."""
        relations = []
        if self.new[Side.LEFT].num_rows:
            relations.append((self.fresh(Side.LEFT), self.old_and_new(Side.RIGHT)))
        if self.new[Side.RIGHT].num_rows and (old := self.old(Side.LEFT)) is not None:
            relations.append((old, self.fresh(Side.RIGHT)))
        conditions = self.match.conditions_sql()
        found = [(*both, on) for both in relations for on in conditions]
        return found or [(self.fresh(Side.LEFT), self.fresh(Side.RIGHT), "FALSE")]

    def fresh(self, side: Side) -> str:
        """Return the relation of a side's new rows, registered on first use: that is a large part of a small step."""
        if side not in self.registered:
            self.registered[side] = self.state.register(self.new[side])
        return self.registered[side]

    def old_and_new(self, side: Side) -> str:
        """Return SQL for a side's new rows, and its stored rows that new rows of the other side may match."""
        old = self.old(side)
        if old is None:
            return self.fresh(side)
        if not self.new[side].num_rows:
            return old
        columns = ", ".join(quote(name) for name in self.stored_columns(side))
        matched = self.tracks_matches(side)
        stored = f"SELECT {columns}{f', {quote(MATCHED)}' if matched else ''} FROM {old}"
        new = f"SELECT {columns}{f', FALSE AS {quote(MATCHED)}' if matched else ''} FROM {self.fresh(side)}"
        return f"({stored} UNION ALL {new})"

    def tracks_matches(self, side: Side) -> bool:
        return self.match.kind.tracks_matches(side)

    def weight_column(self, weight: str, *, id: str) -> str:
        """Return ``, weight AS $w`` if results carry one, and ``, id AS $id`` if a following join needs it."""
        if self.emit is EmitMode.FINAL:
            return ""
        ids = f", CAST({id} AS VARCHAR) AS {quote(ID)}" if self.gives_ids else ""
        return f", CAST({weight} AS TINYINT) AS {quote(WEIGHT)}{ids}"

    def stored_columns(self, side: Side) -> tuple[str, ...]:
        extra = (TIME, RID) if self.keeps_ids or self.tracks_matches(side) else (TIME,)
        return tuple(dict.fromkeys((*self.match.columns(side).stored, *extra)))

    def closed(self, side: Side) -> int:
        """Return the time below which rows of a side are final after the step."""
        return self.match.closed_before(side, self.frontiers.after)

    def closed_sql(self, side: Side) -> str:
        """Return SQL for ``closed``."""
        return self.number(f"{side.alias}closed")

    @property
    def first_sql(self) -> str:
        """Return SQL for the id of the first new row; stored rows have lower ones."""
        return self.number("first")

    def number(self, name: str) -> str:
        """Return SQL for a number of this step; small steps read it from a table, and so have the same statements."""
        numbers = {"first": self.first_rid} | {f"{side.alias}closed": self.closed(side) for side in Side}
        if self.new_rows >= api.MANY_ROWS:
            return str(numbers[name])
        if self.numbers is None:
            self.numbers = self.state.register(pa.table({each: [number] for each, number in numbers.items()}))
        return f"(SELECT {name} FROM {self.numbers})"

    @property
    def new_rows(self) -> int:
        """How many rows are new."""
        return sum(new.num_rows for new in self.new.values())

    def old(self, side: Side) -> str | None:
        """Return SQL for stored rows of a side, all that new rows of the other side may match among them."""
        if side not in self.looked_up:
            new = self.new[side.other]
            low, high = self.match.partner_times(side, new)
            low = max(low, self.match.gone_before(side, self.frontiers.before))
            probes = self.match.probes(side.other, new)
            self.looked_up[side] = self.state.rows_with_keys(
                side.value, self.match.key_columns(side), probes, low, high
            )
        return self.looked_up[side]

    def due(self, side: Side) -> str | None:
        """Return SQL for the stored rows of a side that become final in this step."""
        return self.state.scan(side.value, *self.match.due_times(side, self.frontiers))

    def unmarked(self, side: Side, id: str = quote(RID)) -> str:
        """Return `` AND id has no mark``, over the marks of earlier steps."""
        if side not in self.marks:
            scan, rows = self.state.scan(marks_of(side)), self.state.most_rows(marks_of(side))
            marked = f"SELECT {quote(RID)} AS marked FROM {scan}"
            self.marks[side] = None if scan is None else api.in_one_table(self.state, marked, rows)
        marks = self.marks[side]
        if marks is None:
            return ""
        # NOT IN would hold all marks in memory, but NOT EXISTS the rows of the step, if they are fewer
        return f" AND NOT EXISTS (SELECT 1 FROM {marks} WHERE marked = {id})"

    def store(self, side: Side) -> None:
        """Store the new rows of a side that are not final yet, and count those that leave before they are.

        A left row of a semi or anti join that has its partner is never emitted again, so it is neither stored nor
        counted.
        """
        needs_one = side is Side.LEFT and not self.match.kind.pairs
        where = f"{quote(RID)} NOT IN (SELECT lid FROM {self.matches[side]})" if needs_one else "TRUE"
        if (counter := self.match.counter_of_expired(side, self.frontiers.after)) is not None:
            leaving = [f"SELECT 1 FROM {self.fresh(side)} WHERE {quote(TIME)} < {self.closed_sql(side)} AND {where}"]
            if (due := self.due(side)) is not None:
                unmarked = self.unmarked(side) if needs_one else ""
                leaving.append(f"SELECT 1 FROM {due} WHERE {where}{unmarked}")
            count = self.state.query(f"SELECT count(*) FROM ({' UNION ALL '.join(leaving)})")
            self.result.counters[counter] = count[0][0].as_py()
        rows = self.new[side].select(list(self.stored_columns(side)))
        keeps = pc.greater_equal(rows[TIME], self.closed(side))
        if self.tracks_matches(side):
            is_matched = pc.is_in(rows[RID], value_set=self.matched_ids(side))
            rows = rows.append_column(MATCHED, is_matched)
            if needs_one:
                keeps = pc.and_(keeps, pc.invert(is_matched))
        self.result.store[side.value] = rows.filter(keeps)

    def matched_ids(self, side: Side) -> pa.ChunkedArray:
        """Return the ids of new rows that have a partner, and perhaps others."""
        if self.few is not None:
            return self.few.ids(side)
        return self.state.query(f"SELECT DISTINCT {side.alias}id FROM ({self.matched_new(side)})").column(0)


def padded_sql(match: WindowMatch, side: Side, relation: str, where: str, *, other: str, weights: str = "") -> str:
    """Return SQL for the rows of one side that meet a condition, beside NULLs of the types of the ``other``'s rows."""
    return (
        f"SELECT {match.output_sql()}{weights} FROM (SELECT * FROM {relation} WHERE {where}) AS {side.alias} "
        f"LEFT JOIN (SELECT * FROM {other} WHERE FALSE) AS {side.other.alias} ON FALSE"
    )


def _id_of(side: Side) -> str:
    """Return SQL for the ``$id`` of a row of a side that is emitted alone."""
    return f"'{side.alias}' || CAST({side.alias}.{quote(RID)} AS VARCHAR)"
