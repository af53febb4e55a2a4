"""Stored rows that may be removed: a log of rows, a log of the ids of removed rows, and a log of counts.

    left         rows as they were stored, with a first count
    left_gone    ids of rows that were removed
    left_counts  changes of counts, by row id

Nothing is updated in place.  Once log entries and expired tombstones are half of the stored rows (and 20,000), the rows
that still hold are rewritten.  So the size of the state follows the rows that hold, not their changes, and each change
costs a constant number of writes: with 100,000 rows stored, a rewrite follows 50,000 entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import RID
from watersmeet.kernels.api import GONE, NEVER, StateView, StepResult, quote
from watersmeet.kernels.homes import ByKey, Homes, WithRow
from watersmeet.kernels.step_tables import StepTables

#: The count of a row (its partners): stored with the row, with changes in a log.
COUNT = "$n"
#: State with fewer dead rows than this (log entries, expired tombstones) is not rewritten.
MIN_DEAD = 20_000
#: To count expired tombstones takes a full scan.  A step has a budget of this many rows for it,
SCAN_ROWS_PER_STEP = 100_000
#: and of this many more for each new row.
SCAN_ROWS_PER_NEW_ROW = 16


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of one relation of the state and its logs; ``counted`` if rows have a count."""

    state: StateView
    relation: str
    counted: bool = False

    @staticmethod
    def relations_of(relation: str) -> tuple[str, str, str]:
        """Return a relation, that with the ids of removed rows, and that with changes of counts."""
        return relation, f"{relation}{GONE}", f"{relation}_counts"

    @classmethod
    def homes_of(cls, relation: str) -> Homes:
        """Return where the rows of a relation with the key of the first input belong, and the ids of removed rows."""
        rows, gone, _ = cls.relations_of(relation)
        return {rows: ByKey(0), gone: WithRow((rows,))}

    @property
    def gone(self) -> str:
        """The relation with the ids of removed rows."""
        return self.relations_of(self.relation)[1]

    @property
    def counts(self) -> str:
        """The relation with changes of counts."""
        return self.relations_of(self.relation)[2]

    @property
    def relations(self) -> tuple[str, ...]:
        """The relation and its logs."""
        return self.relations_of(self.relation)[: 3 if self.counted else 2]

    def live(self) -> str | None:
        """Return SQL for all rows that still hold, with their counts; None if no row is stored."""
        stored = self.state.scan(self.relation)
        if stored is None:
            return None
        return self._without_removed(stored, self.state.scan)

    def between(self, low: int, high: int) -> str | None:
        """Return SQL for the rows with ``low <= $t <= high`` that hold; None if no row is stored there."""
        stored = self.state.scan(self.relation, low, high)
        return None if stored is None else self._without_removed(stored, lambda log: self.state.scan(log, low, high))

    @contextmanager
    def find(self, by: Sequence[str], probes: pa.Table, where: str, low: int, high: int) -> Iterator[str | None]:
        """Yield SQL for rows ``s`` that satisfy ``where`` and still hold, with their counts; None if no row is stored.

        It looks up rows with ``low <= $t <= high`` only.  ``where`` must imply that the ``by`` columns equal those of a
        row of ``probes``.
        """
        stored = self.state.rows_with_keys(self.relation, by, probes, low, high)
        if stored is None:
            yield None
            return
        found = f"{self.relation}_found"
        with StepTables(self.state.connection) as tables:
            tables.make(found, f"SELECT * FROM {stored} AS s WHERE {where}")
            rids = self.state.query(f"SELECT {quote(RID)} FROM {quote(found)}")
            yield self._without_removed(quote(found), lambda log: self.state.rows_with_keys(log, [RID], rids))

    def _without_removed(self, rows: str, read: Callable[[str], str | None]) -> str:
        """Return SQL for ``rows`` that still hold, with their counts.

        ``read`` returns SQL for a log: its entries for these rows, and possibly others; None if it is empty.
        """
        # the rows are few beside the logs, so each log is probed with them
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

    def rewrite_if_due(self, result: StepResult, still: str, passed: str | None = None) -> None:
        """Replace the relation and its logs by the rows that hold, if half of what is stored is dead.

        The rows and log entries in ``result.store`` become part of the rewrite.  ``still`` is SQL that tests whether a
        row ``s`` is to be kept; ``passed``, if there are tombstones, whether ``s`` is an expired one.
        """
        if not self._is_due(result, passed):
            return
        fresh = {name: result.store.pop(name) for name in self.relations}
        new = {name: self.state.register(rows) for name, rows in fresh.items()}
        columns = ", ".join(quote(name) for name in fresh[self.relation].column_names)
        parts = [f"SELECT {columns} FROM {new[self.relation]}"]
        if (live := self.live()) is not None:
            parts.append(f"SELECT {columns} FROM {live}")
        rid, items, counted = quote(RID), "s.*", ""
        if self.counted:
            added = f"SELECT {rid}, sum({quote(COUNT)}) AS n FROM {new[self.counts]} GROUP BY {rid}"
            items = f"s.* REPLACE (CAST(s.{quote(COUNT)} + coalesce(a.n, 0) AS INT) AS {quote(COUNT)})"
            counted = f" LEFT JOIN ({added}) AS a ON a.{rid} = s.{rid}"
        rows = f"SELECT {items} FROM ({' UNION ALL '.join(parts)}) AS s{counted}"
        rows += f" WHERE s.{rid} NOT IN (SELECT {rid} FROM {new[self.gone]}) AND {still}"
        rows += f" AND NOT ({passed})" if passed else ""
        result.replace[self.relation] = self.state.query(rows)
        for name in self.relations[1:]:
            result.replace[name] = fresh[name].slice(0, 0)

    def _is_due(self, result: StepResult, passed: str | None) -> bool:
        total = self._rows(self.relation, result)
        dead = sum(self._rows(name, result) for name in self.relations[1:])
        new = int(result.store[self.relation].num_rows)
        if passed is not None and self.state.spend_scan_budget(
            self.relation, SCAN_ROWS_PER_STEP + SCAN_ROWS_PER_NEW_ROW * new
        ):
            dead += self._passed(passed)
        return dead >= max(MIN_DEAD, total // 2)

    def _rows(self, relation: str, result: StepResult) -> int:
        """Return the number of rows of a relation, stored and new."""
        return self.state.count(relation, NEVER) + int(result.store[relation].num_rows)

    def _passed(self, passed: str) -> int:
        """Return how many stored tombstones are expired."""
        stored = self.state.scan(self.relation)
        if stored is None:
            return 0
        ((rows,),) = self.state.connection.execute(f"SELECT count(*) FROM {stored} AS s WHERE {passed}").fetchall()
        return int(rows)
