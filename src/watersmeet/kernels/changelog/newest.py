"""The newest change of each key of a changing stream: which rows hold now.

A row of a changing stream sets the value of its primary key (+1) or deletes it (-1, a tombstone).  The newest change of
a key holds, by (event time, place in the source), in whatever order changes arrive.

Older changes  are dropped; a tombstone keeps its time, so no older row restores its key (KAFKA-14834)
Filters        a row that fails the filter of its stream (``passes``) is a tombstone for the query
Equal rows     a row that equals the one it replaces, in the columns that results need, is stored in its place, and
               nothing is emitted
State          one row per key, tombstones included; a rewrite of the state drops tombstones below the frontier, since
               an older row would be late

    +1 (k, 1) at 10:00   ⇒  + (k, 1)
    +1 (k, 2) at 10:05   ⇒  - (k, 1)  + (k, 2)
    +1 (k, 9) at 10:03   ⇒  nothing: it is older than the row that holds
    -1 (k)    at 10:07   ⇒  - (k, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, quote
from watersmeet.kernels.changelog.stored_rows import COUNT, StoredRows

#: Whether a key's newest change is a row that holds; otherwise it is a tombstone.
THERE = "$there"
#: Of a newest change: the row id and count of the change that it replaces, whether that one held, and was equal.
OLD, OLD_COUNT, OLD_THERE, SAME = "$old", "$old_n", "$old_there", "$same"


def passed_tombstones(frontier: int) -> str:
    """Return SQL that tests whether a stored change ``s`` is a tombstone that is no longer needed."""
    return f"NOT s.{quote(THERE)} AND s.{quote(TIME)} < {frontier}"


@dataclass(frozen=True, slots=True)
class Newest:
    """The columns that say how changes of one stream follow each other.

    ``by`` is the primary key, ``sequence`` the place in the source, ``weight`` +1 or -1, and ``passes`` (if the stream
    has a filter) whether the row passes it.  ``alias`` is the stream's name in counters.
    """

    by: tuple[str, ...]
    sequence: str
    weight: str
    passes: str | None
    alias: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of an arriving change that decide whether it is the newest, beside its time."""
        found = (*self.stored, self.weight, *((self.passes,) if self.passes else ()))
        return tuple(dict.fromkeys(found))

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns of a change in the state, beside its time."""
        return tuple(name for name in dict.fromkeys((*self.by, self.sequence)) if name != TIME)

    @property
    def outdated(self) -> str:
        """The counter of keys for which a batch brought only changes older than the stored one."""
        return f"outdated.{self.alias}"

    @property
    def ignored_deletes(self) -> str:
        """The counter of deletes of unknown keys."""
        return f"ignored_deletes.{self.alias}"

    def find(self, stored: StoredRows, changes: pa.Table, visible: Sequence[str], into: str) -> dict[str, int]:
        """Make the table ``into`` of the changes that are the newest of their key; return counters.

            latest  = the latest of the arriving changes of each key
            current = the stored changes of these keys
            into    = latest without a current change, or with an older one:
                      $old, $old_n, $old_there  from current
                      $same                     both hold, and are equal in the columns ``visible``
                      $id                       that of current if $same, else the own $rid

        ``changes`` have a ``$rid``.  The table ``{into}_current`` stays too.
        """
        tables = stored.state.tables
        latest = self._find_latest(stored, stored.state.register(changes), f"{into}_latest")
        same_key = " AND ".join(f"a.{quote(name)} = s.{quote(name)}" for name in self.by)
        names = (RID, ID, TIME, THERE, *self.stored, *visible, *((COUNT,) if stored.counted else ()))
        has_key = f"EXISTS (SELECT 1 FROM {into}_latest AS a WHERE {same_key})"
        columns = ", ".join(quote(name) for name in dict.fromkeys(names))
        with stored.find(self.by, changes.select(list(self.by)), has_key, NEVER, FOREVER) as current:
            if current is None:
                missing = f"NULL::VARCHAR AS {quote(ID)}, 0 AS {quote(COUNT)}"
                current = f"(SELECT *, {missing} FROM {into}_latest WHERE FALSE)"
            tables.make(f"{into}_current", f"SELECT {columns} FROM {current}")
        both_there = f"a.{quote(THERE)} AND s.{quote(THERE)}"
        same = " AND ".join([both_there, *(f"a.{quote(n)} IS NOT DISTINCT FROM s.{quote(n)}" for n in visible)])
        older = f"(s.{quote(TIME)}, s.{quote(self.sequence)}) < (a.{quote(TIME)}, a.{quote(self.sequence)})"
        old_count = f"s.{quote(COUNT)}" if stored.counted else "0"
        tables.make(
            into,
            "SELECT a.*, "
            f"s.{quote(RID)} AS {quote(OLD)}, {old_count} AS {quote(OLD_COUNT)}, "
            f"coalesce(s.{quote(THERE)}, FALSE) AS {quote(OLD_THERE)}, coalesce({same}, FALSE) AS {quote(SAME)}, "
            f"CASE WHEN {same} THEN s.{quote(ID)} ELSE CAST(a.{quote(RID)} AS VARCHAR) END AS {quote(ID)} "
            f"FROM {into}_latest AS a LEFT JOIN {into}_current AS s ON {same_key} "
            f"WHERE s.{quote(RID)} IS NULL OR {older}",
        )
        counted = f"count(*), count(*) FILTER (NOT brings AND {quote(OLD)} IS NULL)"
        ((newest, ignored),) = stored.state.connection.execute(f"SELECT {counted} FROM {into}").fetchall()
        tables.drop(f"{into}_latest")
        return {self.outdated: latest - newest, self.ignored_deletes: ignored}

    def _find_latest(self, stored: StoredRows, arriving: str, into: str) -> int:
        """Make the table ``into`` of the latest arriving change of each key; return how many there are.

        Places are compared only if several changes of a key share its latest time.
        """
        keys = ", ".join(map(quote, self.by))
        passes = f" AND coalesce({quote(self.passes)}, FALSE)" if self.passes else ""
        brings = f"{quote(self.weight)} > 0"
        same = " AND ".join(f"a.{quote(name)} = n.{quote(name)}" for name in self.by)
        tables = stored.state.tables
        rows = tables.make(
            into,
            f"SELECT a.*, {brings}{passes} AS {quote(THERE)}, n.brings FROM {arriving} AS a JOIN ("
            f"SELECT {keys}, max({quote(TIME)}) AS latest, bool_or({brings}) AS brings FROM {arriving} GROUP BY {keys}"
            f") AS n ON {same} AND a.{quote(TIME)} = n.latest",
        )
        counted = f"SELECT count(DISTINCT ({keys})) FROM {into}"
        ((distinct,),) = stored.state.connection.execute(counted).fetchall()
        if rows > distinct:
            last = f"SELECT arg_max({quote(RID)}, {quote(self.sequence)}) FROM {into} GROUP BY {keys}"
            tables.remake(into, f"SELECT * FROM {into} WHERE {quote(RID)} IN ({last})")
        return int(distinct)
