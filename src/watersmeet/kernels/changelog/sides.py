"""One side of a join over changelogs: in each step its new rows, its retracted or replaced rows, and the kept ones.

A side's rows change as its ``Change`` says, or by primary key (``Newest``).  Its step makes three tables, named after
its letter::

    l_new    rows that are current after the step and were not before
    l_gone   rows that were current before the step and are not after it: retracted or replaced
    l_kept   stored rows that are current before and after, with the key of a new or gone row of the other side
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import Side, StateView, StepResult, quote
from watersmeet.kernels.changelog.newest import OLD, OLD_COUNT, OLD_THERE, SAME, THERE, Newest, passed_tombstones
from watersmeet.kernels.changelog.stored_rows import COUNT, StoredRows
from watersmeet.kernels.match import WindowMatch, number_rows


class Change(Enum):
    """How the rows of a side without a primary key change."""

    APPENDED = "appended"
    """Append-only: they are never retracted."""
    RETRACTED = "retracted"
    """They carry ``$w``, and a -1 names by its ``$id`` an earlier row."""


@dataclass(slots=True)
class SideStep:
    """A side's part of one step."""

    side: Side
    match: WindowMatch
    change: Change | Newest
    state: StateView
    arriving: str = field(init=False)
    passing: str | None = field(default=None, init=False)

    @property
    def alias(self) -> str:
        """The prefix of its tables' names."""
        return self.side.alias

    @property
    def newest(self) -> Newest | None:
        """How rows replace each other, if they do."""
        return self.change if isinstance(self.change, Newest) else None

    @property
    def tested(self) -> str | None:
        """SQL that tests whether a row of this side is a result whatever its partners; None: no row is."""
        return self.match.passing if self.side is Side.LEFT else None

    @property
    def id_column(self) -> str:
        """The column that identifies a row in the ids of results."""
        return ID if self.newest is not None else RID

    @property
    def stored(self) -> StoredRows:
        """Its rows in the state; they count their partners if the join must know who has any."""
        return StoredRows(self.state, self.side.value, counted=self.match.kind.tracks_matches(self.side))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its tables, beside the count."""
        of_newest = self.newest.stored if self.newest is not None else ()
        return tuple(dict.fromkeys((*self.match.columns(self.side).stored, *of_newest, TIME, RID, ID)))

    @property
    def visible(self) -> tuple[str, ...]:
        """The columns that affect results."""
        columns = self.match.columns(self.side)
        bounded = self.match.lower is not None or self.match.upper is not None
        tested = f"{self.alias}.{quote(TIME)}" in (self.match.residual or "")
        timed = columns.time in columns.output or bounded or tested
        return (*columns.stored, *((TIME,) if timed else ()))

    # -- new, gone and kept rows -----------------------------------------------------------------------------------

    def arrive(self, rows: pa.Table, first_rid: int, low: int, high: int) -> dict[str, int]:
        """Make the tables of new and gone rows; return counters.

        Rows that can be retracted are stored at ``low`` to ``high``.  Rows that are results whatever their partners are
        set aside as ``passing``, with their retractions: nothing of them is stored.  Where rows replace each other,
        they stay among the others.
        """
        if self.change is Change.APPENDED:
            rows = rows.append_column(ID, pa.nulls(rows.num_rows, pa.string()))
            rows = rows.append_column(WEIGHT, pa.array([1] * rows.num_rows, pa.int8()))
        rows = number_rows(rows, first_rid)
        if self.newest is not None:
            return self._replace(self.newest, rows)
        if self.tested is not None:
            arrived = self.state.register(rows)
            self.passing = self.state.register(self.state.query(f"SELECT * FROM {arrived} AS l WHERE {self.tested}"))
            rows = self.state.query(f"SELECT * FROM {arrived} AS l WHERE NOT {self.tested}")
        self.arriving = self.state.register(rows)
        self._retract(rows, low, high)
        return {}

    def _retract(self, rows: pa.Table, low: int, high: int) -> None:
        """Split rows by weight: +1 are new, -1 name a stored row that is gone."""
        self._create("new", f"{self._select(f'{self.arriving} AS s', '0')} WHERE {quote(WEIGHT)} > 0")
        ids = rows.filter(pc.less(rows[WEIGHT], 0)).select([ID])
        named = f"s.{quote(ID)} IN (SELECT {quote(ID)} FROM {self.arriving} WHERE {quote(WEIGHT)} < 0)"
        if not ids.num_rows:
            self._create("gone", self._nothing())
            return
        with self.stored.find([ID], ids, named, low, high) as gone:
            self._create("gone", self._select(f"{gone} AS s") if gone else self._nothing())

    def _replace(self, newest: Newest, rows: pa.Table) -> dict[str, int]:
        """Find the newest row of each key: it is new, and the row that it replaces is gone."""
        winning = self._table("winning")
        counts = newest.find(self.stored, rows, self.visible, winning)
        differs = f"NOT {quote(SAME)}"
        self._create("new", f"{self._select(f'{winning} AS s', '0')} WHERE {quote(THERE)} AND {differs}")
        went = f"SELECT {quote(OLD)} FROM {winning} WHERE {quote(OLD_THERE)} AND {differs}"
        current = f"{winning}_current"
        self._create("gone", f"{self._select(f'{current} AS s')} WHERE {quote(RID)} IN ({went})")
        self.state.tables.drop(current)
        return counts

    def keep(self, low: int, high: int) -> None:
        """Make the table of kept rows: those with the key of a new or gone row of the other side."""
        other = self.side.other
        same_key = [
            f"d.{quote(key.of(other))} {'IS NOT DISTINCT FROM' if key.null_safe else '='} s.{quote(key.of(self.side))}"
            for key in self.match.keys
        ]
        # a column may equal two of the other side
        keys = ", ".join(map(quote, dict.fromkeys(self.match.key_columns(other)))) or "1"
        changed = self.state.query(
            f"SELECT {keys} FROM {other.alias}_new UNION ALL SELECT {keys} FROM {other.alias}_gone"
        )
        # an index lookup may return rows of other keys too
        changed_keys = self.state.register(changed)
        touched = [f"EXISTS (SELECT 1 FROM {changed_keys} AS d WHERE {' AND '.join(same_key) or 'TRUE'})"]
        if self.newest is not None:
            touched.append(f"s.{quote(THERE)}")
        probes = self.match.probes(other, changed)
        by = self.match.key_columns(self.side)
        with self.stored.find(by, probes, " AND ".join(touched), low, high) as found:
            self._create("kept", self._staying(found) if found else self._nothing())

    def _staying(self, found: str) -> str:
        """Return SQL for the rows of ``found`` that are not gone."""
        kept = f"{self._select(f'{found} AS s')} WHERE {quote(RID)} NOT IN ({self._leaving()})"
        if self.newest is None:
            return kept
        # rows that were replaced by equal ones: stored again under another row id
        again = self._select(f"{self._table('winning')} AS s", f"s.{quote(OLD_COUNT)}")
        return f"{kept} UNION ALL {again} WHERE {quote(SAME)}"

    # -- state -----------------------------------------------------------------------------------------------------

    def store(self, result: StepResult, met: str, final_before: int, frontier: int) -> None:
        """Store new rows, ids of gone rows, and changed counts of kept rows.

        ``met`` is a table of (id, change in partner count), if the side counts partners.  Rows below ``final_before``
        are final and are not stored.  A tombstone below ``frontier`` is no longer needed: an older row of its key would
        be late.
        """
        stored, rid = self.stored, quote(RID)
        lasting = f"s.{quote(TIME)} >= {final_before}"
        columns = ", ".join(f"s.{quote(name)}" for name in self.columns)
        if self.newest is not None:
            rows, columns = self._table("winning"), f"{columns}, s.{quote(THERE)}"
            before = f"CASE WHEN s.{quote(SAME)} THEN s.{quote(OLD_COUNT)} ELSE 0 END + "
        else:
            rows, before = self._table("new"), ""
        if stored.counted:
            count = f"CAST({before}coalesce(c.by, 0) AS INT) AS {quote(COUNT)}"
            new = f"SELECT {columns}, {count} FROM {rows} AS s LEFT JOIN {met} AS c ON s.{rid} = c.id WHERE {lasting}"
        else:
            new = f"SELECT {columns} FROM {rows} AS s WHERE {lasting}"
        result.store[stored.relation] = self.state.query(new)
        gone = f"SELECT * FROM ({self._leaving(timed=True)}) AS s WHERE {lasting}"
        result.store[stored.gone] = self.state.query(gone)
        if stored.counted:
            stored_now = f" AND s.{rid} NOT IN (SELECT {rid} FROM {rows})" if self.newest is not None else ""
            result.store[stored.counts] = self.state.query(
                f"SELECT s.{rid}, s.{quote(TIME)}, CAST(c.by AS INT) AS {quote(COUNT)} FROM {self._table('kept')} AS s "
                f"JOIN {met} AS c ON s.{rid} = c.id WHERE {lasting} AND c.by <> 0{stored_now}"
            )
        stored.rewrite_if_due(result, lasting, passed_tombstones(frontier) if self.newest is not None else None)
        for relation in stored.relations:
            result.forget[relation] = final_before

    # -- SQL -------------------------------------------------------------------------------------------------------

    def _leaving(self, *, timed: bool = False) -> str:
        """Return SQL for the ids (and times) of stored rows that are gone or stored again."""
        time = f", {quote(TIME)}" if timed else ""
        if self.newest is None:
            return f"SELECT {quote(RID)}{time} FROM {self._table('gone')}"
        old = quote(OLD)
        return f"SELECT {old} AS {quote(RID)}{time} FROM {self._table('winning')} WHERE {old} IS NOT NULL"

    def _select(self, rows: str, count: str = "") -> str:
        """Return SQL for rows ``s`` with the columns of this side's tables."""
        columns = ", ".join(f"s.{quote(name)}" for name in self.columns)
        counted = count or (f"s.{quote(COUNT)}" if self.stored.counted else "0")
        return f"SELECT {columns}, {counted} AS {quote(COUNT)} FROM {rows}"

    def _nothing(self) -> str:
        return f"SELECT * FROM {self._table('new')} WHERE FALSE"

    def _table(self, kind: str) -> str:
        return f"{self.alias}_{kind}"

    def _create(self, kind: str, sql: str) -> None:
        self.state.tables.make(self._table(kind), sql)
