"""One side of a join over rows that come and go: in each step the rows that come, that go, and that stay.

How a side's rows change (``Change``, or ``Newest`` by primary key) is told apart here and nowhere else.  A side's step
makes three tables, called by the side's letter: ``l_new``, ``l_gone`` and ``l_kept``, the stored rows that stay and may
meet one of the other side that comes or goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID, RID, TIME, WEIGHT
from watersmeet.kernels.api import Side, StateView, StepResult, quote
from watersmeet.kernels.changelog.newest import OLD, OLD_COUNT, OLD_THERE, SAME, THERE, Newest, passed_tombstones
from watersmeet.kernels.changelog.stored import COUNT, StoredRows
from watersmeet.kernels.match import WindowMatch, number_rows


class Change(Enum):
    """How the rows of a side come and go."""

    APPENDED = "appended"
    """They only come."""
    RETRACTED = "retracted"
    """They carry ``$w``, and a -1 names by its ``$id`` a row that came before."""


@dataclass(slots=True)
class SideStep:
    """A side's part of one step."""

    side: Side
    match: WindowMatch
    change: Change | Newest
    state: StateView
    arriving: str = field(init=False)

    @property
    def alias(self) -> str:
        """What its tables' names begin with."""
        return self.side.alias

    @property
    def newest(self) -> Newest | None:
        """How rows replace each other, where they do."""
        return self.change if isinstance(self.change, Newest) else None

    @property
    def name(self) -> str:
        """The column by which a row is called in the ids of results."""
        return ID if self.newest is not None else RID

    @property
    def stored(self) -> StoredRows:
        """Its rows in the state; a row that must be known to have partners counts them."""
        return StoredRows(self.state, self.side.value, counted=self.match.kind.tracks(self.side))

    @property
    def columns(self) -> tuple[str, ...]:
        """What its tables have of a row, beside its count."""
        of_newest = self.newest.stored if self.newest is not None else ()
        return tuple(dict.fromkeys((*self.match.columns(self.side).stored, *of_newest, TIME, RID, ID)))

    @property
    def shown(self) -> tuple[str, ...]:
        """What of a row can be seen in results, or in whether there are any."""
        columns = self.match.columns(self.side)
        bounded = self.match.lower is not None or self.match.upper is not None
        tested = f"{self.alias}.{quote(TIME)}" in (self.match.residual or "")
        timed = columns.time in columns.output or bounded or tested
        return (*columns.stored, *((TIME,) if timed else ()))

    # -- what comes and goes ---------------------------------------------------------------------------------------

    def arrive(self, rows: pa.Table, first_rid: int, low: int, high: int) -> dict[str, int]:
        """Make the tables of rows that come and that go; ``low`` to ``high`` are the times of rows that can go."""
        if self.change is Change.APPENDED:
            rows = rows.append_column(ID, pa.nulls(rows.num_rows, pa.string()))
            rows = rows.append_column(WEIGHT, pa.array([1] * rows.num_rows, pa.int8()))
        rows = number_rows(rows, first_rid)
        if self.newest is not None:
            return self._replace(self.newest, rows)
        self.arriving = self.state.show(rows)
        self._retract(rows, low, high)
        return {}

    def _retract(self, rows: pa.Table, low: int, high: int) -> None:
        """Rows come with +1; with -1 one is named that came before."""
        self._create("new", f"{self._select(f'{self.arriving} AS s', '0')} WHERE {quote(WEIGHT)} > 0")
        ids = rows.filter(pc.less(rows[WEIGHT], 0)).select([ID])
        named = f"s.{quote(ID)} IN (SELECT {quote(ID)} FROM {self.arriving} WHERE {quote(WEIGHT)} < 0)"
        if not ids.num_rows:
            self._create("gone", self._nothing())
            return
        with self.stored.find([ID], ids, named, low, high) as gone:
            self._create("gone", self._select(f"{gone} AS s") if gone else self._nothing())

    def _replace(self, newest: Newest, rows: pa.Table) -> dict[str, int]:
        """Of each key the newest row comes, and the one before it goes."""
        winning = self._table("winning")
        counts = newest.find(self.stored, rows, self.shown, winning)
        differs = f"NOT {quote(SAME)}"
        self._create("new", f"{self._select(f'{winning} AS s', '0')} WHERE {quote(THERE)} AND {differs}")
        went = f"SELECT {quote(OLD)} FROM {winning} WHERE {quote(OLD_THERE)} AND {differs}"
        self._create("gone", f"{self._select(f'{winning}_current AS s')} WHERE {quote(RID)} IN ({went})")
        return counts

    def keep(self, low: int, high: int) -> None:
        """Make the table of rows that stay and have the key of a row of the other side that comes or goes."""
        other = self.side.other
        same_key = [
            f"d.{quote(key.of(other))} {'IS NOT DISTINCT FROM' if key.null_safe else '='} s.{quote(key.of(self.side))}"
            for key in self.match.keys
        ]
        keys = ", ".join(map(quote, dict.fromkeys(self.match.key_columns(other)))) or "1"  # one may meet two columns
        changed = self._fetch(f"SELECT {keys} FROM {other.alias}_new UNION ALL SELECT {keys} FROM {other.alias}_gone")
        # an index may find rows of other keys too
        touched = [f"EXISTS (SELECT 1 FROM {self.state.show(changed)} AS d WHERE {' AND '.join(same_key) or 'TRUE'})"]
        if self.newest is not None:
            touched.append(f"s.{quote(THERE)}")
        probes = self.match.probes(other, changed)
        by = self.match.key_columns(self.side)
        with self.stored.find(by, probes, " AND ".join(touched), low, high) as found:
            self._create("kept", self._staying(found) if found else self._nothing())

    def _staying(self, found: str) -> str:
        """SQL of the rows of ``found`` that this step does not take away."""
        kept = f"{self._select(f'{found} AS s')} WHERE {quote(RID)} NOT IN ({self._leaving()})"
        if self.newest is None:
            return kept
        # stored anew under another number, though it shows the same
        again = self._select(f"{self._table('winning')} AS s", f"s.{quote(OLD_COUNT)}")
        return f"{kept} UNION ALL {again} WHERE {quote(SAME)}"

    # -- state -----------------------------------------------------------------------------------------------------

    def store(self, result: StepResult, met: str, settled: int, frontier: int) -> None:
        """Log rows that came, rows that went, and changed counts of rows that stay.

        ``met`` is SQL of (id, by): partners that rows have gained, or lost.  Rows whose time is below ``settled`` can
        meet no other and are not kept; a tombstone whose time is below ``frontier`` keeps no older row out any more.
        """
        stored, rid = self.stored, quote(RID)
        lasting = f"s.{quote(TIME)} >= {settled}"
        columns = ", ".join(f"s.{quote(name)}" for name in self.columns)
        if self.newest is not None:
            rows, columns = self._table("winning"), f"{columns}, s.{quote(THERE)}"
            before = f"CASE WHEN s.{quote(SAME)} THEN s.{quote(OLD_COUNT)} ELSE 0 END + "
        else:
            rows, before = self._table("new"), ""
        if stored.counted:
            count = f"CAST({before}coalesce(c.by, 0) AS INT) AS {quote(COUNT)}"
            new = f"SELECT {columns}, {count} FROM {rows} AS s LEFT JOIN ({met}) AS c ON s.{rid} = c.id WHERE {lasting}"
        else:
            new = f"SELECT {columns} FROM {rows} AS s WHERE {lasting}"
        result.store[stored.relation] = self._fetch(new)
        gone = f"SELECT * FROM ({self._leaving(timed=True)}) AS s WHERE {lasting}"
        result.store[stored.gone] = self._fetch(gone)
        if stored.counted:
            stored_now = f" AND s.{rid} NOT IN (SELECT {rid} FROM {rows})" if self.newest is not None else ""
            result.store[stored.counts] = self._fetch(
                f"SELECT s.{rid}, s.{quote(TIME)}, CAST(c.by AS INT) AS {quote(COUNT)} FROM {self._table('kept')} AS s "
                f"JOIN ({met}) AS c ON s.{rid} = c.id WHERE {lasting} AND c.by <> 0{stored_now}"
            )
        stored.write_anew(result, lasting, passed_tombstones(frontier) if self.newest is not None else None)
        for relation in stored.relations:
            result.forget[relation] = settled

    def close(self) -> None:
        """Drop the step's tables."""
        con = self.state.connection
        for kind in ("new", "gone", "kept", "winning", "winning_latest", "winning_current"):
            con.execute(f"DROP TABLE IF EXISTS {self._table(kind)}")

    # -- SQL -------------------------------------------------------------------------------------------------------

    def _leaving(self, *, timed: bool = False) -> str:
        """SQL of the numbers (and times) of stored rows that go, or that others take the place of."""
        time = f", {quote(TIME)}" if timed else ""
        if self.newest is None:
            return f"SELECT {quote(RID)}{time} FROM {self._table('gone')}"
        old = quote(OLD)
        return f"SELECT {old} AS {quote(RID)}{time} FROM {self._table('winning')} WHERE {old} IS NOT NULL"

    def _select(self, rows: str, count: str = "") -> str:
        """SQL of rows ``s`` with the columns of this side's tables."""
        columns = ", ".join(f"s.{quote(name)}" for name in self.columns)
        counted = count or (f"s.{quote(COUNT)}" if self.stored.counted else "0")
        return f"SELECT {columns}, {counted} AS {quote(COUNT)} FROM {rows}"

    def _nothing(self) -> str:
        return f"SELECT * FROM {self._table('new')} WHERE FALSE"

    def _table(self, kind: str) -> str:
        return f"{self.alias}_{kind}"

    def _create(self, kind: str, sql: str) -> None:
        self.state.connection.execute(f"CREATE TEMP TABLE {self._table(kind)} AS {sql}")

    def _fetch(self, sql: str) -> pa.Table:
        return self.state.connection.sql(sql).to_arrow_table()
