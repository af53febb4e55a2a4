"""One step of window functions in the order of event time, as DuckDB SQL over new and stored rows (in_time.py).

arrived   = input rows that pass ``where``, with keys, order and arguments computed
due       = new and stored rows with F before <= t < F
context   = kept rows before those, of the partitions of due rows
framed    = due rows with their values over frames of context and due rows
valued    = framed, with running values: those of the partition so far, and of due rows
emit      + valued, up to the limit
rows      stored: arrived rows with t >= F - time_before; forgotten: those with less
last      replaced, for the partitions of due rows: by their last ``rows_before`` rows
running   replaced, for the partitions of due rows: by what their running values have come to
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.columns import RID, TIME
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
from watersmeet.kernels.over.carried import totals_of
from watersmeet.kernels.sql import names_sql, same_values

if TYPE_CHECKING:
    from watersmeet.kernels.over.in_time import OverInTime

ROWS, LAST, RUNNING = "rows", "last", "running"
_DUE = "$due"


def run(kernel: OverInTime, state: StateView, rows: pa.Table, first_rid: int, frontiers: StepFrontiers) -> StepResult:
    """Apply new rows, and the frontier's advance."""
    arriving = state.register(number_rows(rows, first_rid))
    return _Step(kernel, state, arriving, frontiers).run()


@dataclass(slots=True)
class _Step:
    """One step over the tables that the module's text names."""

    kernel: OverInTime
    state: StateView
    arriving: str
    frontiers: StepFrontiers
    result: StepResult = field(default_factory=StepResult)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.kernel.keys)

    @property
    def columns(self) -> str:
        """What is stored of a row."""
        kernel = self.kernel
        order, arguments = (name for name, _, _ in kernel.order), (name for name, _ in kernel.arguments)
        return names_sql((*self.keys, *order, *arguments, *self.kept, RID, TIME))

    @property
    def kept(self) -> tuple[str, ...]:
        """The names under which result columns are stored: another column may have their own."""
        return tuple(f"={name}" for name, _ in self.kernel.output)

    @property
    def low(self) -> int:
        """The least time that frames of rows that are not final reach back to."""
        return shift(self.frontiers.after, -self.kernel.time_before)

    def run(self) -> StepResult:
        kernel, before, after = self.kernel, self.frontiers.before, self.frontiers.after
        self.result.forget = {ROWS: self.low}
        tables = self.state.tables
        tables.make("arrived", self.arrived())
        self.result.store[ROWS] = self.state.query(
            f"SELECT {self.columns} FROM arrived WHERE {quote(TIME)} >= {self.low}"
        )
        if before == after:
            return self.result
        due = tables.make("due", self.due())
        if due == 0:
            return self.result
        probes = self.state.query(f"SELECT DISTINCT {names_sql(self.keys) or '1 AS one'} FROM due")
        touched = self.state.register(probes)
        same = same_values("p", "s", self.keys)
        is_touched = f"EXISTS (SELECT 1 FROM {touched} AS p WHERE {same})"
        if kernel.rows_before:
            self.find(LAST, "last_before", probes, is_touched)
        tables.make("context", self.context(is_touched), joins_as_written=self.state.has_little_memory)
        tables.make("framed", self.framed())
        if kernel.running:
            self.find(RUNNING, "so_far", probes, is_touched)
        self.result.changes = made(self.state, self.results(), due)
        if kernel.rows_before:
            self.replace_last()
        if kernel.running:
            self.replace_running()
        return self.result

    # -- rows ------------------------------------------------------------------------------------------------------

    def arrived(self) -> str:
        """Return SQL for the input rows with keys, order and results computed."""
        kernel = self.kernel
        items = [f"{sql} AS {quote(name)}" for name, sql, _ in (*kernel.keys, *kernel.order)]
        items += [f"{sql} AS {quote(name)}" for name, sql in kernel.arguments]
        items += [f"{sql} AS {quote(kept)}" for kept, (_, sql) in zip(self.kept, kernel.output, strict=True)]
        items += [quote(RID), quote(TIME)]
        return f"SELECT {', '.join(items)} FROM {self.arriving} WHERE {kernel.where or 'TRUE'}"

    def due(self) -> str:
        """Return SQL for the rows whose times become final."""
        parts = [f"SELECT {self.columns} FROM arrived WHERE {quote(TIME)} < {self.frontiers.after}"]
        stored = self.state.scan(ROWS, self.frontiers.before, shift(self.frontiers.after, -1))
        if stored is not None:
            parts.append(f"SELECT {self.columns} FROM {stored}")
        return " UNION ALL ".join(parts)

    def find(self, relation: str, table: str, probes: pa.Table, where: str) -> None:
        """Make a table of the stored rows of a relation of touched partitions."""
        with StoredRows(self.state, relation).find(self.keys, probes, where, NEVER, FOREVER) as found:
            self.state.tables.make(table, f"SELECT * FROM {found}" if found is not None else self.empty(relation))

    def empty(self, relation: str) -> str:
        """Return SQL for no row of a relation."""
        if relation == LAST:
            return f"SELECT {self.columns} FROM due WHERE FALSE"
        return f"SELECT * FROM ({self.totals()}) WHERE FALSE"

    def context(self, is_touched: str) -> str:
        """Return SQL for the kept rows before those that are due: a last part of each partition."""
        parts = [f"SELECT {self.columns} FROM due WHERE FALSE"]
        if self.kernel.time_before and self.frontiers.before != NEVER:
            low = shift(self.frontiers.before, -self.kernel.time_before)
            if (stored := self.state.scan(ROWS, low, self.frontiers.before - 1)) is not None:
                parts.append(f"SELECT {self.columns} FROM {stored} AS s WHERE {is_touched}")
        if not self.kernel.rows_before:
            return " UNION ALL ".join(parts)
        parts.append(f"SELECT {self.columns} FROM last_before")
        rows = in_one_table(self.state, " UNION ALL ".join(parts), self.state.most_rows(ROWS))
        # a row may be kept for both
        return f"SELECT DISTINCT ON ({quote(RID)}) {self.columns} FROM {rows}"

    # -- values ----------------------------------------------------------------------------------------------------

    @property
    def partition(self) -> str:
        return f"PARTITION BY {names_sql(self.keys)} " if self.keys else ""

    def over(self, frame: str, *, tied: bool) -> str:
        """Return an OVER clause; with ``tied``, over rows in an order without ties."""
        return f"OVER ({self.partition}ORDER BY {', '.join(self.order(tied=tied))} {frame})"

    def order(self, *, tied: bool, backward: bool = False) -> list[str]:
        """Return the terms of the order."""
        found = [(TIME, False), *((name, descending) for name, _, descending in self.kernel.order)]
        if tied:
            arguments = (name for name, _ in self.kernel.arguments)
            found += [(name, False) for name in (*arguments, *self.kept, RID)]
        return [
            f"{quote(name)} {'DESC NULLS LAST' if descending != backward else 'ASC NULLS FIRST'}"
            for name, descending in found
        ]

    def framed(self) -> str:
        """Return SQL for the due rows with their values over frames."""
        rows = f"SELECT {self.columns}, FALSE AS {quote(_DUE)} FROM context"
        rows += f" UNION ALL SELECT {self.columns}, TRUE FROM due"
        order = ", ".join(self.order(tied=True))
        values = [
            f"{value.call.format(over=self.over(value.frame, tied=value.tied), order=order)} AS {quote(value.name)}"
            for value in self.kernel.framed
        ]
        return f"SELECT * FROM (SELECT {', '.join(('*', *values))} FROM ({rows})) WHERE {quote(_DUE)}"

    def results(self) -> str:
        """Return SQL for the due rows with all values, up to the limit, as results."""
        kernel = self.kernel
        items = [f"{quote(kept)} AS {quote(name)}" for kept, (name, _) in zip(self.kept, kernel.output, strict=True)]
        items += map(quote, kernel.shown)
        within = "TRUE" if kernel.limit is None else f"{quote(kernel.limit[0])} <= {kernel.limit[1]}"
        return f"SELECT {', '.join(items)} FROM ({self.valued()}) WHERE {within}"

    def valued(self) -> str:
        """Return SQL for the due rows with running values."""
        if not self.kernel.running:
            return "SELECT * FROM framed"
        same = same_values("c", "f", self.keys)
        now = [
            f"{sql} AS {quote(name)}"
            for each in self.kernel.running
            for name, sql in each.over_due(self.over(each.frame, tied=each.by_rows))
        ]
        rows = f"SELECT {', '.join(('*', *now))} FROM framed"
        values = [f"{each.value} AS {quote(each.name)}" for each in self.kernel.running]
        return f"SELECT f.*, {', '.join(values)} FROM ({rows}) AS f LEFT JOIN so_far AS c ON {same}"

    # -- state -----------------------------------------------------------------------------------------------------

    def replace_last(self) -> None:
        """Keep the last rows of each partition of due rows."""
        stored, most, rid = StoredRows(self.state, LAST), self.kernel.rows_before, quote(RID)
        rows = f"SELECT {self.columns} FROM context UNION ALL SELECT {self.columns} FROM due"
        place = f"row_number() OVER ({self.partition}ORDER BY {', '.join(self.order(tied=True, backward=True))})"
        last = f"SELECT {self.columns} FROM ({rows}) QUALIFY {place} <= {most}"
        self.result.store[stored.relation] = self.state.query(
            f"SELECT * FROM ({last}) WHERE {rid} NOT IN (SELECT {rid} FROM last_before)"
        )
        self.result.store[stored.gone] = self.state.query(
            f"SELECT {rid}, {quote(TIME)} FROM last_before WHERE {rid} NOT IN (SELECT {rid} FROM ({last}))"
        )
        stored.rewrite_if_due(self.result, "TRUE")

    def replace_running(self) -> None:
        """Keep what the running values of each partition of due rows have come to."""
        stored = StoredRows(self.state, RUNNING)
        self.result.store[stored.relation] = self.state.query(self.totals_now())
        self.result.store[stored.gone] = self.state.query(f"SELECT {quote(RID)}, {quote(TIME)} FROM so_far")
        stored.rewrite_if_due(self.result, "TRUE")

    def totals(self) -> str:
        """Return SQL for the running values of the due rows alone, by partition; each has the id of one of them."""
        order = ", ".join(self.order(tied=True))
        terms = (TIME, *(name for name, _, _ in self.kernel.order))
        place = f"struct_pack({', '.join(f'o{number} := {quote(name)}' for number, name in enumerate(terms))})"
        items = [*map(quote, self.keys), *totals_of(self.kernel.running, place, order)]
        items += [f"max({quote(RID)}) AS {quote(RID)}", f"CAST(0 AS BIGINT) AS {quote(TIME)}"]
        by = f" GROUP BY {names_sql(self.keys)}" if self.keys else ""
        return f"SELECT {', '.join(items)} FROM due{by}"

    def totals_now(self) -> str:
        """Return SQL for the running values of touched partitions, with all rows so far."""
        same = same_values("c", "f", self.keys)
        items = [f"f.{quote(key)}" for key in self.keys]
        items += [f"{sql} AS {quote(name)}" for each in self.kernel.running for name, sql in each.kept_now()]
        items += [f"f.{quote(RID)}", f"f.{quote(TIME)}"]
        return f"SELECT {', '.join(items)} FROM ({self.totals()}) AS f LEFT JOIN so_far AS c ON {same}"
