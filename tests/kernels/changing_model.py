"""Joins of changing streams, in SQL and in nested loops over the rows that hold.

The loops share no code with the kernels, and no DuckDB: NULL is None, and a condition may be None (unknown).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.reference import standing, versions_at


class Row(NamedTuple):
    """The values that a change sets for its key; all None in place of a padded row."""

    id: int | None = None
    g: int | None = None
    k: int | None = None
    v: int | None = None
    ts: int | None = None


PADDED = Row()
Change = tuple[Row, int]  # row, delta
Changes = Mapping[str, Sequence[Change]]  # by stream, in the order of the source
Joined = Mapping[str, Row]  # by alias
Result = tuple[Any, ...]


@dataclass(frozen=True)
class Stream:
    """A changing stream by primary key, or, without one, an append-only stream."""

    name: str
    key: tuple[str, ...] = ("id",)
    delay: int | None = None  # of its WATERMARK
    mode: str = "versioned_kv"

    def sql(self) -> str:
        """Its CREATE STREAM."""
        watermark = "" if self.delay is None else f", WATERMARK FOR ts AS ts - INTERVAL '{self.delay}' SECONDS"
        columns = f"id INT, g INT, k INT, v INT, ts BIGINT{watermark}"
        key = f" PRIMARY KEY ({', '.join(self.key)})" if self.key else ""
        mode = f" SETTINGS mode = '{self.mode}'" if self.key else ""
        return f"CREATE STREAM {self.name} ({columns}){key} WITH (event_time_unit = 's'){mode};\n"

    def fed(self, changes: Sequence[Change]) -> list[tuple[Any, ...]]:
        """Return changes as input of the harness."""
        return [(*row, delta) if self.key else tuple(row) for row, delta in changes]

    def key_of(self, row: Row) -> Result:
        """The primary key of a row."""
        return tuple(getattr(row, name) for name in self.key)

    def holding(self, changes: Sequence[Change]) -> list[Row]:
        """The rows that hold after changes."""
        if not self.key:
            return [row for row, _ in changes]
        newest: dict[Result, Change] = {}
        # sorted is stable: of equal times, the later in the source holds
        for row, delta in sorted(changes, key=lambda change: change[0].ts or 0):
            newest[self.key_of(row)] = row, delta
        return [row for row, delta in newest.values() if delta > 0]


@dataclass(frozen=True)
class Term:
    """A condition over a row ``x`` and a row ``y``, in SQL and in Python."""

    sql: str
    test: Callable[[Row, Row], bool | None]

    def of(self, x: str, y: str) -> str:
        """Its SQL over two aliases."""
        return self.sql.format(x=x, y=y)


def hold(terms: Sequence[Term], x: Row, y: Row) -> bool:
    """Return whether all conditions are true."""
    return all(term.test(x, y) is True for term in terms)


@dataclass(frozen=True)
class Form:
    """An item of FROM: a stream, or a subselect of one that filters or computes rows."""

    sql: str
    keeps: Callable[[Row], bool | None] = lambda row: True
    made: Callable[[Row], Row] | None = None


PLAIN = Form("{stream}")


@dataclass(frozen=True)
class Source:
    """A stream under an alias."""

    stream: Stream
    alias: str
    form: Form = PLAIN

    def sql(self) -> str:
        """Return its SQL in FROM."""
        return f"{self.form.sql.format(stream=self.stream.name)} {self.alias}"

    def rows(self, given: Changes) -> list[Row]:
        """Its rows that hold."""
        rows = [row for row in self.stream.holding(given[self.stream.name]) if self.form.keeps(row)]
        return [self.form.made(row) for row in rows] if self.form.made else rows


JOINS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "LEFT SEMI JOIN",
    "anti": "LEFT ANTI JOIN",
    "right_semi": "RIGHT SEMI JOIN",
    "right_anti": "RIGHT ANTI JOIN",
}


@dataclass(frozen=True)
class Join:
    """A join with the joins before it, by conditions over its own row and that of one alias ``x``."""

    kind: str
    source: Source
    x: str
    terms: tuple[Term, ...]
    within: Term | None = None

    def visible(self, before: Sequence[str]) -> list[str]:
        """The aliases that can be named after it."""
        if self.kind in ("right_semi", "right_anti"):
            return [self.source.alias]
        return [*before] if self.kind in ("semi", "anti") else [*before, self.source.alias]

    def sql(self) -> str:
        """Return its SQL after FROM."""
        on = " AND ".join(term.of(self.x, self.source.alias) for term in self.terms)
        return f"{JOINS[self.kind]} {self.source.sql()} ON {on}{f' {self.within.sql}' if self.within else ''}"

    def joined(self, left: Sequence[Joined], given: Changes, aliases: Sequence[str]) -> list[Joined]:
        """The join over all rows; ``aliases`` are those of the left side."""
        right, alias = self.source.rows(given), self.source.alias
        terms = (*self.terms, self.within) if self.within else self.terms
        if self.kind in ("right_semi", "right_anti"):
            met = [any(hold(terms, one[self.x], row) for one in left) for row in right]
            return [{alias: row} for row, has in zip(right, met, strict=True) if has == (self.kind == "right_semi")]
        pairs = [(one, [row for row in right if hold(terms, one[self.x], row)]) for one in left]
        if self.kind in ("semi", "anti"):
            return [one for one, partners in pairs if bool(partners) == (self.kind == "semi")]
        found: list[Mapping[str, Row]] = [{**one, alias: row} for one, partners in pairs for row in partners]
        if self.kind in ("left", "full"):
            found += [{**one, alias: PADDED} for one, partners in pairs if not partners]
        if self.kind in ("right", "full"):
            alone = [row for row in right if not any(hold(terms, one[self.x], row) for one in left)]
            found += [{**dict.fromkeys(aliases, PADDED), alias: row} for row in alone]
        return found


@dataclass(frozen=True)
class TemporalJoin:
    """[LEFT] JOIN … FOR SYSTEM_TIME AS OF the time of ``x``: with the rows that held at that time."""

    kind: str  # inner or left
    source: Source
    x: str
    terms: tuple[Term, ...]

    def visible(self, before: Sequence[str]) -> list[str]:
        """The aliases that can be named after it."""
        return [*before, self.source.alias]

    def sql(self) -> str:
        """Return its SQL after FROM."""
        stream, alias = self.source.stream.name, self.source.alias
        on = " AND ".join(term.of(self.x, alias) for term in self.terms)
        return f"{JOINS[self.kind]} {stream} FOR SYSTEM_TIME AS OF {self.x}.ts {alias} ON {on}"

    def joined(self, left: Sequence[Joined], given: Changes, aliases: Sequence[str]) -> list[Joined]:
        """The join over all rows."""
        stream, alias = self.source.stream, self.source.alias
        versions = standing(
            [
                {"pk": stream.key_of(row), "t": row.ts, "w": delta, "seq": place, "row": row}
                for place, (row, delta) in enumerate(given[stream.name])
            ],
            takes_away=stream.mode == "changelog_kv",
            ends=True,
        )
        found: list[Joined] = []
        for one in left:
            x = one[self.x]
            partners = [each["row"] for each in versions_at(versions, x.ts) if hold(self.terms, x, each["row"])]
            found += [{**one, alias: row} for row in partners or ([PADDED] if self.kind == "left" else [])]
        return found


@dataclass(frozen=True)
class Subquery:
    """[NOT] EXISTS, or [NOT] IN over some columns, in WHERE; perhaps under OR.

    Beside it, there are then an alternative over two aliases, another test, or both.
    """

    form: str
    source: Source
    x: str
    terms: tuple[Term, ...]
    columns: tuple[str, ...] = ("k",)
    alternative: tuple[Term, str, str] | None = None
    other: Subquery | None = None

    @property
    def sources(self) -> list[Source]:
        """The items that it reads."""
        return [self.source, *([] if self.other is None else self.other.sources)]

    def sql(self) -> str:
        """The condition."""
        terms = [self._test(), *([] if self.other is None else [self.other.sql()])]
        if self.alternative is not None:
            term, x, y = self.alternative
            terms.insert(0, term.of(x, y))
        return f"({' OR '.join(terms)})" if len(terms) > 1 else terms[0]

    def _test(self) -> str:
        e = self.source.alias
        where = " AND ".join(term.of(self.x, e) for term in self.terms)
        rest = f"FROM {self.source.sql()}{f' WHERE {where}' if where else ''}"
        if self.form.endswith("EXISTS"):
            return f"{self.form} (SELECT 1 {rest})"
        wanted = ", ".join(f"{self.x}.{column}" for column in self.columns)
        operand = f"({wanted})" if len(self.columns) > 1 else wanted
        return f"{operand} {self.form} (SELECT {', '.join(f'{e}.{column}' for column in self.columns)} {rest})"

    def holds(self, one: Joined, given: Changes) -> bool:
        """Whether it is true of a result."""
        if self.alternative is not None:
            term, of_x, of_y = self.alternative
            if hold([term], one[of_x], one[of_y]):
                return True
        return self._passes(one, given) or (self.other is not None and self.other.holds(one, given))

    def _passes(self, one: Joined, given: Changes) -> bool:
        x = one[self.x]
        rows = [row for row in self.source.rows(given) if hold(self.terms, x, row)]
        if self.form.endswith("EXISTS"):
            return bool(rows) == (self.form == "EXISTS")
        answers = [_equal([getattr(x, each) for each in self.columns], row, self.columns) for row in rows]
        if True in answers:
            return self.form == "IN"
        return self.form == "NOT IN" and None not in answers


def _equal(values: Sequence[int | None], row: Row, columns: Sequence[str]) -> bool | None:
    """Whether the values equal those of a row: False if one differs, else None if one is NULL."""
    pairs = [(value, getattr(row, column)) for value, column in zip(values, columns, strict=True)]
    if any(one is not None and other is not None and one != other for one, other in pairs):
        return False
    return None if any(None in pair for pair in pairs) else True


@dataclass(frozen=True)
class Query:
    """A chain of joins, the conditions of WHERE, and the selected columns."""

    first: Source
    joins: tuple[Join | TemporalJoin, ...]
    where: tuple[tuple[Term, str, str], ...]
    subqueries: tuple[Subquery, ...]
    shown: tuple[tuple[str, str], ...]

    @property
    def sources(self) -> list[Source]:
        """All items that it reads."""
        subqueries = (source for each in self.subqueries for source in each.sources)
        return [self.first, *(each.source for each in self.joins), *subqueries]

    @property
    def streams(self) -> dict[str, Stream]:
        """The streams among them, by name."""
        return {source.stream.name: source.stream for source in self.sources}

    def sql(self) -> str:
        """The streams and the query."""
        items = ", ".join(f"{alias}.{column} AS {alias}_{column}" for alias, column in self.shown)
        conditions = [term.of(x, y) for term, x, y in self.where] + [each.sql() for each in self.subqueries]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        streams = "".join(stream.sql() for stream in self.streams.values())
        joins = "".join(f" {join.sql()}" for join in self.joins)
        return f"{streams}SELECT {items} FROM {self.first.sql()}{joins}{where} EMIT CHANGELOG;"

    def answer(self, given: Changes) -> Counter[Result]:
        """Return the results over all changes."""
        found: list[Joined] = [{self.first.alias: row} for row in self.first.rows(given)]
        aliases = [self.first.alias]
        for join in self.joins:
            found = join.joined(found, given, aliases)
            aliases = join.visible(aliases)
        found = [one for one in found if all(hold([term], one[x], one[y]) for term, x, y in self.where)]
        found = [one for one in found if all(each.holds(one, given) for each in self.subqueries)]
        return Counter(tuple(getattr(one[alias], column) for alias, column in self.shown) for one in found)
