"""What the steps of all joins as of a time share: the right rows that may hold, the join, and the right side's state.

A step makes two tables: ``waiting``, the left rows to be joined (each kernel chooses its own), and ``candidates``, the
right rows that may hold for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

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
def step_tables(state: StateView, **arrived: pa.Table) -> Iterator[None]:
    """What arrived, as relations of these names; they and the tables that a step makes are gone in the end."""
    con = state.connection
    for name, rows in arrived.items():
        con.register(name, rows)
    try:
        yield
    finally:
        for name in ("waiting", "candidates", "tied", "past"):
            con.execute(f"DROP TABLE IF EXISTS {name}")
        for name in arrived:
            con.unregister(name)


@dataclass(frozen=True, slots=True)
class AsofStep:
    """One step's tables and SQL; right rows below ``low_right`` are done with, though segments may hold them."""

    match: AsofMatch
    state: StateView
    low_right: int = NEVER

    # -- the join --------------------------------------------------------------------------------------------------

    def find_candidates(self) -> None:
        """Make ``candidates``: of the right rows that may hold for a row of ``waiting`` the ones that count."""
        names = ", ".join(quote(name) for name in self.match.right_columns)
        where = [f"{quote(TIME)} IS NOT NULL"]
        if self.match.direction is Direction.BACKWARD:
            where.append(f"{quote(TIME)} <= (SELECT max({quote(TIME)}) FROM waiting)")
        ((waiting,),) = self.rows("SELECT count(*) FROM waiting")
        stored = self.count("right") + self.count("settled")
        find = self._find() if 0 < waiting * FAR_MORE < stored else None
        rows = f"SELECT {names} FROM ({self._right_rows(find)}) WHERE {' AND '.join(where)}"
        if self.match.keys and waiting * MORE < stored:
            rows = f"SELECT {names} FROM ({rows}) AS r WHERE {self._may_meet(rows)}"
        self.execute(f"CREATE TEMP TABLE candidates AS {rows}")
        self._keep_those_that_count("candidates")
        if self.match.direction is Direction.CURRENT:
            self.execute(f"CREATE OR REPLACE TEMP TABLE candidates AS {self._newest('candidates')}")
        elif not self.match.meets_one:
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
        on = self.match.same_key()
        if self.match.direction is Direction.BACKWARD:  # the versions of several things
            time, until = f"l.{quote(TIME)}", f"r.{quote(_UNTIL)}"
            on.append(f"r.{quote(TIME)} <= {time} AND ({until} IS NULL OR {time} < {until})")
        on += self._tests()
        return f"waiting AS l LEFT JOIN candidates AS r ON {' AND '.join(on) or 'TRUE'}"

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
        names = ", ".join(quote(name) for name in self.match.right_columns)
        find = find or self._stored
        parts = ["right_new", *(scan for name in ("right", "settled") if (scan := find(name)) is not None)]
        return " UNION ALL ".join(f"SELECT {names} FROM {part}" for part in parts)

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
        things = " UNION ".join([f"SELECT {by} FROM right_new", *found])
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
            return "SELECT * FROM right_new"
        by = ", ".join(quote(name) for name in self.match.versions.by)
        return f"SELECT * FROM ({self._right_rows()}) WHERE ({by}) IN (SELECT {by} FROM right_new)"

    def _keep_those_that_count(self, table: str) -> None:
        """Keep of a temporary table's rows those that say what holds from their time on; ``$gone``: nothing.

        Only rows that share their moment with others are sorted: most often there are none.
        """
        versions = self.match.versions
        moment = [quote(name) for name in (*versions.by, TIME)]
        self.execute(
            f"CREATE OR REPLACE TEMP TABLE tied AS SELECT {', '.join(moment)} FROM {table} "
            "GROUP BY ALL HAVING count(*) > 1"
        )
        ((ties,),) = self.rows("SELECT count(*) FROM tied")
        same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM t.{name}" for name in moment)
        alone = f"SELECT * FROM {table}" if not ties else f"SELECT * FROM {table} AS r ANTI JOIN tied AS t ON {same}"
        if versions.weight is not None:
            gone = f"{quote(versions.weight)} < 0"
            alone = f"SELECT *, {gone} AS {quote(_GONE)} FROM ({alone}){'' if versions.ends else f' WHERE NOT {gone}'}"
        elif not ties:
            return
        rows = alone
        if ties:
            sharing = f"(SELECT * FROM {table} AS r SEMI JOIN tied AS t ON {same})"
            rows += f" UNION ALL BY NAME {self._last_of_moments(sharing)}"
        self.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {rows}")

    def _last_of_moments(self, rows: str) -> str:
        """SQL of the rows that count of those that share their moment."""
        versions = self.match.versions
        order = f"ORDER BY {quote(versions.sequence)} DESC"
        if versions.weight is not None:
            slot = ", ".join(quote(name) for name in (*versions.identity, TIME))
            gone = f"{quote(versions.weight)} < 0"
            empty = "TRUE" if not versions.ends else "FALSE"
            if versions.ends and versions.takes_away:
                empty = f"count(*) FILTER (NOT {gone}) OVER (PARTITION BY {slot}) > 0"
            rows = (
                f"(SELECT *, {gone} AS {quote(_GONE)} FROM {rows} "
                f"QUALIFY row_number() OVER (PARTITION BY {slot} {order}) = 1 AND NOT ({gone} AND {empty}))"
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

    def keep_right(self, result: StepResult, floor: int) -> None:
        """Store the new right rows.  Of those below ``floor``, which stay as they are, only the newest count.

        They are rewritten as one set, the settled ones, once they are as many as it holds: each row so is rewritten a
        bounded number of times for each doubling.
        """
        names = ", ".join(quote(name) for name in self.match.right_columns)
        new = f"SELECT {names} FROM right_new WHERE {quote(TIME)} IS NOT NULL"
        if self.match.direction is Direction.FORWARD:
            result.store["right"] = self.table(f"{new} AND {quote(TIME)} >= {floor}")
            result.forget["right"] = floor
            return
        if self._fresh_below(floor) < max(LEAST_SETTLED, self.count("settled")):
            result.store["right"] = self.table(new)
            return
        rows = f"({self._right_rows()})"
        result.store["right"] = self.table(f"SELECT * FROM {rows} WHERE {quote(TIME)} >= {floor}")
        past = f"(SELECT * FROM {rows} WHERE {quote(TIME)} < {floor})"
        if self.match.versions.weight is None:
            # nothing takes a row away, so what is newest needs no look at older rows
            self.execute(f"CREATE TEMP TABLE past AS {self._newest(past)}")
            self._keep_those_that_count("past")
            settled = "past"
        else:
            self.execute(f"CREATE TEMP TABLE past AS FROM {past}")
            self._keep_those_that_count("past")
            # no row can come any more that a row which ends validity would have to keep out
            settled = f"({self._newest('past')}) WHERE NOT {quote(_GONE)}"
        result.store["settled"] = self.table(f"SELECT {names} FROM {settled}")
        result.forget["right"] = result.forget["settled"] = FOREVER

    def _fresh_below(self, floor: int) -> int:
        """New and stored right rows below ``floor`` that have not been settled."""
        if floor == NEVER:
            return 0
        ((new,),) = self.rows(f"SELECT count(*) FROM right_new WHERE {quote(TIME)} < {floor}")
        return new + self.count("right", floor - 1)

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
