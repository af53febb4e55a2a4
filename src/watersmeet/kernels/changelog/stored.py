"""Stored rows of which some have gone since: a log of rows, of the numbers of those that went, and of counts.

Nothing is updated in place: rows that go are named in a relation of their own, as are changes of a row's count.  Once
what is named, and tombstones that keep nothing out any more, are half of what is stored, the rows that still hold are
written anew, so that state follows the rows that hold and not the changes that they saw, at a cost of a constant number
of writes for each change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import RID
from watersmeet.kernels.api import FOREVER, GONE, NEVER, StateView, StepResult, quote

#: How often a row counts (its partners): stored with the row and, as it changes, logged.
COUNT = "$n"
#: State with fewer changes is not worth writing anew.
LEAST_WORN = 20_000
#: Tombstones are looked for among all stored rows so often that it costs each step what so many rows cost,
FEW = 100_000
#: and as many again for each row that it brings.
FEW_FOR_EACH = 16


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of one relation of the state; ``counted`` where they have a count."""

    state: StateView
    relation: str
    counted: bool = False

    @property
    def gone(self) -> str:
        """The relation that names rows which have gone."""
        return f"{self.relation}{GONE}"

    @property
    def counts(self) -> str:
        """The relation of changes to rows' counts."""
        return f"{self.relation}_counts"

    @property
    def relations(self) -> tuple[str, ...]:
        """All that the state holds of them."""
        return (self.relation, self.gone, *((self.counts,) if self.counted else ()))

    def live(self) -> str | None:
        """SQL of all rows that have not gone, with their counts; None without any."""
        stored = self.state.scan(self.relation, NEVER, FOREVER)
        if stored is None:
            return None
        return self._now(stored, lambda log: self.state.scan(log, NEVER, FOREVER))

    @contextmanager
    def find(self, by: Sequence[str], probes: pa.Table, where: str, low: int, high: int) -> Iterator[str | None]:
        """SQL of the rows ``s`` that meet a condition and have not gone, with their counts; None without any.

        Columns ``by`` of a row that meets it equal those of a row of ``probes``, and ``low <= $t <= high``.
        """
        stored = self.state.matching(self.relation, by, probes, low, high)
        if stored is None:
            yield None
            return
        con, found = self.state.connection, quote(f"{self.relation}_found")
        try:
            con.execute(f"CREATE TEMP TABLE {found} AS SELECT * FROM {stored} AS s WHERE {where}")
            numbers = con.sql(f"SELECT {quote(RID)} FROM {found}").to_arrow_table()
            yield self._now(found, lambda log: self.state.matching(log, [RID], numbers, NEVER, FOREVER))
        finally:
            con.execute(f"DROP TABLE IF EXISTS {found}")

    def _now(self, rows: str, read: Callable[[str], str | None]) -> str:
        """SQL of stored rows with their counts, without those that have gone.

        ``read`` gives SQL of a log, with what it says of these rows and perhaps of others; None where it is empty.
        """
        # what was found is small beside the logs, so each log is probed with it
        names = [f"found AS MATERIALIZED (SELECT * FROM {rows})"]
        rid, of_found = quote(RID), f"{quote(RID)} IN (SELECT {quote(RID)} FROM found)"
        now = "SELECT f.* FROM found AS f"
        if self.counted and (counts := read(self.counts)) is not None:
            added = f"sum({quote(COUNT)}) AS n FROM {counts} WHERE {of_found} GROUP BY {rid}"
            names.append(f"added AS (SELECT {rid}, {added})")
            total = f"CAST(f.{quote(COUNT)} + coalesce(a.n, 0) AS INT) AS {quote(COUNT)}"
            now = f"SELECT f.* REPLACE ({total}) FROM found AS f LEFT JOIN added AS a ON a.{rid} = f.{rid}"
        if (gone := read(self.gone)) is not None:
            names.append(f"away AS MATERIALIZED (SELECT {rid} FROM {gone} WHERE {of_found})")
            now += f" WHERE f.{rid} NOT IN (SELECT {rid} FROM away)"
        return f"(WITH {', '.join(names)} {now})"

    def write_anew(self, result: StepResult, still: str, passed: str | None = None) -> None:
        """Let the rows that hold take the place of all that is stored, if that is worn.

        What ``result`` says of them so far becomes part of it.  ``still`` is SQL: whether a row, as ``s``, is kept;
        ``passed``, where there are tombstones: whether it is one that is not needed any more.
        """
        if not self._is_worn(result, passed):
            return
        fresh = {name: result.store.pop(name) for name in self.relations}
        new = {name: self.state.show(rows) for name, rows in fresh.items()}
        columns = ", ".join(quote(name) for name in fresh[self.relation].column_names)
        parts = [f"SELECT {columns} FROM {new[self.relation]}"]
        if (live := self.live()) is not None:
            parts.append(f"SELECT {columns} FROM {live}")
        rid, shown, counted = quote(RID), "s.*", ""
        if self.counted:
            added = f"SELECT {rid}, sum({quote(COUNT)}) AS n FROM {new[self.counts]} GROUP BY {rid}"
            shown = f"s.* REPLACE (CAST(s.{quote(COUNT)} + coalesce(a.n, 0) AS INT) AS {quote(COUNT)})"
            counted = f" LEFT JOIN ({added}) AS a ON a.{rid} = s.{rid}"
        rows = f"SELECT {shown} FROM ({' UNION ALL '.join(parts)}) AS s{counted}"
        rows += f" WHERE s.{rid} NOT IN (SELECT {rid} FROM {new[self.gone]}) AND {still}"
        rows += f" AND NOT ({passed})" if passed else ""
        result.replace[self.relation] = self.state.connection.sql(rows).to_arrow_table()
        for name in self.relations[1:]:
            result.replace[name] = fresh[name].slice(0, 0)

    def _is_worn(self, result: StepResult, passed: str | None) -> bool:
        total = self._rows(self.relation, result)
        worn = sum(self._rows(name, result) for name in self.relations[1:])
        new = int(result.store[self.relation].num_rows)
        if passed is not None and self.state.may_scan(self.relation, FEW + FEW_FOR_EACH * new):
            worn += self._passed(passed)
        return worn >= max(LEAST_WORN, total // 2)

    def _rows(self, relation: str, result: StepResult) -> int:
        """Rows of a relation, stored and new."""
        return self.state.count(relation, NEVER) + int(result.store[relation].num_rows)

    def _passed(self, passed: str) -> int:
        """How many stored tombstones are not needed any more."""
        stored = self.state.scan(self.relation, NEVER, FOREVER)
        if stored is None:
            return 0
        ((rows,),) = self.state.connection.execute(f"SELECT count(*) FROM {stored} AS s WHERE {passed}").fetchall()
        return int(rows)
