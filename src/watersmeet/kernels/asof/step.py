"""What the steps of all joins as of a time share: the right rows that may hold, the join, and the right side's state.

A step makes two tables: ``waiting``, the left rows to be joined (each kernel chooses its own), and ``candidates``, the
right rows that may hold for one of them.  In a step that settles right rows all of those are among the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, Side, StateView, StepResult, quote
from watersmeet.kernels.asof.match import AsofMatch, Direction

#: What is fresh is put together with what was settled before once there is so much of it …
LEAST_SETTLED = 50_000
#: Stored rows for each waiting one from which an index pays …
FAR_MORE = 100
#: … and right rows for each waiting one from which it pays to leave out those of keys that nobody asks for.
MORE = 4
_GONE, _UNTIL = "$gone", "$until"


@contextmanager
def step_tables(state: StateView) -> Iterator[None]:
    """Tables that a step makes are gone in the end."""
    try:
        yield
    finally:
        for name in ("waiting", "candidates", "tied"):
            state.connection.execute(f"DROP TABLE IF EXISTS {name}")


@dataclass(frozen=True)
class AsofStep:
    """One step's tables and SQL; ``right_new`` is the relation of the right rows that arrived.

    What comes after this step is not older than ``floor``: right rows below it stay as they are (FORWARD: are done
    with).  Those below ``low_right`` are done with, though segments may hold them.
    """

    match: AsofMatch
    state: StateView
    right_new: str
    floor: int
    low_right: int = NEVER

    @cached_property
    def settles(self) -> bool:
        """Whether right rows are settled in this step: of those below the floor only what holds then is kept.

        They are, once as many are fresh as have been settled: each row so is rewritten a bounded number of times for
        each doubling.
        """
        if self.match.direction is Direction.FORWARD or self.floor == NEVER:
            return False
        ((new,),) = self.rows(f"SELECT count(*) FROM {self.right_new} WHERE {quote(TIME)} < {self.floor}")
        return new + self.count("right", self.floor - 1) >= max(LEAST_SETTLED, self.count("settled"))

    # -- the join --------------------------------------------------------------------------------------------------

    def find_candidates(self) -> None:
        """Make ``candidates``: of the right rows that may hold for a row of ``waiting`` the ones that count.

        In a step that settles right rows, also of all below the floor.
        """
        where = [f"{quote(TIME)} IS NOT NULL"]
        if self.match.direction is Direction.BACKWARD:
            settled = f" OR {quote(TIME)} < {self.floor}" if self.settles else ""
            where.append(f"({quote(TIME)} <= (SELECT max({quote(TIME)}) FROM waiting){settled})")
        ((waiting,),) = self.rows("SELECT count(*) FROM waiting")
        stored = self.count("right") + self.count("settled")
        may_leave_out = not self.settles  # to settle rows all are needed, whoever asks for them
        find = self._find() if may_leave_out and 0 < waiting * FAR_MORE < stored else None
        rows = f"SELECT {self._right_names()} FROM ({self._right_rows(find)}) WHERE {' AND '.join(where)}"
        if self.match.keys and may_leave_out and waiting * MORE < stored:
            rows = f"SELECT {self._right_names()} FROM ({rows}) AS r WHERE {self._may_meet(rows)}"
        self._make_candidates(rows)
        if self.match.direction is Direction.BACKWARD and not self.match.meets_one:
            by = ", ".join(quote(name) for name in self.match.versions.by)
            until = f"lead({quote(TIME)}) OVER (PARTITION BY {by} ORDER BY {quote(TIME)})"
            self.execute(
                f"CREATE OR REPLACE TEMP TABLE candidates AS SELECT *, {until} AS {quote(_UNTIL)} FROM candidates"
            )

    def joined(self) -> str:
        """FROM clause: each row of ``waiting`` as ``l`` with what may hold as ``r`` (``matches`` says whether it does).

        For NEAREST also ``n``, with the times ``before`` and ``after`` of both neighbours.
        """
        match self.match.direction:
            case Direction.NEAREST:
                return self._nearest()
            case Direction.BACKWARD if self.match.meets_one:
                return self._asof(">")
            case Direction.FORWARD:
                return self._asof("<")
        right, on = "candidates", [*self.match.same_key(), *self._tests()]
        if self.match.direction is Direction.CURRENT:
            right = f"({self._newest('candidates')})"
        else:  # BACKWARD: the versions of several things
            time, until = f"l.{quote(TIME)}", f"r.{quote(_UNTIL)}"
            on.append(f"r.{quote(TIME)} <= {time} AND ({until} IS NULL OR {time} < {until})")
        return f"waiting AS l LEFT JOIN {right} AS r ON {' AND '.join(on) or 'TRUE'}"

    def matches(self) -> str:
        """Whether what stands beside a row in ``joined`` is its partner."""
        checked = [term for term in self.match.same_key() if term not in self.match.same_key(by=True)]
        return " AND ".join([f"r.{quote(TIME)} IS NOT NULL", *checked, *self._tests()])

    def results_sql(self) -> str:
        """SQL of the results for all rows of ``waiting``; it ends in a condition, to which more may be added."""
        outer = self.match.outer
        columns = [*self.match.output(Side.LEFT), *self.match.output(Side.RIGHT, self.matches() if outer else None)]
        return f"SELECT {', '.join(columns)} FROM {self.joined()} WHERE {'TRUE' if outer else self.matches()}"

    def _tests(self) -> list[str]:
        terms = []
        if self.match.versions.ends:
            terms.append(f"NOT r.{quote(_GONE)}")
        if self.match.tolerance is not None:
            terms.append(f"abs(l.{quote(TIME)} - r.{quote(TIME)}) <= {self.match.tolerance}")
        if self.match.residual is not None:
            terms.append(f"coalesce({self.match.residual}, FALSE)")
        return terms

    def _asof(self, sign: str) -> str:
        compare = sign if self.match.strict else f"{sign}="
        on = [*self.match.same_key(by=True), f"l.{quote(TIME)} {compare} r.{quote(TIME)}"]
        return f"waiting AS l ASOF LEFT JOIN candidates AS r ON {' AND '.join(on)}"

    def _nearest(self) -> str:
        """Both neighbours of each row, and the nearer of them as ``r``."""
        time, rid = quote(TIME), quote(RID)
        neighbours = [
            f"(SELECT l.{rid}, l.{time}, r.{time} AS t, r.rowid AS row FROM {self._asof(sign)}) AS {alias}"
            for sign, alias in ((">", "b"), ("<", "a"))
        ]
        earlier = f"a.t IS NULL OR b.{time} - b.t <= a.t - b.{time}"
        nearer = f"b.t AS before, a.t AS after, CASE WHEN {earlier} THEN b.row ELSE a.row END AS row"
        both = f"SELECT b.{rid}, {nearer} FROM {neighbours[0]} JOIN {neighbours[1]} USING ({rid})"
        return f"waiting AS l JOIN ({both}) AS n USING ({rid}) LEFT JOIN candidates AS r ON r.rowid = n.row"

    # -- right rows ------------------------------------------------------------------------------------------------

    def _right_rows(self, find: Callable[[str], str | None] | None = None) -> str:
        """SQL of the new and the stored right rows, or of those stored that ``find`` gives of each relation."""
        find = find or self._stored
        parts = [self.right_new, *(scan for name in ("right", "settled") if (scan := find(name)) is not None)]
        return " UNION ALL ".join(f"SELECT {self._right_names()} FROM {part}" for part in parts)

    def _right_names(self) -> str:
        return ", ".join(quote(name) for name in self.match.right_columns)

    def _find(self) -> Callable[[str], str | None] | None:
        """How the right rows for a few waiting ones are sought by an index; None where there is none."""
        match = self.match
        if any(key.null_safe for key in match.keys) or not match.keys:
            return None
        if not match.meets_one:
            return self._of_things if match.versions.index else None
        # the newest row at or before a time says what holds then, unless another may have taken it away
        is_newest = match.direction is Direction.BACKWARD and not match.strict and not match.versions.takes_away
        return self._near if is_newest else self._of_keys

    def _near(self, relation: str) -> str | None:
        """The newest versions at or before the times of the waiting rows."""
        by = self.match.versions.by
        return self.state.near(relation, by, self._probes(by, TIME))

    def _of_keys(self, relation: str) -> str | None:
        """All versions of the things that waiting rows ask for."""
        by = self.match.versions.by
        return self.state.of_keys(relation, by, self._probes(by))

    def _of_things(self, relation: str) -> str | None:
        """All versions of the things of which one, as the index knows, has the key of a waiting row."""
        by = ", ".join(quote(name) for name in self.match.versions.by)
        index = self.match.versions.index
        found = [
            f"SELECT {by} FROM {rows}"
            for each in ("right", "settled")
            if (rows := self.state.of_keys(each, index, self._probes(index))) is not None
        ]
        things = " UNION ".join([f"SELECT {by} FROM {self.right_new}", *found])
        return self.state.of_keys(relation, self.match.versions.by, f"({things})")

    def _probes(self, names: Sequence[str], *more: str) -> str:
        """A relation of what waiting rows have for columns of the right side's key."""
        left = {key.right: key.left for key in self.match.keys}
        columns = [f"{quote(left[name])} AS {quote(name)}" for name in names]
        return f"(SELECT DISTINCT {', '.join([*columns, *map(quote, more)])} FROM waiting)"

    def _may_meet(self, rows: str) -> str:
        """Whether a right row ``r`` is of a thing that some waiting row asks for."""
        asked_for = f"EXISTS (SELECT 1 FROM waiting AS l WHERE {' AND '.join(self.match.same_key(by=True))})"
        if self.match.meets_one:
            return asked_for
        # a version says nothing of the key that another version of the same thing has
        by = ", ".join(quote(name) for name in self.match.versions.by)
        same_key = " AND ".join(self.match.same_key())
        return f"({by}) IN (SELECT {by} FROM ({rows}) AS r WHERE EXISTS (SELECT 1 FROM waiting AS l WHERE {same_key}))"

    def changed_things(self) -> str:
        """SQL of right rows of the things of which a version came or went: with all the keys that they had."""
        if self.match.meets_one:
            return f"SELECT * FROM {self.right_new}"
        by = ", ".join(quote(name) for name in self.match.versions.by)
        return f"SELECT * FROM ({self._right_rows()}) WHERE ({by}) IN (SELECT {by} FROM {self.right_new})"

    def _make_candidates(self, rows: str) -> None:
        """Make ``candidates`` of those right rows that say what holds from their time on; ``$gone``: nothing.

        Only rows that share their moment with others are sorted: most often there are none.
        """
        versions = self.match.versions
        moment = [quote(name) for name in (*versions.by, TIME)]
        gone = "" if versions.weight is None else f", {quote(versions.weight)} < 0 AS {quote(_GONE)}"
        self.execute(f"CREATE TEMP TABLE candidates AS SELECT *{gone} FROM ({rows})")
        self.execute(
            f"CREATE TEMP TABLE tied AS SELECT {', '.join(moment)} FROM candidates GROUP BY ALL HAVING count(*) > 1"
        )
        ((ties,),) = self.rows("SELECT count(*) FROM tied")
        that_count = "" if versions.weight is None or versions.ends else f" WHERE NOT {quote(_GONE)}"
        if not ties and that_count:
            self.execute(f"DELETE FROM candidates WHERE {quote(_GONE)}")
        elif ties:
            same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM t.{name}" for name in moment)
            alone = f"SELECT * FROM (SELECT * FROM candidates AS r ANTI JOIN tied AS t ON {same}){that_count}"
            sharing = f"(SELECT * FROM candidates AS r SEMI JOIN tied AS t ON {same})"
            self.execute(
                f"CREATE OR REPLACE TEMP TABLE candidates AS {alone} UNION ALL {self._last_of_moments(sharing)}"
            )

    def _last_of_moments(self, rows: str) -> str:
        """SQL of the rows that count of those that share their moment."""
        versions = self.match.versions
        order = f"ORDER BY {quote(versions.sequence)} DESC"
        if versions.weight is not None:
            slot = ", ".join(quote(name) for name in (*versions.identity, TIME))
            empty = "TRUE" if not versions.ends else "FALSE"
            if versions.ends and versions.takes_away:
                empty = f"count(*) FILTER (NOT {quote(_GONE)}) OVER (PARTITION BY {slot}) > 0"
            rows = (
                f"(SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY {slot} {order}) = 1 "
                f"AND NOT ({quote(_GONE)} AND {empty}))"
            )
        moment = ", ".join(quote(name) for name in (*versions.by, TIME))
        return f"SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY {moment} {order}) = 1"

    def _newest(self, rows: str) -> str:
        """SQL of the rows of each thing's newest moment."""
        by = [quote(name) for name in self.match.versions.by]
        newest = f"SELECT {', '.join([*by, f'max({quote(TIME)}) AS {quote(TIME)}'])} FROM {rows} GROUP BY ALL"
        same = " AND ".join([*(f"r.{name} IS NOT DISTINCT FROM n.{name}" for name in by), "r.{0} = n.{0}"])
        return f"SELECT r.* FROM {rows} AS r JOIN ({newest}) AS n ON {same.format(quote(TIME))}"

    # -- state -----------------------------------------------------------------------------------------------------

    def keep_right(self, result: StepResult) -> None:
        """Store the new right rows; in a step that settles, all anew, and of those below the floor what holds then."""
        names = self._right_names()
        new = f"SELECT {names} FROM {self.right_new} WHERE {quote(TIME)} IS NOT NULL"
        if self.match.direction is Direction.FORWARD:
            result.store["right"] = self.table(f"{new} AND {quote(TIME)} >= {self.floor}")
            result.forget["right"] = self.floor
            return
        if not self.settles:
            result.store["right"] = self.table(new)
            return
        fresh = f"SELECT * FROM ({self._right_rows()}) WHERE {quote(TIME)} >= {self.floor}"
        past = self._newest(f"(SELECT * FROM candidates WHERE {quote(TIME)} < {self.floor})")
        # no row can come any more that a row which ends validity would have to keep out
        holds = f" WHERE NOT {quote(_GONE)}" if self.match.versions.ends else ""
        result.store["right"] = self.table(fresh)
        result.store["settled"] = self.table(f"SELECT {names} FROM ({past}){holds}")
        result.forget["right"] = result.forget["settled"] = FOREVER

    def _stored(self, relation: str) -> str | None:
        return self.state.scan(relation, self.low_right, FOREVER)

    def count(self, relation: str, high: int = FOREVER) -> int:
        """Stored rows of a relation up to a time."""
        scan = self.state.scan(relation, NEVER, high)
        return 0 if scan is None else int(self.rows(f"SELECT count(*) FROM {scan}")[0][0])

    # -- SQL -------------------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> None:
        """Carry out a statement."""
        self.state.connection.execute(sql)

    def rows(self, sql: str) -> list[tuple[int, ...]]:
        """The rows of a query that counts something."""
        return self.state.connection.execute(sql).fetchall()

    def table(self, sql: str) -> pa.Table:
        """The rows of a query."""
        return self.state.connection.sql(sql).to_arrow_table()
