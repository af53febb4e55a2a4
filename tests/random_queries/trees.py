"""Queries over the results of queries, as small trees, and their SQL in both dialects.

Every node is a SELECT with named columns; the two dialects differ in windows, which DuckDB gets as a join with all
windows there are, and in the names of semi joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.random_queries.rows import COLUMNS


@dataclass(frozen=True)
class Col:
    """A column; ``role`` is "time" for event times, "start" and "end" for bounds of windows."""

    name: str
    kind: str
    role: str = ""


@dataclass(frozen=True)
class Window:
    """TUMBLE, HOP or CUMULATE over event times; lengths are intervals or, of row counts, numbers."""

    kind: str
    step: int
    size: int
    offset: int
    counts: bool

    def watersmeet(self, relation: str, time: str) -> str:
        lengths = {"TUMBLE": [self.size]}.get(self.kind, [self.step, self.size]) + (
            [self.offset] if self.offset else []
        )
        written = [str(each) if self.counts else f"INTERVAL '{each}' SECONDS" for each in lengths]
        return f"TABLE({self.kind}({relation}, DESCRIPTOR({time}), {', '.join(written)}))"

    def duckdb(self, relation: str, time: str) -> str:
        """The rows joined with all windows, by what a window is: ``start <= t < end``."""
        if self.kind == "CUMULATE":
            bounds = (
                f"SELECT {self.offset} + n * {self.size} AS s, {self.offset} + n * {self.size} + m * {self.step} AS e "
                f"FROM generate_series(-60, 130) AS a(n), generate_series(1, {self.size // self.step}) AS b(m)"
            )
        else:
            slide = self.size if self.kind == "TUMBLE" else self.step
            bounds = (
                f"SELECT {self.offset} + n * {slide} AS s, {self.offset} + n * {slide} + {self.size} AS e "
                "FROM generate_series(-60, 130) AS a(n)"
            )
        return (
            f"(SELECT r.*, w.s AS window_start, w.e AS window_end, w.e - 1 AS window_time "
            f"FROM {relation} r JOIN ({bounds}) w ON r.{time} >= w.s AND r.{time} < w.e)"
        )


BOUNDS = (
    Col("window_start", "BIGINT", "start"),
    Col("window_end", "BIGINT", "end"),
    Col("window_time", "BIGINT", "time"),
)


@dataclass(frozen=True)
class Tree:
    """A query; nodes below it are its children."""

    @property
    def columns(self) -> tuple[Col, ...]:
        raise NotImplementedError

    @property
    def children(self) -> Sequence[Tree]:
        return ()

    def sql(self, *, duck: bool) -> str:
        raise NotImplementedError

    def source(self, *, duck: bool) -> str:
        """The query as it stands in FROM."""
        return f"({self.sql(duck=duck)})"

    def all(self) -> Iterator[Tree]:
        """This node and all below."""
        yield self
        for child in self.children:
            yield from child.all()


@dataclass(frozen=True)
class Stream(Tree):
    name: str

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(Col(name, kind, "time" if name == "ts" else "") for name, kind in COLUMNS.items())

    def sql(self, *, duck: bool) -> str:
        return f"SELECT id, k, v, ts FROM {self.name}"

    def source(self, *, duck: bool) -> str:
        return self.sql(duck=duck).join("()") if duck else self.name


@dataclass(frozen=True)
class Over(Tree):
    """A node over one child, which it may give windows."""

    child: Tree
    window: Window | None

    @property
    def children(self) -> Sequence[Tree]:
        return (self.child,)

    def given(self, *, duck: bool) -> str:
        relation = self.child.source(duck=duck)
        if self.window is None:
            return relation
        time = time_of(self.child)
        assert time is not None
        if duck:
            return self.window.duckdb(relation, time.name)
        return self.window.watersmeet(f"TABLE {relation}" if isinstance(self.child, Stream) else relation, time.name)


def below(child: Tree, window: Window | None) -> tuple[Col, ...]:
    """The columns that a node over a child can read; windows hide an event time below."""
    if window is None:
        return child.columns
    return (*(Col(each.name, each.kind) for each in child.columns), *BOUNDS)


def time_of(tree: Tree) -> Col | None:
    return next((each for each in tree.columns if each.role == "time"), None)


@dataclass(frozen=True)
class Select(Over):
    """Columns, each (name, expression), and conditions; perhaps DISTINCT."""

    items: tuple[tuple[Col, str], ...]
    where: tuple[str, ...] = ()
    distinct: bool = False

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(column for column, _ in self.items)

    def sql(self, *, duck: bool) -> str:
        items = ", ".join(f"{sql} AS {column.name}" for column, sql in self.items)
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        return f"SELECT {'DISTINCT ' if self.distinct else ''}{items} FROM {self.given(duck=duck)}{where}"


@dataclass(frozen=True)
class Grouped(Over):
    """GROUP BY; ``calls`` are (column, SQL), ``keys`` (column, the column below)."""

    keys: tuple[tuple[Col, str], ...]
    calls: tuple[tuple[Col, str], ...]
    having: str = ""

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(column for column, _ in (*self.keys, *self.calls))

    def sql(self, *, duck: bool) -> str:
        items = ", ".join(f"{sql} AS {column.name}" for column, sql in (*self.keys, *self.calls))
        by = f" GROUP BY {', '.join(sql for _, sql in self.keys)}" if self.keys else ""
        having = f" HAVING {self.having}" if self.having else ""
        return f"SELECT {items} FROM {self.given(duck=duck)}{by}{having}"


@dataclass(frozen=True)
class TopN(Over):
    """The first rows of each partition, by a subquery or QUALIFY; ``order`` are (column, descending)."""

    function: str
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    limit: int
    shown: bool
    qualify: bool

    @property
    def columns(self) -> tuple[Col, ...]:
        rank = (Col("rn", "BIGINT"),) if self.shown else ()
        return (*(each for each in below(self.child, self.window) if each.name != "rn"), *rank)

    def sql(self, *, duck: bool) -> str:
        terms = [f"{name} {'DESC NULLS LAST' if down else 'ASC NULLS FIRST'}" for name, down in self.order]
        by = f"PARTITION BY {', '.join(self.partition)} " if self.partition else ""
        number = f"{self.function}() OVER ({by}ORDER BY {', '.join(terms)}) AS rn"
        kept = [each.name for each in below(self.child, self.window) if each.name != "rn"]
        names = ", ".join(kept)
        if self.qualify and self.shown:
            return f"SELECT {names}, {number} FROM {self.given(duck=duck)} QUALIFY rn <= {self.limit}"
        shown = ", rn" if self.shown else ""
        inner = f"SELECT {names}, {number} FROM {self.given(duck=duck)}"
        return f"SELECT {names}{shown} FROM ({inner}) WHERE rn <= {self.limit}"


@dataclass(frozen=True)
class Several(Over):
    """Functions over several partitions and orders; ``calls`` are (column, SQL)."""

    calls: tuple[tuple[Col, str], ...]
    qualify: str

    @property
    def columns(self) -> tuple[Col, ...]:
        kept = (Col(f"f{each.name}"[:40], each.kind) for each in below(self.child, self.window))
        return (*kept, *(column for column, _ in self.calls))

    def sql(self, *, duck: bool) -> str:
        named = zip(below(self.child, self.window), self.columns, strict=False)
        items = [f"{each.name} AS {column.name}" for each, column in named]
        items += [f"{sql} AS {column.name}" for column, sql in self.calls]
        qualify = f" QUALIFY {self.qualify}" if self.qualify else ""
        return f"SELECT {', '.join(items)} FROM {self.given(duck=duck)}{qualify}"


@dataclass(frozen=True)
class Limited(Over):
    """The first rows of all, by ORDER BY and LIMIT; ``order`` has all columns, so that nothing is left open."""

    order: tuple[tuple[str, bool], ...]
    limit: int
    offset: int

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(Col(each.name, each.kind) for each in below(self.child, self.window))

    def sql(self, *, duck: bool) -> str:
        terms = [f"{name} {'DESC NULLS LAST' if down else 'ASC NULLS FIRST'}" for name, down in self.order]
        names = ", ".join(each.name for each in self.columns)
        offset = f" OFFSET {self.offset}" if self.offset else ""
        return f"SELECT {names} FROM {self.given(duck=duck)} ORDER BY {', '.join(terms)} LIMIT {self.limit}{offset}"


@dataclass(frozen=True)
class Framed(Over):
    """Window functions in one order that tells all rows apart, or with frames that take equal ones together."""

    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    calls: tuple[tuple[Col, str], ...]

    @property
    def columns(self) -> tuple[Col, ...]:
        return (*below(self.child, self.window), *(column for column, _ in self.calls))

    def sql(self, *, duck: bool) -> str:
        terms = [f"{name} {'DESC NULLS LAST' if down else 'ASC NULLS FIRST'}" for name, down in self.order]
        by = f"PARTITION BY {', '.join(self.partition)} " if self.partition else ""
        over = f"OVER ({by}ORDER BY {', '.join(terms)}"
        calls = [f"{sql.format(over=over)} AS {column.name}" for column, sql in self.calls]
        names = [each.name for each in below(self.child, self.window)]
        return f"SELECT {', '.join([*names, *calls])} FROM {self.given(duck=duck)}"


@dataclass(frozen=True)
class Joined(Tree):
    """A join on equalities (left column, right column); ``within`` bounds the event times of both sides."""

    left: Tree
    right: Tree
    kind: str
    on: tuple[tuple[str, str], ...]
    within: int | None

    @property
    def children(self) -> Sequence[Tree]:
        return self.left, self.right

    @property
    def items(self) -> list[tuple[Col, str]]:
        sides = [("l", self.left)] + ([] if self.kind in ("SEMI", "ANTI") else [("r", self.right)])
        found, role_of = [], {"LEFT": ("l",), "INNER": ("l", "r")}.get(self.kind, ("l",))
        for side, tree in sides:
            for each in tree.columns:
                name = f"{side}{each.name}"[:40]
                found.append((Col(name, each.kind, each.role if side in role_of else ""), f"{side}.{each.name}"))
        return found

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(column for column, _ in self.items)

    def sql(self, *, duck: bool) -> str:
        items = ", ".join(f"{sql} AS {column.name}" for column, sql in self.items)
        word = {"INNER": "JOIN", "LEFT": "LEFT JOIN"}.get(self.kind, f"{'' if duck else 'LEFT '}{self.kind} JOIN")
        terms = [f"l.{one} = r.{other}" for one, other in self.on]
        if self.within is not None:
            one, other = time_of(self.left), time_of(self.right)
            assert one is not None
            assert other is not None
            n = self.within
            terms.append(f"r.{other.name} BETWEEN l.{one.name} - {n} AND l.{one.name} + {n}")
        left, right = self.left.source(duck=duck), self.right.source(duck=duck)
        return f"SELECT {items} FROM {left} l {word} {right} r ON {' AND '.join(terms)}"


@dataclass(frozen=True)
class Scalar(Tree):
    """A subquery as a value for each row, tied to it by an equality; in the SELECT list, or compared in WHERE."""

    outer: Tree
    inner: Tree
    on: tuple[str, str]
    call: str
    compared: str

    @property
    def children(self) -> Sequence[Tree]:
        return self.outer, self.inner

    @property
    def columns(self) -> tuple[Col, ...]:
        added = () if self.compared else (Col("s", "BIGINT"),)
        return (*(Col(f"o{each.name}"[:40], each.kind) for each in self.outer.columns), *added)

    def sql(self, *, duck: bool) -> str:
        one, other = self.on
        value = f"(SELECT {self.call} FROM {self.inner.source(duck=duck)} i WHERE i.{other} = o.{one})"
        named = zip(self.outer.columns, self.columns, strict=False)
        items = [f"o.{each.name} AS {column.name}" for each, column in named]
        items += [] if self.compared else [f"CAST({value} AS BIGINT) AS s"]
        where = f" WHERE o.{self.compared} > {value}" if self.compared else ""
        return f"SELECT {', '.join(items)} FROM {self.outer.source(duck=duck)} o{where}"


@dataclass(frozen=True)
class Chosen(Tree):
    """Groups that HAVING compares with the value of a subquery: of all its rows, or of those with the group's key."""

    outer: Tree
    inner: Tree
    on: tuple[Col, str]
    tied: bool

    @property
    def children(self) -> Sequence[Tree]:
        return self.outer, self.inner

    @property
    def columns(self) -> tuple[Col, ...]:
        return Col("g", self.on[0].kind), Col("n", "BIGINT")

    def sql(self, *, duck: bool) -> str:
        key, other = self.on
        where = f" WHERE i.{other} = o.{key.name}" if self.tied else ""
        value = f"(SELECT count(i.{other}) FROM {self.inner.source(duck=duck)} i{where})"
        groups = f"FROM {self.outer.source(duck=duck)} o GROUP BY o.{key.name}"
        return f"SELECT o.{key.name} AS g, count(*) AS n {groups} HAVING count(*) >= {value}"


@dataclass(frozen=True)
class Twice(Joined):
    """A common table expression joined with itself."""

    @property
    def children(self) -> Sequence[Tree]:
        return (self.left,)

    def sql(self, *, duck: bool) -> str:
        items = ", ".join(f"{sql} AS {column.name}" for column, sql in self.items)
        word = {"INNER": "JOIN", "LEFT": "LEFT JOIN"}.get(self.kind, f"{'' if duck else 'LEFT '}{self.kind} JOIN")
        terms = " AND ".join(f"l.{one} = r.{other}" for one, other in self.on)
        return f"WITH w AS ({self.left.sql(duck=duck)}) SELECT {items} FROM w l {word} w r ON {terms}"


@dataclass(frozen=True)
class Combined(Tree):
    """UNION ALL, UNION, EXCEPT or INTERSECT of as many columns of the same kinds."""

    word: str
    left: Select
    right: Select

    @property
    def children(self) -> Sequence[Tree]:
        return self.left, self.right

    @property
    def columns(self) -> tuple[Col, ...]:
        pairs = zip(self.left.columns, self.right.columns, strict=True)
        keeps = self.word == "UNION ALL"
        return tuple(Col(l.name, l.kind, l.role if keeps and l.role == r.role else "") for l, r in pairs)  # noqa: E741

    def sql(self, *, duck: bool) -> str:
        return f"{self.left.sql(duck=duck)} {self.word} {self.right.sql(duck=duck)}"
