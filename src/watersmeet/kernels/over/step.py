"""One step of window functions over partitions, as DuckDB SQL over new and stored rows (kernel.py).

arrived   = input rows that pass ``where``, with keys, order and arguments computed
before    = stored rows of the partitions that arrived rows are in
after     = before, without those that arrived rows retract, + arrived rows
            append-only, with a limit: those up to the limit alone, unless their values take rows behind it
arrival   = the number of a row's batch, by which rows of a limit without an order are kept; those of one batch by their
            columns
emit      - ``before`` with its values, those that are results, + the same of ``after``, without what is in both
          final: + rows with their values, those that are results, of all partitions with F before < end <= F
store     + rows of ``after`` that were not stored, - rows of ``before`` that are not in ``after``
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import (
    FOREVER,
    NEVER,
    StateView,
    StepFrontiers,
    StepResult,
    in_one_table,
    made,
    quote,
    shift,
)
from watersmeet.kernels.changelog.stored_rows import StoredRows
from watersmeet.kernels.match import number_rows
from watersmeet.kernels.sql import names_sql, same_values

if TYPE_CHECKING:
    from watersmeet.kernels.over.kernel import Over, Value

ROWS = "rows"
_ARRIVAL = "$arrival"
_MOST_NARROWED = 1_000_000  # DuckDB's max(x, n) takes no more


def run(kernel: Over, state: StateView, rows: pa.Table, first_rid: int, frontiers: StepFrontiers) -> StepResult:
    """Apply new and retracted rows."""
    arriving = state.register(number_rows(rows, first_rid))
    return _Step(kernel, state, arriving, frontiers).run()


@dataclass(slots=True)
class _Step:
    """One step over the tables ``arrived``, ``before`` and ``after``."""

    kernel: Over
    state: StateView
    arriving: str
    frontiers: StepFrontiers
    result: StepResult = field(default_factory=StepResult)

    @property
    def stored(self) -> StoredRows:
        return StoredRows(self.state, ROWS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.kernel.keys)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.kernel.output)

    @property
    def columns(self) -> str:
        """What is stored of a row, beside its time."""
        order = (name for name, _, _ in self.kernel.order)
        arguments = (name for name, _ in self.kernel.arguments)
        hidden = (RID, ID) if self.kernel.changes else (RID,)
        if self.kernel.by_arrival:
            hidden = (_ARRIVAL, *hidden)
        return names_sql((*self.keys, *order, *arguments, *map(_kept, self.outputs), *hidden))

    @property
    def low(self) -> int:
        """The first end of a partition that has not ended."""
        return NEVER if self.kernel.end is None else shift(self.frontiers.after, 1)

    def run(self) -> StepResult:
        ends = self.kernel.final and self.frontiers.before != self.frontiers.after
        if self.kernel.end is not None:
            self.result.forget = dict.fromkeys(self.stored.relations, self.low)
        tables = self.state.tables
        is_new = tables.make("arrived", self.arrived()) > 0
        if not (is_new or ends or self.emits_earlier_steps):
            return self.result
        touched = self.find()
        touched += tables.make("after", self.after())
        if ends:
            due = self.state.most_rows(ROWS, self.low_stored, self.frontiers.after)
            self.result.changes = made(self.state, self.ended(touched + due), touched + due)
        elif not self.kernel.final and not self.waits_for_batch:
            self.result.changes = made(self.state, self.difference(), touched)
        if is_new:
            self.keep()
        return self.result

    @property
    def waits_for_batch(self) -> bool:
        """Whether rows of later steps of the batch may be before those of this one, which would stay results."""
        return self.kernel.once and not self.state.batch.is_last

    @property
    def emits_earlier_steps(self) -> bool:
        """Whether rows of earlier steps of the batch are results now."""
        batch = self.state.batch
        return self.kernel.once and batch.is_last and not batch.is_first

    # -- rows ------------------------------------------------------------------------------------------------------

    def arrived(self) -> str:
        """Return SQL for the input rows with keys, order and results computed."""
        kernel = self.kernel
        items = [f"{sql} AS {quote(name)}" for name, sql, _ in kernel.keys]
        items += [f"{sql} AS {quote(name)}" for name, sql, _ in kernel.order]
        items += [f"{sql} AS {quote(name)}" for name, sql in kernel.arguments]
        items += [f"{sql} AS {quote(_kept(name))}" for name, sql in kernel.output]
        items.append(quote(RID))
        items += [quote(ID), quote(WEIGHT)] if kernel.changes else []
        rows = f"SELECT {', '.join(items)} FROM {self.arriving} WHERE {kernel.where or 'TRUE'}"
        if kernel.by_arrival:
            rows = self.numbered(rows)
        if self.is_narrowed:
            rows = self.first_arrived(rows)
        return f"SELECT *, CAST({kernel.end or 0} AS BIGINT) AS {quote(TIME)} FROM ({rows})"

    def numbered(self, rows: str) -> str:
        """Return SQL for the arrived rows that may be among the first, with the number of their batch.

        It is the id of the batch's first row, plus one: rows of earlier batches have at most that id.
        """
        assert self.kernel.limit is not None
        by = ", ".join([*(f"{quote(_kept(name))} NULLS FIRST" for name in self.outputs), quote(RID)])
        number = f"CAST({self.state.batch.first_rid + 1} AS BIGINT) AS {quote(_ARRIVAL)}"
        # most rows come when the first have long been there
        return f"SELECT *, {number} FROM (SELECT * FROM ({rows}) ORDER BY {by} LIMIT {self.kernel.limit[1]})"

    @property
    def is_narrowed(self) -> bool:
        """Whether arrived rows can be left out: to DENSE_RANK the n-th row does not tell the n-th value."""
        kernel = self.kernel
        if kernel.limit is None or not kernel.keeps_first or not kernel.order or kernel.limit[1] >= _MOST_NARROWED:
            return False
        return kernel.limit[1] == 1 or not any("dense_rank" in value.call for value in kernel.values)

    def first_arrived(self, rows: str) -> str:
        """Return SQL for the arrived rows that may be first, by the first term of the order alone.

        The rows behind the value of the last one within the limit are left out, before anything is sorted.
        """
        assert self.kernel.limit is not None
        _, limit = self.kernel.limit
        name, _, descending = self.kernel.order[0]
        value, by = quote(name), names_sql(self.keys)
        end, ahead = ("max", ">=") if descending else ("min", "<=")
        last = (
            f"{end}({value})"
            if limit == 1
            else f"CASE WHEN count({value}) >= {limit} THEN {end}({value}, {limit})[-1] END"
        )
        group = f" GROUP BY {by}" if by else ""
        same = same_values("t", "r", self.keys)
        nulls = "" if descending else f" OR r.{value} IS NULL"  # in ascending order they are first
        kept = f"t.last IS NULL OR r.{value} {ahead} t.last{nulls}"
        ends = f"SELECT {by + ', ' if by else ''}{last} AS last FROM r{group}"
        return f"WITH r AS ({rows}), t AS ({ends}) SELECT r.* FROM r JOIN t ON {same} AND ({kept})"

    @property
    def order(self) -> list[str]:
        if self.kernel.by_arrival:
            return [quote(_ARRIVAL)]
        return [
            f"{quote(name)} {'DESC NULLS LAST' if descending else 'ASC NULLS FIRST'}"
            for name, _, descending in self.kernel.order
        ]

    def find(self) -> int:
        """Make the table of stored rows of the partitions that arrived rows are in; return how many they are."""
        rows = "" if self.emits_earlier_steps else " FROM arrived"
        probes = self.state.query(f"SELECT DISTINCT {names_sql(self.keys) or '1 AS one'}{rows}")
        touched = self.state.register(probes)
        same = same_values("p", "s", self.keys)
        where = f"EXISTS (SELECT 1 FROM {touched} AS p WHERE {same})"
        with self.stored.find(self.keys, probes, where, self.low_stored, FOREVER) as found:
            rows = found or "(SELECT * FROM arrived WHERE FALSE)"
            return self.state.tables.make("before", f"SELECT {self.columns}, {quote(TIME)} FROM {rows} AS s")

    @property
    def low_stored(self) -> int:
        """The first end of a partition that had not ended before the step."""
        return NEVER if self.kernel.end is None else shift(self.frontiers.before, 1)

    def after(self) -> str:
        """Return SQL for the rows of touched partitions that hold after the step; if none is retracted, the first."""
        columns = f"{self.columns}, {quote(TIME)}"
        if not self.kernel.changes:
            rows = f"SELECT {columns} FROM before UNION ALL SELECT {columns} FROM arrived"
            return f"SELECT {columns} FROM ({self.with_values(f'({rows})')})" if self.kernel.keeps_first else rows
        gone = f"SELECT {quote(ID)} FROM arrived WHERE {quote(WEIGHT)} < 0"
        return (
            f"SELECT {columns} FROM before WHERE {quote(ID)} IS NULL OR {quote(ID)} NOT IN ({gone}) "
            f"UNION ALL SELECT {columns} FROM arrived WHERE {quote(WEIGHT)} > 0"
        )

    def with_values(self, rows: str) -> str:
        """Return SQL for rows with their values, up to the limit."""
        values = [f"{self.over(value)} AS {quote(value.name)}" for value in self.kernel.values]
        found = f"SELECT {', '.join(('*', *values))} FROM {rows}"
        if self.kernel.limit is None:
            return found
        name, limit = self.kernel.limit
        return f"SELECT * FROM ({found}) WHERE {quote(name)} <= {limit}"

    def results(self, rows: str) -> str:
        """Return SQL for the rows that are results, with their values."""
        found, kernel = self.with_values(rows), self.kernel
        if kernel.limit is None or not kernel.skipped:
            return found
        return f"SELECT * FROM ({found}) WHERE {quote(kernel.limit[0])} > {kernel.skipped}"

    def over(self, value: Value) -> str:
        """Return SQL for a value of each row."""
        kept = (*(name for name, _ in self.kernel.arguments), *map(_kept, self.outputs))
        full = [*self.order, *(f"{quote(name)} NULLS FIRST" for name in kept), quote(RID)]
        order = full if value.tied and (self.order or self.kernel.limit is not None) else self.order
        by = f"PARTITION BY {names_sql(self.keys)} " if self.keys else ""
        in_order = f"ORDER BY {', '.join(order)} " if order else ""
        return value.call.format(over=f"OVER ({by}{in_order}{value.frame})", order=", ".join(full))

    # -- results ---------------------------------------------------------------------------------------------------

    def emitted(self, rows: str, weight: int | None) -> str:
        """Return SQL for rows as results."""
        items = [f"{quote(_kept(name))} AS {quote(name)}" for name in self.outputs]
        items += map(quote, self.kernel.shown)
        if weight is not None:
            items.append(f"CAST({weight} AS TINYINT) AS {quote(WEIGHT)}")
        if self.kernel.gives_ids:
            items.append(f"{self.id_of_row()} AS {quote(ID)}")
        return f"SELECT {', '.join(items)} FROM {rows}"

    def id_of_row(self) -> str:
        """Return SQL for the name of a result: its row, and the values that it is shown with."""
        row = f"CAST({quote(RID)} AS VARCHAR)"
        if not self.kernel.shown:
            return row
        values = ", ".join(f"v{number} := {quote(name)}" for number, name in enumerate(self.kernel.shown))
        return f"{row} || ':' || md5(CAST(struct_pack({values}) AS VARCHAR))"

    def difference(self) -> str:
        """Return SQL for the changes of the results."""
        same = (RID, *self.kernel.shown)
        parts = []
        for rows, others, weight in (("was", "now", -1), ("now", "was", 1)):
            equal = same_values("o", "r", same)
            only = f"(SELECT * FROM {rows} AS r WHERE NOT EXISTS (SELECT 1 FROM {others} AS o WHERE {equal}))"
            parts.append(self.emitted(only, None if self.kernel.once else weight))
        if self.kernel.once:
            del parts[0]  # no row is displaced
        was, now = self.results(self.before_batch), self.results("after")
        return f"WITH was AS MATERIALIZED ({was}), now AS MATERIALIZED ({now}) {' UNION ALL '.join(parts)}"

    @property
    def before_batch(self) -> str:
        """SQL for the rows of touched partitions before the step; if results come once, before its batch."""
        if not self.kernel.once:
            return "before"
        return f"(SELECT * FROM before WHERE {quote(_ARRIVAL)} <= {self.state.batch.first_rid})"

    def ended(self, of_rows: int) -> str:
        """Return SQL for the results of the partitions that end, which have so many rows at most."""
        low, high, time = self.low_stored, self.frontiers.after, quote(TIME)
        columns = f"{self.columns}, {time}"
        parts = [f"SELECT {columns} FROM after WHERE {time} BETWEEN {low} AND {high}"]
        if (stored := self.stored.between(low, high)) is not None:
            untouched = f"{quote(RID)} NOT IN (SELECT {quote(RID)} FROM before)"
            parts.append(f"SELECT {columns} FROM {stored} AS s WHERE {untouched}")
        rows = in_one_table(self.state, " UNION ALL ".join(parts), of_rows)
        return self.emitted(f"({self.results(rows)})", None)

    # -- state -----------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Store rows that were not, and the ids of those that no longer hold."""
        rid, time = quote(RID), quote(TIME)
        new = f"SELECT {self.columns}, {time} FROM after WHERE {rid} NOT IN (SELECT {rid} FROM before)"
        gone = f"SELECT {rid}, {time} FROM before WHERE {rid} NOT IN (SELECT {rid} FROM after)"
        lasting = f" AND {time} >= {self.low}"
        self.result.store[self.stored.relation] = self.state.query(new + lasting)
        self.result.store[self.stored.gone] = self.state.query(gone + lasting)
        self.stored.rewrite_if_due(self.result, f"s.{time} >= {self.low}")


def _kept(name: str) -> str:
    """Return the name under which a result column is stored: another column may have its own."""
    return f"={name}"
