"""The join as of a time under EMIT CHANGELOG: results at once, revised when a left row's partner changes.

Matches, residual, ties, deletes, NULL keys, late rows, other times: as in final.py
CURRENT      (``AS OF PROCTIME()``) a left row is joined with the newest rows known, also those that come later.  If
             ``corrected`` is 0, later rows do not count, and only its own retraction revises a result
Retractions  of left rows name an earlier row by ``$id``: all results of that row are retracted
Final        as in final.py: a right row that would revise a final row would be late.  With ``corrected``, right rows
             are taken for so long behind the frontier, and left rows and versions are kept so long
State        left rows that are not final, and their results as emitted; right rows as in final.py

A step joins only affected left rows, and emits the difference::

    affected = new left rows
             + stored left rows, not final, that may match an entity with a new or retracted version
    now      = affected joined with all right rows
    emit     + now - emitted before              both as bags of right columns: equal results cancel out
             - emitted before, of retracted left rows

A retraction repeats a stored result; it is never computed again.  (The difference of two results as the unit of work
is the idea of incremental view maintenance: Budiu et al., DBSP, 2022.)

Example, BACKWARD: an order at 10:07 is emitted with rate 1.1 of 10:00.  Rate 1.2 of 10:05 arrives: - (order, 1.1),
+ (order, 1.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels import api
from watersmeet.kernels.api import (
    FOREVER,
    NEVER,
    Side,
    StateView,
    StepFrontiers,
    StepResult,
    in_one_table,
    made,
    made_in_turn,
    quote,
    shift,
)
from watersmeet.kernels.asof.final import is_final
from watersmeet.kernels.asof.left_rows import arriving, homes_of_versions, right_bounds
from watersmeet.kernels.asof.match import AsofMatch, Direction
from watersmeet.kernels.asof.step import MIN_SETTLED, AsofStep
from watersmeet.kernels.homes import ByKey, Home, Homes, WithRow
from watersmeet.kernels.match import Key

#: With little memory, left rows whose results are revised have about so many bytes at a time, with these.
_PART_BYTES = 16 << 20
_FOUND = "$found"  # the time of the nearest right row, whether it passed the residual or not
_LEFT, _SHOWN, _PICKED, _GONE = "left", "shown", "picked", "gone"
_STEP = "$step"
_KEPT_ID = f"'n' || l.{quote(ID)}"
_SETTLED = {_LEFT: "left_settled", _SHOWN: "shown_settled", _PICKED: "picked_settled"}


@dataclass(frozen=True, slots=True)
class AsofChangelog:
    """The kernel; left rows carry ``$w`` and ``$id`` with ``left_changes``, results ``$id`` with ``gives_ids``."""

    match: AsofMatch
    left_changes: bool = False
    gives_ids: bool = False

    @property
    def partition_width(self) -> int | None:
        """None: rows have no bound in time."""
        return None

    @property
    def homes(self) -> Homes | None:
        """Left rows that may still be revised, what was noted of them, and versions."""
        rows = (_LEFT, _SETTLED[_LEFT])
        notes: dict[str, Home] = {name: WithRow(rows) for each in (_SHOWN, _PICKED) for name in (each, _SETTLED[each])}
        left: dict[str, Home] = {name: ByKey(Side.LEFT.index) for name in rows}
        return {**left, **notes, _GONE: WithRow(rows), **homes_of_versions()}

    def live_relations(self, frontier: int) -> dict[str, int]:
        """Return the left rows that may still be revised, and all right rows."""
        final = self.final_before(frontier)
        return {_LEFT: final, _SETTLED[_LEFT]: final, "right": NEVER, "settled": NEVER}

    def final_before(self, frontier: int, right: int = NEVER) -> int:
        """Return the time below which left rows are final, whatever their partner.

        ``right`` is the frontier of the right side, if it is known.
        """
        if self.left_changes:  # neither the right side nor the time asked for says when a row may be retracted
            frontier, right = frontier if self.match.times.asked is None else NEVER, NEVER
        if self.match.direction in (Direction.BACKWARD, Direction.CURRENT):
            return self.match.times.right_final_before(frontier, right)
        return shift(frontier, None if self.match.tolerance is None else -self.match.tolerance)

    def step(
        self, state: StateView, inputs: Mapping[int, pa.Table], frontiers: StepFrontiers, first_rid: int
    ) -> StepResult:
        """Apply the new and retracted rows of both sides; emit the difference that they make."""
        result, right = StepResult(), inputs[Side.RIGHT.index]
        left = arriving(self.match, state, inputs, frontiers, first_rid, result)
        if not self.left_changes:
            left = left.append_column(WEIGHT, pa.array([1] * left.num_rows, pa.int8()))
            left = left.append_column(ID, pa.nulls(left.num_rows, pa.string()))
        of_right = self._right_rows(state, left, state.register(right), frontiers, result)
        _Step(self, of_right, state.register(left), frontiers, first_rid, right.num_rows > 0, result).run()
        return result

    def _right_rows(
        self,
        state: StateView,
        left: pa.Table,
        right_new: str,
        frontiers: StepFrontiers,
        result: StepResult,
    ) -> AsofStep:
        """Return the step of the right side."""
        is_forward = self.match.direction is Direction.FORWARD
        low = frontiers.before if is_forward else NEVER
        if self.match.direction is Direction.CURRENT:
            return AsofStep(self.match, state, right_new, frontiers.inputs[Side.RIGHT.index], low)
        floor, high = right_bounds(self.match, state, left, frontiers.after, result)
        return AsofStep(self.match, state, right_new, floor, low, high)


class _Part(NamedTuple):
    """One of several ``parts`` of the left rows, by ``$rid``."""

    number: int
    parts: int

    def test(self, rid: str = quote(RID)) -> str:
        """Return SQL that tests whether a row is one of it."""
        return f"{rid} % {self.parts} = {self.number}" if self.parts > 1 else "TRUE"


@dataclass(slots=True)
class _Step:
    """One step over the tables ``waiting`` (affected rows), ``known`` (their results so far) and ``difference``."""

    kernel: AsofChangelog
    step: AsofStep
    arriving: str
    frontiers: StepFrontiers
    first_rid: int
    right_changed: bool
    result: StepResult

    @property
    def match(self) -> AsofMatch:
        return self.kernel.match

    @property
    def state(self) -> StateView:
        return self.step.state

    @property
    def right_new(self) -> str:
        return self.step.right_new

    @property
    def is_revised(self) -> bool:
        """Whether a change of the right side revises results."""
        return self.match.direction is not Direction.CURRENT or self.match.times.corrected != 0

    def run(self) -> None:
        make = self.state.tables.make
        make("left_new", f"SELECT * FROM {self.arriving} WHERE {quote(WEIGHT)} > 0")
        make("left_retractions", f"SELECT * FROM {self.arriving} WHERE {quote(WEIGHT)} < 0")
        make("retracted", self.retracted())
        waiting = make("waiting", f"{self.columns('left_new')} UNION ALL {self.affected()}")
        self.step.find_candidates(waiting)
        parts, changed = self.parts(waiting), 0
        for part in parts:
            self.state.tables.drop("known")
            make("known", self.known(part, waiting), joins_as_written=self.state.has_little_memory)
            add = self.state.tables.extend if part.number else make
            changed += add("difference", self.difference(part, changed))
        changes = [*map(self.changes, parts), self.untimed_retractions()]
        self.result.changes = made_in_turn(self.state, changes, changed)
        self.keep_left(waiting + changed)
        self.step.keep_right(self.result)

    def parts(self, waiting: int) -> list[_Part]:
        """Return the parts in which so many waiting rows are compared with their results: several with little memory.

        A right row may revise the results of any number of left rows.
        """
        stored = sum(self.state.most_rows(name) for name in (_LEFT, _SETTLED[_LEFT]))
        names = [name for each in (_LEFT, _SHOWN) for name in (each, _SETTLED[each])]
        nbytes = sum(self.state.stored_bytes(name, NEVER) for name in names) * waiting / max(stored, 1)
        divides = self.state.has_little_memory and waiting >= api.MANY_ROWS
        count = max(ceil(nbytes / _PART_BYTES), 1) if divides else 1
        return [_Part(number, count) for number in range(count)]

    # -- left rows -------------------------------------------------------------------------------------------------

    @property
    def left_names(self) -> tuple[str, ...]:
        return (TIME, RID, ID, *self.match.left.stored)

    def columns(self, rows: str) -> str:
        return f"SELECT {', '.join(quote(name) for name in self.left_names)} FROM {rows}"

    def live(self, probes: pa.Table | None = None) -> str | None:
        """Return SQL for the stored left rows that are not final and not retracted.

        With ``probes``, those with equal columns are among them, and others may not be.
        """
        found = self.stored(_LEFT) if probes is None else self.stored_with(_LEFT, probes)
        if not found:
            return None
        rows = " UNION ALL ".join(self.columns(each) for each in found)
        gone = self.state.scan(_GONE)
        where = f" WHERE {quote(RID)} NOT IN (SELECT {quote(RID)} FROM {gone})" if gone else ""
        return f"(SELECT * FROM ({rows}){where})"

    @property
    def low_left(self) -> int:
        """The time below which left rows are final, though segments may still hold them."""
        return self.kernel.final_before(self.frontiers.before, self.frontiers.inputs_before[Side.RIGHT.index])

    def stored(self, relation: str) -> list[str]:
        scans = (self.state.scan(name, self.low_left, FOREVER) for name in (relation, _SETTLED[relation]))
        return [scan for scan in scans if scan is not None]

    def stored_with(self, relation: str, probes: pa.Table) -> list[str]:
        """The same, for rows whose columns equal those of a probe, and possibly others."""
        names, by = (relation, _SETTLED[relation]), probes.column_names
        found = (self.state.rows_with_keys(name, by, probes, self.low_left) for name in names)
        return [rows for rows in found if rows is not None]

    def retracted(self) -> str:
        """Return SQL for the stored left rows that this step retracts."""
        live = self.live() if self.kernel.left_changes else None
        if live is None:
            return f"{self.columns('left_new')} WHERE FALSE"
        return f"SELECT * FROM {live} WHERE {quote(ID)} IN (SELECT {quote(ID)} FROM left_retractions)"

    def affected(self) -> str:
        """Return SQL for the stored left rows whose partner may have changed."""
        keys = self.changed_keys() if self.right_changed and self.is_revised else None
        live = None if keys is None else self.live(self.probes(keys))
        if keys is None or live is None:
            return f"{self.columns('left_new')} WHERE FALSE"
        where = [f"l.{quote(RID)} NOT IN (SELECT {quote(RID)} FROM retracted)"]
        time = quote(TIME)
        if self.match.direction is Direction.BACKWARD:
            where.append(f"l.{time} >= (SELECT min({time}) FROM {self.right_new})")
        if self.match.direction is Direction.FORWARD:
            where.append(f"l.{time} <= (SELECT max({time}) FROM {self.right_new})")
        if same_key := self.match.same_key(by=self.match.key_is_complete):
            changed = self.state.register(keys)
            where.append(f"EXISTS (SELECT 1 FROM {changed} AS r WHERE {' AND '.join(same_key)})")
        names = ", ".join(f"l.{quote(name)}" for name in self.left_names)
        rows = f"SELECT {names} FROM {live} AS l WHERE {' AND '.join(where)}"
        scans = self.stored(_PICKED)
        if not scans:
            return rows
        return self.not_final(rows, [f"SELECT * FROM {scan}" for scan in scans], self.frontiers.before)

    @property
    def entity_keys(self) -> list[Key]:
        """The keys that name an entity, or all, if they name none."""
        complete = self.match.key_is_complete
        return [key for key in self.match.keys if not complete or key.right in self.match.versions.by]

    def changed_keys(self) -> pa.Table:
        """Return all keys of changed entities, as right columns; without a key, one row that has none."""
        # the version matched before may have had another key than the entity's versions have now
        names = dict.fromkeys(quote(key.right) for key in self.entity_keys)
        return self.state.query(f"SELECT DISTINCT {', '.join(names) or '1'} FROM ({self.step.changed_entities()})")

    def probes(self, keys: pa.Table) -> pa.Table | None:
        """Return keys as left columns, one for each; None if there is no key."""
        right = {key.left: key.right for key in self.entity_keys}
        return keys.select(list(right.values())).rename_columns(list(right)) if right else None

    def not_final(self, rows: str, picked: Sequence[str], frontier: int) -> str:
        """Return SQL for the left rows ``l`` among ``rows`` whose nearest right row may still change."""
        time = f"arg_max_null({quote(_FOUND)}, {quote(_STEP)}) AS t"
        latest = f"SELECT {quote(RID)}, {time} FROM ({' UNION ALL '.join(picked)}) GROUP BY ALL"
        final = is_final(self.match, frontier, "p.t")
        return f"SELECT l.* FROM ({rows}) AS l LEFT JOIN ({latest}) AS p USING ({quote(RID)}) WHERE NOT {final}"

    # -- results ---------------------------------------------------------------------------------------------------

    def standing(self, rows: Sequence[str], of_rows: int) -> str:
        """Return SQL for results that stand, of about so many in ``rows``: emitted and retracted ones (``$w``)."""
        names = [quote(name) for name in (RID, ID, TIME, *self.match.right.output)]
        columns = ", ".join((*names, quote(WEIGHT)))
        every = " UNION ALL ".join(f"SELECT {columns} FROM {part}" for part in rows)
        shown = in_one_table(self.state, every, of_rows, joins_as_written=True)
        ids = f"{quote(RID)}, {quote(ID)}"  # which each emission has for itself
        emitted = f"SELECT {', '.join(names)} FROM {shown} WHERE {quote(WEIGHT)} > 0"
        retracted = f"SELECT {ids} FROM {shown} WHERE {quote(WEIGHT)} < 0"
        return f"SELECT * FROM ({emitted}) AS e ANTI JOIN ({retracted}) AS r USING ({ids})"

    def known(self, part: _Part, waiting: int) -> str:
        """Return SQL for the standing results of a part of this step's left rows, of which so many are waiting."""
        every = f"SELECT {quote(RID)} FROM waiting UNION ALL SELECT {quote(RID)} FROM retracted"
        rows = f"SELECT {quote(RID)} FROM ({every}) WHERE {part.test()}"
        if shown := self.stored_with(_SHOWN, self.state.query(rows)):
            own = [f"(SELECT * FROM {each} WHERE {quote(RID)} IN ({rows}))" for each in shown]
            return self.standing(own, waiting // part.parts)
        names = ", ".join(
            (f"l.{quote(RID)}", f"l.{quote(ID)}", f"l.{quote(TIME)}", *self.match.output(Side.RIGHT, "FALSE"))
        )
        return f"SELECT {names} FROM left_new AS l LEFT JOIN candidates AS r ON FALSE WHERE FALSE"

    def difference(self, part: _Part, numbered: int) -> str:
        """Return SQL for the changed results of a part of the left rows, after so many of earlier parts.

        They have the left row's id and time, right columns, weight, and a result id.
        """
        bag = ", ".join(quote(name) for name in (RID, TIME, *self.match.right.output))
        kept = "TRUE" if self.match.outer else self.step.matches()
        columns = [f"l.{quote(RID)}", f"l.{quote(TIME)}", *self.match.output(Side.RIGHT, self.step.matches())]
        now = f"SELECT {', '.join(columns)} FROM {self.step.joined()} WHERE {kept} AND {part.test(f'l.{quote(RID)}')}"
        # a number distinguishes equal results of one row
        nth = f"row_number() OVER (PARTITION BY {bag}) AS nth"
        both = (
            f"SELECT {bag}, NULL AS id, 1 AS w, {nth} FROM ({now}) UNION ALL "
            f"SELECT {bag}, {quote(ID)} AS id, -1 AS w, {nth} FROM known"
        )
        # rows of one side only; not by the sum of w, whose range DuckDB 2.0 gets wrong above an outer join
        changed = f"SELECT {bag}, max(id) AS id, max(w) AS w FROM ({both}) GROUP BY {bag}, nth HAVING count(*) = 1"
        new = f"'{self.first_rid}:' || CAST({numbered} + row_number() OVER () AS VARCHAR)"
        return (
            f"SELECT {bag}, CAST(w AS TINYINT) AS {quote(WEIGHT)}, coalesce(id, {new}) AS {quote(ID)} FROM ({changed})"
        )

    def changes(self, part: _Part) -> str:
        """Return SQL for the results to emit of a part of the left rows."""
        left = ", ".join(self.match.output(Side.LEFT))
        right = ", ".join(f"d.{quote(name)}" for name in self.match.right.output)
        # a row without a time is not stored: its results carry its own id, with a prefix
        id = f"CASE WHEN l.{quote(TIME)} IS NULL THEN {_KEPT_ID} ELSE d.{quote(ID)} END AS {quote(ID)}"
        columns = ", ".join(filter(None, (left, right, f"d.{quote(WEIGHT)}", id if self.kernel.gives_ids else "")))
        rows = f"{self.columns('waiting')} UNION ALL {self.columns('retracted')}"
        changed, own = (f"(SELECT * FROM {each} WHERE {part.test()})" for each in ("difference", f"({rows})"))
        return f"SELECT {columns} FROM {changed} AS d JOIN {own} AS l USING ({quote(RID)})"

    def untimed_retractions(self) -> str:
        """Return SQL for retracted padded rows of left rows without a time: these match nothing and are not stored."""
        padding = self.match.output(Side.RIGHT, "FALSE")
        columns = [*self.match.output(Side.LEFT), *padding, f"CAST(-1 AS TINYINT) AS {quote(WEIGHT)}"]
        columns += [f"{_KEPT_ID} AS {quote(ID)}"] if self.kernel.gives_ids else []
        where = f"l.{quote(TIME)} IS NULL" if self.match.outer else "FALSE"
        return (
            f"SELECT {', '.join(columns)} FROM left_retractions AS l LEFT JOIN candidates AS r ON FALSE WHERE {where}"
        )

    # -- state -----------------------------------------------------------------------------------------------------

    def keep_left(self, of_rows: int) -> None:
        """Store new left rows, the ids of retracted ones, and the results of this step: so many rows, or a few more.

        A right row may revise the results of any number of left rows.
        """
        final = self.kernel.final_before(self.frontiers.after, self.frontiers.inputs[Side.RIGHT.index])
        names = ", ".join(quote(name) for name in (RID, ID, TIME, WEIGHT, *self.match.right.output))
        lasting = f"{quote(TIME)} >= {final}"
        new = {
            _LEFT: f"{self.columns('left_new')} WHERE {lasting}",
            _SHOWN: f"SELECT {names} FROM difference WHERE {lasting}",
            _GONE: f"SELECT {quote(RID)}, {quote(TIME)} FROM retracted WHERE {lasting}",
        }
        if self.match.direction in (Direction.FORWARD, Direction.NEAREST):
            found = f"r.{quote(TIME)} AS {quote(_FOUND)}, {self.first_rid} AS {quote(_STEP)}"
            picked = f"SELECT l.{quote(RID)}, l.{quote(TIME)}, {found} FROM {self.step.joined()}"
            new[_PICKED] = f"SELECT * FROM ({picked}) WHERE {lasting}"
        self.result.forget |= dict.fromkeys((*new, *_SETTLED.values()), final)
        unsettled, settled = (sum(map(self.step.count_until, names)) for names in (_SETTLED, _SETTLED.values()))
        if unsettled >= max(MIN_SETTLED, settled):
            self.settle(new, final)
            return
        for relation, rows in new.items():
            self.result.store_made[relation] = made(self.state, rows, of_rows)

    def settle(self, new: dict[str, str], final: int) -> None:
        """Rewrite left rows and their standing results, without those that are final or retracted."""
        stored = self.live()
        rows = new[_LEFT] if stored is None else f"{new[_LEFT]} UNION ALL {self.columns(stored)}"
        emitted = sum(map(self.state.most_rows, (_SHOWN, _SETTLED[_SHOWN])))
        results = self.standing([f"({new[_SHOWN]})", *self.stored(_SHOWN)], emitted)
        there = f"{quote(TIME)} >= {final} AND {quote(RID)} NOT IN (SELECT {quote(RID)} FROM retracted)"
        rows = f"SELECT * FROM ({rows}) WHERE {there}"
        picked = [f"SELECT * FROM {scan}" for scan in self.stored(_PICKED)]
        picked += [new[_PICKED]] if _PICKED in new else []
        if picked:
            rows = self.not_final(rows, picked, self.frontiers.after)
        kept = self.state.tables.make("lasting", rows)
        of_lasting = f"WHERE {quote(RID)} IN (SELECT {quote(RID)} FROM lasting)"
        replace = self.result.replace
        for relation, columns in new.items():
            replace[relation] = self.state.query(f"SELECT * FROM ({columns}) LIMIT 0")
        replace[_SETTLED[_LEFT]] = made(self.state, "SELECT * FROM lasting", kept)
        shown = f"SELECT *, CAST(1 AS TINYINT) AS {quote(WEIGHT)} FROM ({results}) {of_lasting}"
        replace[_SETTLED[_SHOWN]] = made(self.state, shown, kept, joins_as_written=self.state.has_little_memory)
        if picked:
            latest = f"SELECT * FROM ({' UNION ALL '.join(picked)}) {of_lasting}"
            number = f"row_number() OVER (PARTITION BY {quote(RID)} ORDER BY {quote(_STEP)} DESC)"
            replace[_SETTLED[_PICKED]] = made(self.state, f"{latest} QUALIFY {number} = 1", kept)
