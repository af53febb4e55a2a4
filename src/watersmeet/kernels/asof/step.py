"""The part of a step that all joins as of a time share: candidates, the join, and the right side's state.

The kernel makes the table ``waiting``, the left rows to join.  Then::

    find_candidates:
        rows = new right rows + stored right rows, all with a time
        BACKWARD:  drop rows newer than the newest waiting row        (but none below the floor if the step settles)
        step settles:                 read all stored rows: settling needs them, whatever is waiting
        waiting * 100 < stored:       read the stored rows that an index lookup returns, if an index fits
        waiting * 4 < stored:         drop rows of entities that no waiting row looks up
        candidates = the last row of each entity and time             (see Versions in asof/match.py)
        BACKWARD, key incomplete:     $until = time of the entity's next candidate

    joined: for each waiting row l
        BACKWARD, key complete             ASOF JOIN: newest r.$t <= l.$t     (strict: <)
        BACKWARD, otherwise                every r with r.$t <= l.$t < r.$until
        FORWARD                            ASOF JOIN: oldest r.$t >= l.$t     (strict: >)
        NEAREST                            both of them, the nearer as r, at equal distance the earlier
        CURRENT                            the newest candidate of each entity

    keep_right, floor = the lowest time that a later step may look up or change:
        FORWARD         store new rows at or after the floor, forget stored ones below it
        not settling    store new rows in "right"                     (but none that no row can ask for)
        settling        "right"   = all rows at or after the floor
                        "settled" = of each entity the newest row below it, unless that ends validity

A key is complete if it covers all columns that identify an entity.  A step settles if at least max(50,000, rows in
"settled") rows below the floor are not settled yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from watersmeet.columns import RID, TIME
from watersmeet.kernels.api import FOREVER, NEVER, Side, StateView, StepResult, made, quote
from watersmeet.kernels.asof.match import AsofMatch, Direction

#: Minimum number of unsettled rows below the floor for a step to settle.
MIN_SETTLED = 50_000
#: Minimum stored rows per waiting row for an index lookup.
STORED_PER_LOOKUP = 100
#: Minimum stored rows per waiting row for a filter by the keys of waiting rows.
STORED_PER_FILTER = 4
_GONE, _UNTIL = "$gone", "$until"


@dataclass(frozen=True)
class AsofStep:
    """One step's tables and SQL; ``right_new`` is the relation of new right rows.

    Later steps bring no row below ``floor``, so right rows below it no longer change (FORWARD: are no longer needed).
    Rows below ``low_right`` are no longer needed, though segments may still hold them, nor are those above
    ``high_right``.
    """

    match: AsofMatch
    state: StateView
    right_new: str
    floor: int
    low_right: int = NEVER
    high_right: int = FOREVER

    @cached_property
    def settles(self) -> bool:
        """Whether this step settles right rows: below the floor it keeps only the newest row of each entity.

        It does once as many rows are unsettled as settled, so a settled row is rewritten once for each doubling.
        """
        if self.match.direction is Direction.FORWARD or self.floor == NEVER:
            return False
        ((new,),) = self.rows(f"SELECT count(*) FROM {self.right_new} WHERE {quote(TIME)} < {self.floor}")
        return new + self.count_until("right", self.floor - 1) >= max(MIN_SETTLED, self.count_until("settled"))

    # -- the join --------------------------------------------------------------------------------------------------

    def find_candidates(self, waiting: int) -> None:
        """Make the table ``candidates``: the right rows that may match one of so many waiting rows.

        In a step that settles, it also has the last row of every entity and time below the floor.
        """
        where = [f"{quote(TIME)} IS NOT NULL"]
        if self.match.direction is Direction.BACKWARD:
            settled = f" OR {quote(TIME)} < {self.floor}" if self.settles else ""
            where.append(f"({quote(TIME)} <= (SELECT max({quote(TIME)}) FROM waiting){settled})")
        stored = self.count_until("right") + self.count_until("settled")
        may_skip_rows = not self.settles
        find = self._index_lookup() if may_skip_rows and 0 < waiting * STORED_PER_LOOKUP < stored else None
        rows = f"SELECT {self._right_names()} FROM ({self._right_rows(find)}) WHERE {' AND '.join(where)}"
        if self.match.keys and may_skip_rows and waiting * STORED_PER_FILTER < stored:
            rows = f"SELECT {self._right_names()} FROM ({rows}) AS r WHERE {self._may_meet(rows)}"
        self._make_candidates(rows)
        if self.match.direction is Direction.BACKWARD and not self.match.key_is_complete:
            by = ", ".join(quote(name) for name in self.match.versions.by)
            until = f"lead({quote(TIME)}) OVER (PARTITION BY {by} ORDER BY {quote(TIME)})"
            self.state.tables.remake("candidates", f"SELECT *, {until} AS {quote(_UNTIL)} FROM candidates")

    def joined(self) -> str:
        """Return a FROM clause: each waiting row as ``l`` and a candidate as ``r``, tested by ``matches``.

        For NEAREST, ``n`` has the times ``before`` and ``after`` of both neighbors.
        """
        match self.match.direction:
            case Direction.NEAREST:
                return self._nearest()
            case Direction.BACKWARD if self.match.key_is_complete:
                return self._asof(">")
            case Direction.FORWARD:
                return self._asof("<")
        right, on = "candidates", [*self.match.same_key(), *self._tests()]
        if self.match.direction is Direction.CURRENT:
            right = f"({self._newest('candidates')})"
        else:  # BACKWARD: the versions of several entities
            time, until = f"l.{quote(TIME)}", f"r.{quote(_UNTIL)}"
            on.append(f"r.{quote(TIME)} <= {time} AND ({until} IS NULL OR {time} < {until})")
        return f"waiting AS l LEFT JOIN {right} AS r ON {' AND '.join(on) or 'TRUE'}"

    def matches(self) -> str:
        """Return SQL that tests whether the candidate in ``joined`` is the left row's partner."""
        checked = [term for term in self.match.same_key() if term not in self.match.same_key(by=True)]
        return " AND ".join([f"r.{quote(TIME)} IS NOT NULL", *checked, *self._tests()])

    def results_sql(self) -> str:
        """Return SQL for the results of all waiting rows; it ends in a WHERE clause that may be extended."""
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
        """Return a FROM clause with both neighbors of each waiting row as ``n``, and the nearer one as ``r``."""
        time, rid = quote(TIME), quote(RID)
        neighbors = [
            f"(SELECT l.{rid}, l.{time}, r.{time} AS t, r.rowid AS row FROM {self._asof(sign)}) AS {alias}"
            for sign, alias in ((">", "b"), ("<", "a"))
        ]
        earlier = f"a.t IS NULL OR b.{time} - b.t <= a.t - b.{time}"
        nearer = f"b.t AS before, a.t AS after, CASE WHEN {earlier} THEN b.row ELSE a.row END AS row"
        both = f"SELECT b.{rid}, {nearer} FROM {neighbors[0]} JOIN {neighbors[1]} USING ({rid})"
        return f"waiting AS l JOIN ({both}) AS n USING ({rid}) LEFT JOIN candidates AS r ON r.rowid = n.row"

    # -- right rows ------------------------------------------------------------------------------------------------

    def _right_rows(self, find: Callable[[str], str | None] | None = None) -> str:
        """Return SQL for the new right rows and, of each relation, the stored ones or those that ``find`` returns."""
        find = find or self._stored
        parts = [self.right_new, *(scan for name in ("right", "settled") if (scan := find(name)) is not None)]
        return " UNION ALL ".join(f"SELECT {self._right_names()} FROM {part}" for part in parts)

    def _right_names(self) -> str:
        return ", ".join(quote(name) for name in self.match.right_columns)

    def _index_lookup(self) -> Callable[[str], str | None] | None:
        """Return how to look up a relation's rows for the waiting rows; None if no index fits."""
        match = self.match
        if any(key.null_safe for key in match.keys) or not match.keys or not match.versions.by:
            return None
        if not match.key_is_complete:
            return self._versions_by_index if match.versions.index else None
        # the newest row at or before a time is the valid one, unless another row may have retracted it
        is_newest = match.direction is Direction.BACKWARD and not match.strict and not match.versions.takes_away
        return self._versions_as_of if is_newest else self._versions_by_key

    def _versions_as_of(self, relation: str) -> str | None:
        """Look up the newest versions at or before the times of the waiting rows."""
        by = self.match.versions.by
        return self.state.rows_as_of(relation, by, self._probes(by, TIME))

    def _versions_by_key(self, relation: str) -> str | None:
        """Look up all versions of the entities that waiting rows look up."""
        by = self.match.versions.by
        return self.state.rows_with_keys(relation, by, self._probes(by))

    def _versions_by_index(self, relation: str) -> str | None:
        """Look up all versions of the entities that have a version with the key of a waiting row."""
        by = ", ".join(quote(name) for name in self.match.versions.by)
        index = self.match.versions.index
        found = [
            f"SELECT {by} FROM {rows}"
            for each in ("right", "settled")
            if (rows := self.state.rows_with_keys(each, index, self._probes(index))) is not None
        ]
        entities = " UNION ".join([f"SELECT {by} FROM {self.right_new}", *found])
        return self.state.rows_with_keys(relation, self.match.versions.by, f"({entities})")

    def _probes(self, names: Sequence[str], *more: str) -> str:
        """Return SQL for the distinct keys of waiting rows, under the names of the right side's columns."""
        left = {key.right: key.left for key in self.match.keys}
        columns = [f"{quote(left[name])} AS {quote(name)}" for name in names]
        return f"(SELECT DISTINCT {', '.join([*columns, *map(quote, more)])} FROM waiting)"

    def _may_meet(self, rows: str) -> str:
        """Return SQL that tests whether a right row ``r`` belongs to an entity that a waiting row looks up."""
        if self.match.key_is_complete:
            same_entity = " AND ".join(self.match.same_key(by=True)) or "TRUE"
            return f"EXISTS (SELECT 1 FROM waiting AS l WHERE {same_entity})"
        # another version of the same entity may have another key
        same_key = " AND ".join(self.match.same_key())
        return self._is_entity_of(f"({rows}) AS r WHERE EXISTS (SELECT 1 FROM waiting AS l WHERE {same_key})")

    def _is_entity_of(self, rows: str) -> str:
        """Return SQL that tests whether a right row ``r`` belongs to an entity of ``rows``; NULL names one too."""
        by = [quote(name) for name in self.match.versions.by]
        same = " AND ".join(f"e.{name} IS NOT DISTINCT FROM r.{name}" for name in by)
        return f"EXISTS (SELECT 1 FROM (SELECT {', '.join(by)} FROM {rows}) AS e WHERE {same})"

    def changed_entities(self) -> str:
        """Return SQL for all versions of the entities with a new or retracted version, so for all keys they had."""
        if self.match.key_is_complete:
            return f"SELECT * FROM {self.right_new}"
        return f"SELECT * FROM ({self._right_rows()}) AS r WHERE {self._is_entity_of(self.right_new)}"

    def _make_candidates(self, rows: str) -> None:
        """Make ``candidates`` of the last row of each entity and time; a row with ``$gone`` ends its entity's validity.

        Only rows that tie with others (same entity and time) are sorted.  Usually there are none.
        """
        versions = self.match.versions
        moment = [quote(name) for name in (*versions.by, TIME)]
        gone = "" if versions.weight is None else f", {quote(versions.weight)} < 0 AS {quote(_GONE)}"
        self.state.tables.make("candidates", f"SELECT *{gone} FROM ({rows})")
        ties = self.state.tables.make(
            "tied", f"SELECT {', '.join(moment)} FROM candidates GROUP BY ALL HAVING count(*) > 1"
        )
        valid_only = "" if versions.weight is None or versions.ends else f" WHERE NOT {quote(_GONE)}"
        if not ties and valid_only:
            self.state.connection.execute(f"DELETE FROM candidates WHERE {quote(_GONE)}")
        elif ties:
            same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM t.{name}" for name in moment)
            alone = f"SELECT * FROM (SELECT * FROM candidates AS r ANTI JOIN tied AS t ON {same}){valid_only}"
            sharing = f"(SELECT * FROM candidates AS r SEMI JOIN tied AS t ON {same})"
            self.state.tables.remake("candidates", f"{alone} UNION ALL {self._last_of_moments(sharing)}")

    def _last_of_moments(self, rows: str) -> str:
        """Return SQL for the rows that decide among ``rows``, each of which ties with another."""
        versions = self.match.versions
        order = f"ORDER BY {self.match.last_first}"
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
        """Return SQL for the newest rows of each entity."""
        by = [quote(name) for name in self.match.versions.by]
        newest = f"SELECT {', '.join([*by, f'max({quote(TIME)}) AS {quote(TIME)}'])} FROM {rows} GROUP BY ALL"
        same = " AND ".join([*(f"r.{name} IS NOT DISTINCT FROM n.{name}" for name in by), "r.{0} = n.{0}"])
        return f"SELECT r.* FROM {rows} AS r JOIN ({newest}) AS n ON {same.format(quote(TIME))}"

    # -- state -----------------------------------------------------------------------------------------------------

    def keep_right(self, result: StepResult) -> None:
        """Store the new right rows; a step that settles rewrites all, and below the floor keeps the valid rows."""
        names = self._right_names()
        new = f"SELECT {names} FROM {self.right_new} WHERE {quote(TIME)} <= {self.high_right}"
        if self.match.direction is Direction.FORWARD:
            result.store["right"] = self.state.query(f"{new} AND {quote(TIME)} >= {self.floor}")
            result.forget["right"] = self.floor
            return
        if not self.settles:
            result.store["right"] = self.state.query(new)
            return
        kept = f"SELECT * FROM ({self._right_rows()}) WHERE {quote(TIME)} BETWEEN {self.floor} AND {self.high_right}"
        past = self._newest(f"(SELECT * FROM candidates WHERE {quote(TIME)} < {self.floor})")
        # a row that ends validity has no effect without an older row of its entity
        is_valid = f" WHERE NOT {quote(_GONE)}" if self.match.versions.ends else ""
        stored = sum(map(self.state.most_rows, ("right", "settled")))
        result.replace["right"] = made(self.state, kept, stored)
        result.replace["settled"] = made(self.state, f"SELECT {names} FROM ({past}){is_valid}", stored)

    def _stored(self, relation: str) -> str | None:
        return self.state.scan(relation, self.low_right, FOREVER)

    def count_until(self, relation: str, high: int = FOREVER) -> int:
        """Return how many rows of a relation are stored up to a time."""
        scan = self.state.scan(relation, NEVER, high)
        return 0 if scan is None else int(self.rows(f"SELECT count(*) FROM {scan}")[0][0])

    # -- SQL -------------------------------------------------------------------------------------------------------

    def rows(self, sql: str) -> list[tuple[int, ...]]:
        """Return the rows of a query that counts."""
        return self.state.connection.execute(sql).fetchall()
