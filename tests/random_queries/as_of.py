"""Joins as of a time with a query on the right side, and what they are in DuckDB: a rank of all rows up to the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.random_queries.conditions import rarely
from tests.random_queries.growing import trees, windows
from tests.random_queries.rows import Streams
from tests.random_queries.trees import Col, Combined, Grouped, Joined, Select, Stream, Tree, below, time_of

_SIGNS = {">=": "<=", ">": "<"}


@dataclass(frozen=True)
class Right:
    """The right side: its rows, what they are versions of (None: of the join's key), and its condition.

    ``text`` is the query as Watersmeet gets it, with the condition. Rows of ``stream`` have a place in it.
    """

    rows: Tree
    text: str
    time: str
    key: tuple[str, ...] | None
    condition: str = ""

    @property
    def stream(self) -> bool:
        return isinstance(self.rows, Stream)

    @property
    def columns(self) -> tuple[Col, ...]:
        return self.rows.columns


@dataclass(frozen=True)
class AsOf(Tree):
    """ASOF JOIN with a comparison (``sign``), or FOR SYSTEM_TIME AS OF."""

    left: Tree
    right: Right
    kind: str
    on: tuple[tuple[str, str], ...]
    sign: str
    temporal: bool

    @property
    def children(self) -> Sequence[Tree]:
        return self.left, self.right.rows

    @property
    def items(self) -> list[tuple[Col, str]]:
        sides = (("l", self.left.columns), ("r", self.right.columns))
        return [(Col(f"{s}{each.name}"[:40], each.kind), f"{s}.{each.name}") for s, all_ in sides for each in all_]

    @property
    def columns(self) -> tuple[Col, ...]:
        return tuple(column for column, _ in self.items)

    def sql(self, *, duck: bool) -> str:
        return self._duckdb() if duck else self._watersmeet()

    @property
    def _time(self) -> str:
        time = time_of(self.left)
        assert time is not None
        return time.name

    def _watersmeet(self) -> str:
        items = ", ".join(f"{sql} AS {column.name}" for column, sql in self.items)
        on = " AND ".join(f"l.{one} = r.{other}" for one, other in self.on) or "TRUE"
        kind = "LEFT " if self.kind == "LEFT" else ""
        if self.temporal:
            join = f"{kind}JOIN ({self.right.text}) FOR SYSTEM_TIME AS OF l.{self._time} r ON {on}"
        else:
            match = f"MATCH_CONDITION (l.{self._time} {self.sign} r.{self.right.time})"
            join = f"{kind}ASOF JOIN ({self.right.text}) r {match} ON {on}"
        return f"SELECT {items} FROM {self.left.source(duck=False)} l {join}"

    def _duckdb(self) -> str:
        items = ", ".join(f"{sql} AS {column.name}" for column, sql in self.items)
        right = self.right
        # a place of its own tells equal rows of the left side apart
        left = f"SELECT *, row_number() OVER () AS left_row FROM {self.left.source(duck=True)}"
        names = sorted(each.name for each in right.columns)
        rows = f"SELECT *, 0 AS seq FROM {right.rows.source(duck=True)}"
        if isinstance(right.rows, Stream):
            names, rows = ["seq"], f"SELECT * FROM {right.rows.name}"
        ties = ", ".join(f"r.{name} DESC NULLS LAST" for name in names)
        pairs = [f"l.{one} = r.{other}" for one, other in self.on]
        key = right.key if right.key is not None else ()
        by = ", ".join(["l.left_row", *(f"r.{name}" for name in key)])
        near = [f"r.{right.time} {_SIGNS[self.sign]} l.{self._time}", *(pairs if right.key is None else ())]
        ranked = (
            f"SELECT l.left_row, r.*, row_number() OVER (PARTITION BY {by} ORDER BY r.{right.time} DESC, {ties})"
            f" AS place FROM l JOIN ({rows}) r ON {' AND '.join(near)}"
        )
        picked = f"SELECT * FROM ({ranked}) WHERE place = 1{f' AND {right.condition}' if right.condition else ''}"
        on = " AND ".join(["l.left_row = r.left_row", *pairs])
        return f"WITH l AS ({left}) SELECT {items} FROM l {self.kind} JOIN ({picked}) r ON {on}"


@st.composite
def as_of_joins(draw: st.DrawFn, given: Streams) -> AsOf:
    """A join as of a time over random queries that have a time."""
    left: Tree = Stream(draw(st.sampled_from(given.appended or sorted(given.streams))))
    if draw(rarely(0.2)):
        left = draw(trees(given, 1).filter(lambda tree: time_of(tree) is not None))
    temporal = draw(st.booleans())
    right = draw(_views(given) | _windows(given) if temporal else _rows(given))
    texts = [(l.name, r.name) for l in left.columns for r in right.columns if l.kind == r.kind and l.kind != "DOUBLE"]  # noqa: E741
    on = draw(st.lists(st.sampled_from(texts), min_size=0, max_size=2, unique=True)) if texts else []
    sign = draw(st.sampled_from([">=", ">"])) if not temporal else ">="
    return AsOf(left, right, draw(st.sampled_from(["LEFT", "INNER"])), tuple(on), sign, temporal)


@st.composite
def _queries(draw: st.DrawFn, given: Streams) -> Tree:
    """Queries with a time, whose results are final: windows, joins, unions; sometimes any other."""
    if draw(rarely(0.1)) or not given.appended:
        return draw(trees(given, 2).filter(lambda tree: time_of(tree) is not None and not isinstance(tree, Stream)))
    one, other = (Stream(draw(st.sampled_from(given.appended))) for _ in range(2))
    match draw(st.sampled_from(["grouped", "joined", "union", "filter"])):
        case "grouped":
            return draw(_grouped(one, given))
        case "joined":
            kind, key = draw(st.sampled_from(["INNER", "LEFT", "SEMI", "ANTI"])), draw(st.sampled_from(["id", "k"]))
            return Joined(one, other, kind, ((key, key),), draw(st.sampled_from([0, 3, 10])))
        case "union":
            return Combined("UNION ALL", _selected(one), _selected(other))
        case _:
            grouped = draw(_grouped(one, given))
            return Select(grouped, None, tuple((each, each.name) for each in grouped.columns), ("a0 > 1",))


def _selected(stream: Stream) -> Select:
    return Select(stream, None, tuple((each, each.name) for each in stream.columns), ("v > 0",))


@st.composite
def _grouped(draw: st.DrawFn, stream: Stream, given: Streams) -> Grouped:
    window = draw(windows(given))
    keys = [draw(st.sampled_from(["window_end", "window_time"])), *draw(st.permutations(["id", "k", "window_start"]))]
    known = {each.name: each for each in below(stream, window)}
    named = tuple(
        (Col(f"g{place}", known[name].kind, known[name].role), name)
        for place, name in enumerate(keys[: draw(st.integers(1, 4))])
    )
    calls = ((Col("a0", "BIGINT"), "count(*)"), (Col("a1", "INT"), "max(v)"))
    return Grouped(stream, window, named, calls, draw(st.sampled_from(["", "", "count(*) > 1"])))


@st.composite
def _rows(draw: st.DrawFn, given: Streams) -> Right:
    rows = draw(_queries(given))
    times = [each.name for each in rows.columns if each.role in ("time", "end", "start")]
    return Right(rows, rows.sql(duck=False), draw(st.sampled_from(times)), None)


@st.composite
def _views(draw: st.DrawFn, given: Streams) -> Right:
    """The newest row of each key among all rows of a query."""
    stream = st.sampled_from(given.appended).map(Stream) if given.appended else _queries(given)
    rows = draw(stream | _queries(given))
    time = next((each for each in rows.columns if each.role == "end"), time_of(rows))
    assert time is not None
    names = [each.name for each in rows.columns if each.role == "" and each.kind != "DOUBLE"] or [rows.columns[0].name]
    key = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
    shown = ", ".join(each.name for each in rows.columns)
    tested = draw(st.sampled_from(names))
    condition = draw(st.sampled_from(["", f"{tested} IS NOT NULL", f"{tested} IS NULL"]))
    by = f"PARTITION BY {', '.join(key)} " if key else ""
    order = f"ROW_NUMBER() OVER ({by}ORDER BY {time.name} DESC)"
    inner = f"SELECT {shown}, {order} AS place FROM {rows.source(duck=False)}"
    if not condition and draw(rarely(0.3)):
        text = f"SELECT {shown} FROM {rows.source(duck=False)} QUALIFY {order} = 1"
    elif draw(rarely(0.3)):  # two queries, one over the other
        text = f"SELECT * FROM (SELECT {shown} FROM ({inner}) WHERE place = 1)"
        text += f" WHERE {condition}" if condition else ""
    else:
        text = f"SELECT {shown} FROM ({inner}) WHERE place = 1{f' AND {condition}' if condition else ''}"
    return Right(rows, text, time.name, key, condition)


@st.composite
def _windows(draw: st.DrawFn, given: Streams) -> Right:
    """Windows as versions of what else they are grouped by."""
    rows = draw(_grouped(Stream(draw(st.sampled_from(sorted(given.streams)))), given))
    key = tuple(column.name for column, _ in rows.keys if not column.role)
    return Right(rows, rows.sql(duck=False), rows.columns[0].name, key)
