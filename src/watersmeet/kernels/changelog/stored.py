"""Stored rows of which some have gone since: a log of rows, of the numbers of those that went, and of counts.

Nothing is updated in place: rows that go are named in a relation of their own, as are changes of a row's count.  Once
what is named, and tombstones that keep nothing out any more, are half of what is stored, the rows that still hold are
written anew, so that state follows the rows that hold and not the changes that they saw, at a cost of a constant number
of writes for each change.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.columns import RID
from watersmeet.kernels.api import FOREVER, GONE, NEVER, StateView, StepResult, quote

#: How often a row counts (its partners): stored with the row and, as it changes, logged.
COUNT = "$n"
#: State with fewer changes is not worth writing anew.
LEAST_WORN = 20_000


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

    def live(self, where: str = "TRUE", low: int = NEVER, high: int = FOREVER) -> str | None:
        """SQL of the rows ``s`` that meet a condition and have not gone, with their counts; None without any."""
        stored = self.state.scan(self.relation, low, high)
        if stored is None:
            return None
        # what was found is small beside the logs, so each log is probed with it
        names = [f"found AS MATERIALIZED (SELECT * FROM {stored} AS s WHERE {where})"]
        rid, of_found = quote(RID), f"{quote(RID)} IN (SELECT {quote(RID)} FROM found)"
        rows = "SELECT f.* FROM found AS f"
        if self.counted and (counts := self.state.scan(self.counts, NEVER, FOREVER)) is not None:
            added = f"sum({quote(COUNT)}) AS n FROM {counts} WHERE {of_found} GROUP BY {rid}"
            names.append(f"added AS (SELECT {rid}, {added})")
            total = f"CAST(f.{quote(COUNT)} + coalesce(a.n, 0) AS INT) AS {quote(COUNT)}"
            rows = f"SELECT f.* REPLACE ({total}) FROM found AS f LEFT JOIN added AS a ON a.{rid} = f.{rid}"
        if (gone := self.state.scan(self.gone, NEVER, FOREVER)) is not None:
            names.append(f"away AS MATERIALIZED (SELECT {rid} FROM {gone} WHERE {of_found})")
            rows += f" WHERE f.{rid} NOT IN (SELECT {rid} FROM away)"
        return f"(WITH {', '.join(names)} {rows})"

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
        named = sum(self._rows(name, result) for name in self.relations[1:])
        if passed is not None:
            named += self._stored(self.relation, passed)
        return named >= max(LEAST_WORN, total // 2)

    def _rows(self, relation: str, result: StepResult) -> int:
        """Rows of a relation, stored and new."""
        return self._stored(relation, "TRUE") + int(result.store[relation].num_rows)

    def _stored(self, relation: str, where: str) -> int:
        stored = self.state.scan(relation, NEVER, FOREVER)
        if stored is None:
            return 0
        ((rows,),) = self.state.connection.execute(f"SELECT count(*) FROM {stored} AS s WHERE {where}").fetchall()
        return int(rows)
