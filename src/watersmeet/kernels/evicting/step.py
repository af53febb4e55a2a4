"""The end of a batch of a join with limits: which rows are evicted, and what becomes of them (join.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import MATCHED, RID, TIME
from watersmeet.errors import LimitError
from watersmeet.kernels import api
from watersmeet.kernels.api import (
    FOREVER,
    NEVER,
    EmitMode,
    Evicted,
    Rows,
    Side,
    StateView,
    StepResult,
    followed_by,
    made_in_turn,
    quote,
)
from watersmeet.kernels.evicting import used_keys
from watersmeet.kernels.evicting.limits import Limits, Policy
from watersmeet.kernels.evicting.used_keys import USED
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.interval_step import padded_sql
from watersmeet.kernels.match import marks_of, number_rows
from watersmeet.kernels.row_bytes import row_bytes_sql, row_width, table_bytes

#: Under pressure, rows are evicted until the state takes this share of what it may.
_LOW_WATERMARK = 0.75
#: Times are counted in so many spans.
_SPANS = 1_000
#: Last uses are compacted above so many entries for each stored row, but not while there are few.
_MAX_ENTRIES_PER_ROW, _FEW_ENTRIES = 2, 1_000


def evict(
    join: IntervalJoin,
    limits: Limits,
    state: StateView,
    inputs: Mapping[int, pa.Table],
    result: StepResult,
) -> None:
    """In the last step of a batch, evict what exceeds the limits from the state that ``result`` leads to.

    ``result`` is changed accordingly.  Steps before the last only note which keys are used.

    Raises ``LimitError`` where the policy is to stop, or a row alone takes more than the join may hold.
    """
    step = _Step(join, limits, state, inputs, result)
    if limits.policy is Policy.LRU:
        step.new_uses = result.store[USED] = used_keys.newly_used(join.match, state, inputs)
        if state.batch.is_last:
            step.compact_last_uses()
    elif state.stored_bytes(USED, NEVER):  # the query ran with another policy before
        result.replace[USED] = pa.table({TIME: pa.array([], pa.int64())})
    if not state.batch.is_last:
        return
    if limits.max_rows_per_key is not None:
        for side in Side:
            step.cap_keys(side, limits.max_rows_per_key)
    if limits.policy.evicts_at_limit and state.max_bytes is not None and step.all_bytes() > state.max_bytes:
        step.free_bytes(state.max_bytes)


@dataclass(slots=True)
class _Step:
    """The rows that would be stored after a batch, and those of them that are evicted."""

    join: IntervalJoin
    limits: Limits
    state: StateView
    inputs: Mapping[int, pa.Table]
    result: StepResult
    new_uses: pa.Table | None = None
    last: tuple[str, int] | None = None  # the table of last uses, once it is made, and its rows

    # -- what exceeds the limits -----------------------------------------------------------------------------------

    def cap_keys(self, side: Side, most: int) -> None:
        """Evict the oldest rows beyond ``most`` of each key of a side that the batch brought rows of."""
        new, match = self.result.store[side.value], self.join.match
        if not self.state.batch.is_first:  # earlier steps of the batch have stored others
            rows = f"{self.live(side)} WHERE {quote(RID)} >= {self.state.batch.first_rid}"
            arrived: pa.Table | str = f"(SELECT DISTINCT {', '.join(map(quote, match.key_columns(side)))} FROM {rows})"
        elif new.num_rows:
            arrived = match.probes(side, new)
        else:
            return
        closed = self.result.forget[side.value]
        stored = self.state.rows_with_keys(side.value, match.key_columns(side), arrived, closed)
        names = used_keys.key_names(match)
        known = [f"{name} IS NOT NULL" for name, key in zip(names, match.keys, strict=True) if not key.null_safe]
        by = ", ".join(names)
        held = self.measured(side, self.rows(side, stored))
        many = f"SELECT {by} FROM {held} GROUP BY {by} HAVING count(*) > {most}"
        surplus, count = self.table(
            f"SELECT rid, t, bytes, {by} FROM {held} AS held SEMI JOIN ({many}) AS many"
            f" ON {used_keys.same_key(match, 'held', 'many')} WHERE {' AND '.join(known) or 'TRUE'}"
            f" QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY time DESC, tie_breaker DESC, rid DESC) > {most}"
        )
        if count and self.limits.policy is Policy.STOP:
            raise self.too_many_rows(side, self.query(f"SELECT {by} FROM {surplus} LIMIT 1").to_pylist()[0])
        self.evict(side, surplus, count, Policy.PER_KEY)

    def free_bytes(self, most: int) -> None:
        """Evict rows by the policy until the state takes at most ``most`` bytes, or less under pressure."""
        self.remove_closed_rows()
        held = self.held()
        sizes = f"SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT), CAST(coalesce(max(bytes), 0) AS BIGINT) FROM {held}"
        total, largest = (column[0].as_py() for column in self.query(sizes).columns)
        if largest > self.limits.max_bytes:
            raise self.too_large(largest)
        if self.limits.policy is Policy.LRU:
            gone = self.least_used(total - most)
        else:
            gone = self.oldest(total - self.target_bytes(total, most))
        for side in Side:
            of_side = self.table(f"SELECT rid, t, bytes FROM {gone} WHERE side = {side.index}")
            self.evict(side, *of_side, self.limits.policy)
        self.state.tables.drop(gone)

    def compact_last_uses(self) -> None:
        """Keep the last use alone, of keys that have rows, if there are many more entries than rows."""
        entries = self.state.count(USED, NEVER)
        rows = sum(self.state.count(side.value, self.result.forget[side.value]) for side in Side)
        is_needed = entries > _MAX_ENTRIES_PER_ROW * rows + _FEW_ENTRIES or (entries and not rows)
        if not is_needed:
            return
        used, entries = self.last_uses()
        live = f"SELECT 1 FROM {self.held()} AS held WHERE {used_keys.same_key(self.join.match, 'held', 'used')}"
        self.last = self.table(f"SELECT * FROM {used} AS used WHERE EXISTS ({live})")
        self.result.replace[USED] = self.made([f"SELECT * FROM {self.last[0]}"], entries)

    def last_uses(self) -> tuple[str, int]:
        """Return a table of the last use of each key, and how many there are.

        Those of this step are among them, and are no longer stored by themselves.
        """
        if self.last is None:
            new = self.result.store.pop(USED)
            self.last = self.table(used_keys.last_used(self.join.match, self.state, new))
        return self.last

    def target_bytes(self, total: int, most: int) -> int:
        """Return how many bytes may stay; without rows that are closed it may be few enough already."""
        is_pressed = self.limits.policy is Policy.PRESSURE and total > most
        return int(most * _LOW_WATERMARK) if is_pressed else most

    def remove_closed_rows(self) -> None:
        """Remove rows below the closed time from segments that hold others too."""
        for side in Side:
            for relation in (side.value, marks_of(side)):
                closed = self.result.forget[relation]
                past = self.state.scan(relation, NEVER, closed - 1) if closed != NEVER else None
                if past is not None:
                    ids = f"SELECT {quote(RID)} AS rid, {quote(TIME)} AS t FROM {past}"
                    self.remove(relation, self.table(ids)[0])

    def oldest(self, excess: int) -> str:
        """Return a table of the oldest rows that together take at least ``excess`` bytes: side, rid, t and bytes.

        No row takes less than its fixed part.  So the rows up to a time are enough, and only they are put in order.
        """
        enough = max(excess, 0) // min(row_width(self.result.store[side.value].schema) for side in Side)
        old, _ = self.table(f"SELECT * FROM {self.held()} WHERE time <= {self.time_of(enough)}")
        gone, _ = self.table(
            f"SELECT side, rid, t, bytes FROM {old} QUALIFY {excess} > "
            "sum(bytes) OVER (ORDER BY time, tie_breaker, side, rid ROWS UNBOUNDED PRECEDING) - bytes"
        )
        self.state.tables.drop(old)
        return gone

    def time_of(self, rows: int) -> int:
        """Return a time up to which more than so many rows are held, if there are so many: not much later than need be.

        All times are divided into equal spans, whose rows are counted; rows without a time are before them.
        """
        held, is_dated = self.held(), f"time > {NEVER}"
        first, last, undated = (
            column[0].as_py()
            for column in self.query(
                f"SELECT min(time) FILTER ({is_dated}), max(time), count(*) FILTER (NOT {is_dated}) FROM {held}"
            ).columns
        )
        if first is None:
            return NEVER
        width = (last - first) // _SPANS + 1
        counts = self.query(
            f"SELECT CAST((CAST(time AS HUGEINT) - {first}) // {width} AS INT) AS span, count(*) AS n FROM {held} "
            f"WHERE {is_dated} GROUP BY ALL ORDER BY ALL"
        )
        upto = np.cumsum(counts["n"].to_numpy()) + undated
        place = int(np.searchsorted(upto, rows, side="right"))
        return FOREVER if place == len(upto) else first + (counts["span"][place].as_py() + 1) * width - 1

    def least_used(self, excess: int) -> str:
        """Return a table of the rows of keys not used for longest, as ``oldest`` does; note when the others were."""
        match = self.join.match
        by, same_key = ", ".join(used_keys.key_names(match)), partial(used_keys.same_key, match)
        held, _ = self.table(f"SELECT * FROM {self.held()}")
        used, entries = self.last_uses()
        keys, _ = self.table(
            f"SELECT held.*, coalesce({quote(TIME)}, {NEVER}) AS used, coalesce(size, 0) AS size"
            f" FROM (SELECT {by}, sum(bytes) AS bytes, min(time) AS oldest FROM {held} GROUP BY {by}) AS held"
            f" LEFT JOIN (SELECT *, {self.bytes_of_use} AS size FROM {used}) AS used"
            f" ON {same_key('held', 'used')}"
        )
        excess += self.total("size", keys)
        order = f"ORDER BY used, oldest, hash({by}) ROWS UNBOUNDED PRECEDING"
        freed = f"sum(bytes + size) OVER ({order}) - bytes - size"
        gone, _ = self.table(f"SELECT {by} FROM {keys} QUALIFY {freed} < {excess}")
        live = f"SELECT 1 FROM {held} AS held WHERE {same_key('held', 'used')}"
        evicted = f"SELECT 1 FROM {gone} AS gone WHERE {same_key('gone', 'used')}"
        stays = f"SELECT * FROM {used} AS used WHERE EXISTS ({live}) AND NOT EXISTS ({evicted})"
        self.result.replace[USED] = self.made([stays], entries)
        rows = f"{held} AS held JOIN {gone} AS gone ON {same_key('held', 'gone')}"
        return self.table(f"SELECT side, rid, t, held.bytes FROM {rows}")[0]

    # -- rows ------------------------------------------------------------------------------------------------------

    def held(self) -> str:
        """Return SQL for the rows of both sides, measured."""
        return f"({' UNION ALL '.join(f'SELECT * FROM {self.measured(side, self.live(side))}' for side in Side)})"

    def live(self, side: Side) -> str:
        """Return SQL for all rows of a side that would be stored and may still find a partner."""
        return self.rows(side, self.state.scan(side.value, self.result.forget[side.value]))

    def parts(self, side: Side) -> list[str]:
        """Return SQL for all rows of a side that would be stored, in parts."""
        new = self.result.store[side.value]
        columns = ", ".join(map(quote, new.column_names))
        stored = [f"(SELECT {columns} FROM {part})" for part in self.state.parts(side.value)]
        return [*stored, self.state.register(new)]

    def rows(self, side: Side, stored: str | None) -> str:
        """Return SQL for some stored rows of a side and its new ones, without those that are evicted."""
        new = self.result.store[side.value]
        fresh = f"SELECT * FROM {self.state.register(new)}"
        if stored is None:
            return f"({fresh})"
        columns = ", ".join(map(quote, new.column_names))
        stays = [f"NOT EXISTS (SELECT 1 FROM {gone} WHERE rid = {quote(RID)})" for gone in self.gone(side.value)]
        return f"(SELECT {columns} FROM {stored} WHERE {' AND '.join(stays) or 'TRUE'} UNION ALL {fresh})"

    def measured(self, side: Side, rows: str) -> str:
        """Return SQL for rows by side, with rid, ``$t``, event time, keys, bytes, and a hash of values."""
        schema = self.result.store[side.value].schema
        values = ", ".join(quote(name) for name in schema.names if name not in (RID, MATCHED))
        keys = "".join(f", {key}" for key in used_keys.keys_of(self.join.match, side))
        time = f"coalesce({quote(self.join.match.time_column(side))}, {NEVER})"
        return (
            f"(SELECT {side.index} AS side, {quote(RID)} AS rid, {quote(TIME)} AS t, {time} AS time{keys},"
            f" {row_bytes_sql(schema)}{self.mark_bytes(side)} AS bytes, hash({values}) AS tie_breaker FROM {rows})"
        )

    def mark_bytes(self, side: Side) -> str:
        """Return SQL for what the mark of a row takes, if it has one, as a term to add."""
        if (new := self.result.store.get(marks_of(side))) is None:
            return ""
        stored = self.state.scan(marks_of(side))
        marks = [f"SELECT {quote(RID)} FROM {each}" for each in (stored, self.state.register(new)) if each is not None]
        return f" + CASE WHEN {quote(RID)} IN ({' UNION ALL '.join(marks)}) THEN {row_width(new.schema)} ELSE 0 END"

    def all_bytes(self) -> int:
        """Return what all relations would take."""
        return sum(map(self.bytes_of, (*(side.value for side in Side), *map(marks_of, Side), USED)))

    def bytes_of(self, relation: str) -> int:
        """Return what a relation would take: new rows, and segments that are not forgotten as a whole."""
        if relation in self.result.replace:  # last uses: those that are left, or none
            return self.total(self.bytes_of_use, self.last[0]) if self.last is not None else 0
        new, low = self.result.store.get(relation), self.result.forget.get(relation, NEVER)
        return self.state.stored_bytes(relation, low) + (0 if new is None else table_bytes(new))

    def total(self, sql: str, rows: str) -> int:
        """Return a sum over rows."""
        found = self.query(f"SELECT CAST(coalesce(sum({sql}), 0) AS BIGINT) FROM {rows}")
        return int(found.column(0)[0].as_py())

    @property
    def bytes_of_use(self) -> str:
        """SQL for what the last use of a key takes."""
        assert self.new_uses is not None
        return row_bytes_sql(self.new_uses.schema)

    # -- what becomes of rows --------------------------------------------------------------------------------------

    def evict(self, side: Side, gone: str, count: int, reason: Policy) -> None:
        """Evict the rows in a table, which has their rid, t and bytes: count and remove them.

        Emit those that could still have been emitted alone.
        """
        if not count:
            return
        name = self.limits.names[side.index]
        self.result.counters[f"evicted.{name}.{reason.value}"] = count
        if reason is not Policy.PER_KEY:  # a larger limit of bytes would not keep these
            self.result.evicted_bytes += self.total("bytes", gone)
        rows = [f"(SELECT * FROM {part} SEMI JOIN {gone} ON rid = {quote(RID)})" for part in self.parts(side)]
        if self.join.emit is EmitMode.FINAL and self.join.match.kind.emits_unmatched(side):
            self.emit_unmatched(side, rows, count)
        if self.limits.keeps_rows:
            evicted = self.made((f"SELECT * FROM {part}" for part in rows), count)
            self.result.evicted.append(Evicted(side.index, reason.value, evicted))
        self.remove(side.value, gone)
        self.remove(marks_of(side), gone)

    def emit_unmatched(self, side: Side, rows: Iterable[str], count: int) -> None:
        """Add those of ``count`` evicted ``rows``, in parts, that never had a partner to the results, padded."""
        marks = [self.state.scan(marks_of(side)), self.state.register(self.result.store[marks_of(side)])]
        marked = " UNION ALL ".join(f"SELECT {quote(RID)} FROM {each}" for each in marks if each is not None)
        alone = f"NOT {quote(MATCHED)} AND {quote(RID)} NOT IN ({marked})"
        match, other = self.join.match, side.other
        none = match.arriving(other, number_rows(self.inputs[other.index].slice(0, 0), 0), self.state)
        nothing = self.state.register(none)
        padded = self.made((padded_sql(match, side, part, alone, other=nothing) for part in rows), count)
        assert self.result.changes is not None
        self.result.changes = followed_by(self.result.changes, padded)

    def remove(self, relation: str, gone: str) -> None:
        """Remove the rows in a table from a relation, stored ones and new ones."""
        if (new := self.result.store.get(relation)) is not None:
            ids = self.state.register(new.select([RID]))
            removed = self.query(f"SELECT {quote(RID)} FROM {ids} SEMI JOIN {gone} ON rid = {quote(RID)}")[RID]
            self.result.store[relation] = new.filter(pc.invert(pc.is_in(new[RID], value_set=removed)))
        self.result.evict.setdefault(relation, []).append(gone)

    def gone(self, relation: str) -> Sequence[str]:
        """Return the tables of rows that have been removed from a relation."""
        return self.result.evict.get(relation, ())

    # -- queries -----------------------------------------------------------------------------------------------------
    # DuckDB underestimates how many rows are stored, and would build its hash tables of them.  With little memory,
    # joins run as they are written.

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a query."""
        return self.state.query(sql, joins_as_written=self.state.has_little_memory)

    def table(self, sql: str) -> tuple[str, int]:
        """Make a table of the rows of a query; return its name, and how many they are.

        Few rows of a small step are registered instead: DuckDB takes milliseconds to make a table.
        """
        if sum(rows.num_rows for rows in self.inputs.values()) < api.MANY_ROWS and self.state.batch.is_first:
            rows = api.few(self.state, f"SELECT * FROM ({sql})", joins_as_written=self.state.has_little_memory)
            if rows is not None:
                return self.state.register(rows), rows.num_rows
        return self.state.tables.add(sql, joins_as_written=self.state.has_little_memory)

    def made(self, selects: Iterable[str], of_rows: int) -> Rows:
        """Return the rows of several queries; see ``made_in_turn``."""
        return made_in_turn(self.state, selects, of_rows, joins_as_written=self.state.has_little_memory)

    # -- errors ----------------------------------------------------------------------------------------------------

    def too_many_rows(self, side: Side, key: dict[str, Any]) -> LimitError:
        values = ["NULL" if value is None else repr(value) for value in key.values()]
        return LimitError(
            f"a key of {self.limits.names[side.index]} has more rows than max_rows_per_key = "
            f"{self.limits.max_rows_per_key:,} allows: ({', '.join(values)})",
            hint="raise max_rows_per_key and resume (nothing was lost), or use SETTINGS eviction = 'per_key' to keep "
            "only the newest rows of each key",
        )

    def too_large(self, size: int) -> LimitError:
        return LimitError(
            f"a row takes {size:,} bytes, and the whole join may hold {self.limits.max_bytes:,}: evicting all others "
            "would not make room for it",
            hint="raise join_max_buffered_bytes and resume; nothing was lost",
        )
