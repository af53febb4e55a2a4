"""Stored rows that may be removed: a log of rows, a log of the ids of removed rows, and a log of counts.

    left         rows as they were stored, with a first count
    left_gone    ids of rows that were removed
    left_counts  changes of counts, by row id

Nothing is updated in place.  Once log entries and expired tombstones are half of the stored rows (and 20,000), the rows
that still hold are rewritten.  So the size of the state follows the rows that hold, not their changes, and each change
costs a constant number of writes: with 100,000 rows stored, a rewrite follows 50,000 entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import RID
from watersmeet.kernels import api
from watersmeet.kernels.api import (
    FOREVER,
    GONE,
    NEVER,
    StateView,
    StepResult,
    in_one_table,
    made_in_turn,
    quote,
)
from watersmeet.kernels.homes import ByKey, Homes, WithRow

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

    def between(self, low: int, high: int) -> str | None:
        """Return SQL for the rows with ``low <= $t <= high`` that hold, with their counts; None if none is stored."""
        stored = self.state.scan(self.relation, low, high)
        if stored is None:
            return None
        gone, counts = (self._entries(log, low, high) for log in (self.gone, self.counts))
        return self._holding(f"(SELECT * FROM {stored})", gone, counts)

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
        found, tables = f"{self.relation}_found", self.state.tables
        # DuckDB does not know how many rows lie in files, and would build hash tables of all of them
        are_many = self.state.most_rows(self.relation, low, high) >= max(api.MANY_ROWS, probes.num_rows)
        try:
            rows = tables.make(found, f"SELECT * FROM {stored} AS s WHERE {where}", joins_as_written=are_many)
            logs, of_found = (self.gone, self.counts), ""
            if rows > max(*map(self.state.most_rows, logs), api.MANY_RESULTS):
                # to look up each would read all entries as well, and hold all ids
                entries = [self._entries(log) for log in logs]
            else:
                rids = self.state.query(f"SELECT {quote(RID)} FROM {quote(found)}")
                entries = [self.state.rows_with_keys(log, [RID], rids) for log in logs]
                of_found = f" WHERE {quote(RID)} IN (SELECT {quote(RID)} FROM {quote(found)})"
            gone, counts = entries
            yield self._holding(quote(found), gone, counts, of_found)
        finally:
            tables.drop(found)

    def _entries(self, log: str, low: int = NEVER, high: int = FOREVER, *, new: str | None = None) -> str | None:
        """Return where the entries of a log are read from, new ones among them; None if there are none."""
        parts = [part for part in (self.state.scan(log, low, high), new) if part is not None]
        columns = f"{quote(RID)}, {quote(COUNT)}" if log == self.counts else quote(RID)
        sql = " UNION ALL ".join(f"SELECT {columns} FROM {part}" for part in parts)
        return in_one_table(self.state, sql, self.state.most_rows(log, low, high)) if parts else None

    def _holding(self, rows: str, gone: str | None, counts: str | None, counts_of: str = "") -> str:
        """Return SQL for ``rows`` that still hold, with their counts.

        ``gone`` and ``counts`` are the entries of both logs (None: there are none).  Where the rows are few beside the
        logs, ``counts_of`` says which counts are theirs.
        """
        rid, sql = quote(RID), f"SELECT s.* FROM {rows} AS s"
        if self.counted and counts is not None:
            added = f"SELECT {rid}, sum({quote(COUNT)}) AS n FROM {counts}{counts_of} GROUP BY {rid}"
            total = f"CAST(s.{quote(COUNT)} + coalesce(a.n, 0) AS INT) AS {quote(COUNT)}"
            sql = f"SELECT s.* REPLACE ({total}) FROM {rows} AS s LEFT JOIN ({added}) AS a ON a.{rid} = s.{rid}"
        if gone is not None:
            sql += f" WHERE NOT EXISTS (SELECT 1 FROM {gone} AS g WHERE g.{rid} = s.{rid})"
        return f"({sql})"

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
        entries = {log: self._entries(log, new=new[log]) for log in self.relations[1:]}
        where = f"{still} AND NOT ({passed})" if passed else still
        parts = [f"SELECT {columns} FROM {part}" for part in (new[self.relation], *self.state.parts(self.relation))]
        if not self.state.has_little_memory:  # then one query hashes the entries once, and not for each part
            parts = [" UNION ALL ".join(parts)]
        holding = (self._holding(f"({part})", entries[self.gone], entries.get(self.counts)) for part in parts)
        selects = [f"SELECT * FROM {rows} AS s WHERE {where}" for rows in holding]
        most = self.state.most_rows(self.relation)
        result.replace[self.relation] = made_in_turn(self.state, selects, most, joins_as_written=True)
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
