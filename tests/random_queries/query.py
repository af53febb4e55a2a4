"""A query as a small tree, which render.py writes in both dialects.

A condition is a template over the aliases ``l`` and ``r``. A length of time in it stands as ``<5>``: Watersmeet may
write it as an interval, DuckDB gets the plain number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Condition:
    """A condition over one alias, or over two of which ``r`` is the one that joins."""

    template: str
    l: str  # noqa: E741
    r: str
    intervals: bool = False

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases that the condition names."""
        named = {"l": self.l, "r": self.r}
        return frozenset(alias for place, alias in named.items() if f"{{{place}}}" in self.template)

    def watersmeet(self) -> str:
        return re.sub(r"<(\d+)>", r"INTERVAL '\1' SECONDS" if self.intervals else r"\1", self._named(self.r))

    def duckdb(self, r: str | None = None) -> str:
        """The condition, of another right alias if one is given."""
        return re.sub(r"<(\d+)>", r"\1", self._named(r or self.r))

    def _named(self, r: str) -> str:
        return self.template.replace("{l}", self.l).replace("{r}", r)


class Form(Enum):
    """What stands in FROM: a stream, or a subselect of one. DuckDB's tables also have ``seq``, the place of a row."""

    PLAIN = "{stream}"
    FILTERED = "(SELECT * FROM {stream} WHERE v IS NULL OR v < 4)"
    COMPUTED = "(SELECT id, k, v + 1 AS v, ts{seq} FROM {stream} WHERE k <> 'x')"
    NEVER_NULL = "(SELECT id, COALESCE(k, 'x') AS k, COALESCE(v, 1) AS v, ts{seq} FROM {stream})"


@dataclass(frozen=True)
class Source:
    stream: str
    alias: str
    form: Form = Form.PLAIN

    def watersmeet(self) -> str:
        return f"{self.form.value.format(stream=self.stream, seq='')} {self.alias}"

    def duckdb(self, alias: str | None = None) -> str:
        return f"{self.form.value.format(stream=self.stream, seq=', seq')} {alias or self.alias}"


class Kind(Enum):
    """Kinds of windowed join: Watersmeet's words and DuckDB's."""

    INNER = ("JOIN", "JOIN")
    LEFT = ("LEFT JOIN", "LEFT JOIN")
    RIGHT = ("RIGHT JOIN", "RIGHT JOIN")
    FULL = ("FULL JOIN", "FULL JOIN")
    SEMI = ("LEFT SEMI JOIN", "SEMI JOIN")
    ANTI = ("LEFT ANTI JOIN", "ANTI JOIN")
    RIGHT_SEMI = ("RIGHT SEMI JOIN", "SEMI JOIN")
    RIGHT_ANTI = ("RIGHT ANTI JOIN", "ANTI JOIN")

    @property
    def shows_left(self) -> bool:
        """Whether results have columns of the left side; DuckDB, where it has no such kind, gets the sides swapped."""
        return self not in (Kind.RIGHT_SEMI, Kind.RIGHT_ANTI)

    @property
    def shows_right(self) -> bool:
        """Whether results have columns of the right side."""
        return self not in (Kind.SEMI, Kind.ANTI)


@dataclass(frozen=True)
class Within:
    """WITHIN (before, after), in seconds, and a GRACE PERIOD."""

    before: int
    after: int
    short: bool  # WITHIN one length, where both are the same
    grace: int


@dataclass(frozen=True)
class WindowedJoin:
    """A join whose window stands in its conditions, in its WITHIN or in that of the last join."""

    kind: Kind
    source: Source
    conditions: tuple[Condition, ...]
    within: Within | None = None


class Pick(Enum):
    """Which right row an as-of join takes: how Watersmeet says it (both ways round), and the rows in question."""

    NEWEST_AT = ("{l}.ts >= {r}.ts", "{r}.ts <= {l}.ts", "{r}.ts <= {l}.ts")
    NEWEST_BEFORE = ("{l}.ts > {r}.ts", "{r}.ts < {l}.ts", "{r}.ts < {l}.ts")
    OLDEST_AT = ("{l}.ts <= {r}.ts", "{r}.ts >= {l}.ts", "{r}.ts >= {l}.ts")
    OLDEST_AFTER = ("{l}.ts < {r}.ts", "{r}.ts > {l}.ts", "{r}.ts > {l}.ts")
    NEAREST = ("NEAREST({l}.ts, {r}.ts)", "NEAREST({r}.ts, {l}.ts)", "{l}.ts IS NOT NULL")


@dataclass(frozen=True)
class AsofJoin:
    """ASOF JOIN, or with ``temporal`` FOR SYSTEM_TIME AS OF: each left row with one right row, by time.

    Keys say which right rows are in question; tests and the tolerance are of the one that was picked.
    """

    source: Source
    left: str
    pick: Pick
    outer: bool
    keys: tuple[Condition, ...]
    tests: tuple[Condition, ...]
    tolerance: Condition | None = None
    turned: bool = False
    temporal: bool = False


Join = WindowedJoin | AsofJoin


@dataclass(frozen=True)
class Subquery:
    """[NOT] EXISTS in WHERE, or with a column x [NOT] IN; perhaps under OR, with an alternative or another test."""

    source: Source
    negated: bool
    conditions: tuple[Condition, ...]
    outer: str
    column: str | None = None
    alternative: Condition | None = None
    other: Subquery | None = None

    @property
    def sources(self) -> list[Source]:
        """What it reads."""
        return [self.source, *([] if self.other is None else self.other.sources)]


@dataclass(frozen=True)
class OrderTerm:
    alias: str
    column: str
    descending: bool = False


class Emit(Enum):
    DEFAULT = ""
    FINAL = "\nEMIT FINAL"
    CHANGELOG = "\nEMIT CHANGELOG"


@dataclass(frozen=True)
class Query:
    """A query; if it is ``chained``, no two joins share an operator."""

    first: Source
    joins: tuple[Join, ...]
    where: tuple[Condition | Subquery, ...]
    order: tuple[OrderTerm, ...]
    emit: Emit
    chained: bool = False

    @property
    def sources(self) -> list[Source]:
        """All that it reads."""
        subqueries = (source for term in self.where if isinstance(term, Subquery) for source in term.sources)
        return [self.first, *(join.source for join in self.joins), *subqueries]

    @property
    def visible(self) -> tuple[str, ...]:
        """The aliases whose columns results have."""
        return visible_after(self.first, self.joins)


def visible_after(first: Source, joins: tuple[Join, ...]) -> tuple[str, ...]:
    """The aliases that can be named after some joins."""
    shown: tuple[str, ...] = (first.alias,)
    for join in joins:
        kind = Kind.INNER if isinstance(join, AsofJoin) else join.kind
        shown = (*(shown if kind.shows_left else ()), *([join.source.alias] if kind.shows_right else []))
    return shown


def met_in_time(first: Source, joins: tuple[Join, ...]) -> tuple[str, ...]:
    """The aliases whose times a WITHIN after some joins speaks of: not those joined as of a time."""
    windowed = tuple(join for join in joins if isinstance(join, WindowedJoin))
    return visible_after(first, windowed)
