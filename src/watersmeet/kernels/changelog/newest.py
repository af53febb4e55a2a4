"""The newest change of each key: which rows hold now, and which do no longer.

Rows of a stream that changes say what their primary key has from then on: values (+1), or nothing (-1, a tombstone).
Of all changes of a key the newest holds, in the order of (event time, place in the source), however they arrive.

Older changes  leave no trace; a tombstone keeps its time, so that no older row brings its key back (KAFKA-14834)
Filters        a row that fails the filter of its stream (``passes``) is a tombstone for the query
Nothing new    a row that shows the same as the one it replaces is stored in its place, and nothing comes out
State          one row a key, tombstones too; a tombstone goes when state is written anew and its time is below the
               frontier: an older row would be late then

    +1 (k, 1) at 10:00   ⇒  + (k, 1)
    +1 (k, 2) at 10:05   ⇒  - (k, 1)  + (k, 2)
    +1 (k, 9) at 10:03   ⇒  nothing: it is older than what holds
    -1 (k)    at 10:07   ⇒  - (k, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns import ID, RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, quote
from watersmeet.kernels.changelog.stored import COUNT, StoredRows

#: Whether a key's newest change is a row that holds; else it is a tombstone.
THERE = "$there"
#: Of a newest change: the number and count of the row that it replaces, whether that one held, and shows the same.
OLD, OLD_COUNT, OLD_THERE, SAME = "$old", "$old_n", "$old_there", "$same"


def passed_tombstones(frontier: int) -> str:
    """SQL of whether a stored change ``s`` is a tombstone that keeps no older row out: such a row would be late."""
    return f"NOT s.{quote(THERE)} AND s.{quote(TIME)} < {frontier}"


@dataclass(frozen=True, slots=True)
class Newest:
    """How changes of one stream follow each other; all names are of columns that travel.

    ``by`` is the primary key; ``weight`` says what a change does, ``passes`` (where there is one) whether the row
    passes the stream's filter; ``alias`` is what the stream is called in counters.
    """

    by: tuple[str, ...]
    sequence: str
    weight: str
    passes: str | None
    alias: str

    @property
    def columns(self) -> tuple[str, ...]:
        """What rows must bring, beside their time, for the newest to be found."""
        found = (*self.stored, self.weight, *((self.passes,) if self.passes else ()))
        return tuple(dict.fromkeys(found))

    @property
    def stored(self) -> tuple[str, ...]:
        """What the state must hold of a change, beside its time."""
        return tuple(name for name in dict.fromkeys((*self.by, self.sequence)) if name != TIME)

    @property
    def outdated(self) -> str:
        """The counter of keys to which a batch brought only changes older than the newest known."""
        return f"outdated.{self.alias}"

    @property
    def ignored_deletes(self) -> str:
        """The counter of deletes whose key had never been seen."""
        return f"ignored_deletes.{self.alias}"

    def find(self, stored: StoredRows, changes: pa.Table, shown: Sequence[str], into: str) -> dict[str, int]:
        """Make the relation ``into`` of the changes that are their key's newest; what was counted comes back.

        ``changes`` have their ``$rid``; ``shown`` are the columns in which a row must differ from the one that it
        replaces for anything to come out.  Beside what arrived ``into`` has the columns named above, and the ``$id``
        that the row goes by: that of the row which showed the same, else its own number.
        """
        con = stored.state.connection
        latest = self._find_latest(stored, stored.state.show(changes), f"{into}_latest")
        same_key = " AND ".join(f"a.{quote(name)} = s.{quote(name)}" for name in self.by)
        names = (RID, ID, TIME, THERE, *self.stored, *shown, *((COUNT,) if stored.counted else ()))
        is_sought = f"EXISTS (SELECT 1 FROM {into}_latest AS a WHERE {same_key})"
        columns = ", ".join(quote(name) for name in dict.fromkeys(names))
        with stored.find(self.by, changes.select(list(self.by)), is_sought, NEVER, FOREVER) as current:
            if current is None:
                missing = f"NULL::VARCHAR AS {quote(ID)}, 0 AS {quote(COUNT)}"
                current = f"(SELECT *, {missing} FROM {into}_latest WHERE FALSE)"
            con.execute(f"CREATE TEMP TABLE {into}_current AS SELECT {columns} FROM {current}")
        both_there = f"a.{quote(THERE)} AND s.{quote(THERE)}"
        same = " AND ".join([both_there, *(f"a.{quote(n)} IS NOT DISTINCT FROM s.{quote(n)}" for n in shown)])
        older = f"(s.{quote(TIME)}, s.{quote(self.sequence)}) < (a.{quote(TIME)}, a.{quote(self.sequence)})"
        old_count = f"s.{quote(COUNT)}" if stored.counted else "0"
        con.execute(
            f"CREATE TEMP TABLE {into} AS SELECT a.*, "
            f"s.{quote(RID)} AS {quote(OLD)}, {old_count} AS {quote(OLD_COUNT)}, "
            f"coalesce(s.{quote(THERE)}, FALSE) AS {quote(OLD_THERE)}, coalesce({same}, FALSE) AS {quote(SAME)}, "
            f"CASE WHEN {same} THEN s.{quote(ID)} ELSE CAST(a.{quote(RID)} AS VARCHAR) END AS {quote(ID)} "
            f"FROM {into}_latest AS a LEFT JOIN {into}_current AS s ON {same_key} "
            f"WHERE s.{quote(RID)} IS NULL OR {older}"
        )
        counted = f"count(*), count(*) FILTER (NOT brings AND {quote(OLD)} IS NULL)"
        ((newest, ignored),) = con.execute(f"SELECT {counted} FROM {into}").fetchall()
        con.execute(f"DROP TABLE {into}_latest")
        return {self.outdated: latest - newest, self.ignored_deletes: ignored}

    def _find_latest(self, stored: StoredRows, arriving: str, into: str) -> int:
        """Make the relation ``into`` of the latest of the arriving changes of each key; how many they are comes back.

        Places are compared only where a key's latest time is that of several changes.
        """
        con = stored.state.connection
        keys = ", ".join(map(quote, self.by))
        passes = f" AND coalesce({quote(self.passes)}, FALSE)" if self.passes else ""
        brings = f"{quote(self.weight)} > 0"
        same = " AND ".join(f"a.{quote(name)} = n.{quote(name)}" for name in self.by)
        con.execute(
            f"CREATE TEMP TABLE {into} AS "
            f"SELECT a.*, {brings}{passes} AS {quote(THERE)}, n.brings FROM {arriving} AS a JOIN ("
            f"SELECT {keys}, max({quote(TIME)}) AS latest, bool_or({brings}) AS brings FROM {arriving} GROUP BY {keys}"
            f") AS n ON {same} AND a.{quote(TIME)} = n.latest"
        )
        ((rows, distinct),) = con.execute(f"SELECT count(*), count(DISTINCT ({keys})) FROM {into}").fetchall()
        if rows > distinct:
            last = f"SELECT arg_max({quote(RID)}, {quote(self.sequence)}) FROM {into} GROUP BY {keys}"
            con.execute(f"CREATE OR REPLACE TEMP TABLE {into} AS SELECT * FROM {into} WHERE {quote(RID)} IN ({last})")
        return int(distinct)
