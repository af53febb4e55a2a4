"""Random trees of queries (trees.py), simplest choices first so that failures shrink."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.random_queries.conditions import rarely
from tests.random_queries.rows import Streams, Unit
from tests.random_queries.trees import (
    Chosen,
    Col,
    Combined,
    Framed,
    Grouped,
    Joined,
    Limited,
    Scalar,
    Select,
    Several,
    Stream,
    TopN,
    Tree,
    Twice,
    Window,
    below,
    time_of,
)

#: What nodes there are; Stream is the simplest.
NODES = (
    "select",
    "grouped",
    "grouped",
    "grouped",
    "top",
    "framed",
    "limited",
    "several",
    "distinct",
    "join",
    "join",
    "twice",
    "combined",
    "scalar",
)


@st.composite
def trees(draw: st.DrawFn, given: Streams, depth: int) -> Tree:
    """A tree of a depth; its leaves are streams."""
    if depth == 0 or draw(rarely(0.15)):
        return Stream(draw(st.sampled_from(sorted(given.streams))))
    node = draw(st.sampled_from(NODES))
    child = draw(trees(given, depth - 1))
    if node == "twice":
        on = draw(_pairs(child, child))
        kind = draw(st.sampled_from(["INNER", "LEFT", "SEMI", "ANTI"]))
        return Twice(child, child, kind, on, None) if on else child
    if node in ("join", "combined", "scalar"):
        other = draw(trees(given, draw(st.integers(0, depth - 1))))
        if node == "scalar":
            return draw(_scalar(child, other))
        return draw(_joined(child, other) if node == "join" else _combined(child, other))
    has_time = time_of(child) is not None and not any(each.name.startswith("window_") for each in child.columns)
    window = draw(windows(given)) if has_time and draw(st.booleans()) else None
    if node == "grouped":
        return draw(groups(child, window))
    if node == "framed":
        return draw(_framed(child, window))
    if node == "top":
        return draw(tops(child, window))
    if node == "several":
        return draw(_several(child, window))
    if node == "limited":
        order = [(each.name, draw(st.booleans())) for each in draw(st.permutations(below(child, window)))]
        return Limited(
            child, window, tuple(order), draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([0, 0, 1, 2]))
        )
    return draw(distincts(child, window) if node == "distinct" else _select(child, window, distinct=False))


@st.composite
def windows(draw: st.DrawFn, given: Streams) -> Window:
    """Windows over the event times of the streams."""
    kind = draw(st.sampled_from(["TUMBLE", "HOP", "CUMULATE"]))
    step = draw(st.sampled_from([5, 2, 10, 3]))
    size = step * draw(st.sampled_from([2, 1, 3])) + (draw(st.sampled_from([0, 1])) if kind != "CUMULATE" else 0)
    return Window(kind, step, size, draw(st.sampled_from([0, 0, 1, -3])), given.unit is Unit.ROWS)


def _some(columns: tuple[Col, ...], most: int) -> st.SearchStrategy[list[Col]]:
    return st.lists(st.sampled_from(columns), min_size=1, max_size=most, unique=True)


@st.composite
def _condition(draw: st.DrawFn, columns: tuple[Col, ...]) -> str:
    column = draw(st.sampled_from(columns))
    name = column.name
    if column.kind == "STRING":
        return draw(st.sampled_from([f"{name} <> 'x'", f"{name} IS NOT NULL", f"({name} IS NULL OR {name} = 'x')"]))
    tests = [f"{name} > 1", f"{name} IS NOT NULL", f"({name} IS NULL OR {name} < 4)", f"NOT ({name} < 2)"]
    return draw(st.sampled_from(tests))


@st.composite
def _select(draw: st.DrawFn, child: Tree, window: Window | None, *, distinct: bool) -> Select:
    columns = below(child, window)
    items = []
    for number, each in enumerate(draw(_some(columns, 4))):
        ways = [each.name, each.name]
        if each.kind in ("INT", "BIGINT"):
            ways += [f"{each.name} + 1", f"COALESCE({each.name}, 0)"]
        way = draw(st.sampled_from(ways))
        items.append((Col(f"c{number}", each.kind, each.role if way == each.name else ""), way))
    where = (draw(_condition(columns)),) if draw(rarely(0.4)) else ()
    return Select(child, window, tuple(items), where, distinct)


def distincts(child: Tree, window: Window | None) -> st.SearchStrategy[Select]:
    """SELECT DISTINCT."""
    return _select(child, window, distinct=True)


@st.composite
def groups(draw: st.DrawFn, child: Tree, window: Window | None) -> Grouped:
    """GROUP BY some columns, mostly with the bounds of windows if there are any; perhaps HAVING."""
    columns = below(child, window)
    keys = [each for each in draw(_some(columns, 2)) if each.kind != "DOUBLE"] or [columns[0]]
    if draw(rarely(0.12)):
        keys = []
    elif window is not None and draw(rarely(0.85)):
        keys = [
            *(each for each in columns if each.name.startswith("window_")),
            *(each for each in keys if not each.name.startswith("window_")),
        ]
    calls = []
    for number, each in enumerate(draw(_some(columns, 3))):
        ways = [("count(*)", "BIGINT"), (f"count({each.name})", "BIGINT"), (f"min({each.name})", each.kind)]
        ways += [(f"max({each.name})", each.kind), (f"count(DISTINCT {each.name})", "BIGINT")]
        if each.kind in ("INT", "BIGINT"):
            ways += [(f"sum({each.name})", "BIGINT"), (f"avg({each.name})", "DOUBLE")]
            ways += [(f"sum({draw(_remainder(each, columns))})", "BIGINT")]
        sql, kind = draw(st.sampled_from(ways))
        calls.append((Col(f"a{number}", kind), sql))
    having = draw(st.sampled_from(["", "", "", "count(*) > 1", "count(*) < 3"]))
    renamed = [(Col(f"g{number}", each.kind, each.role), each.name) for number, each in enumerate(keys)]
    if keys and keys[-1].kind == "INT" and not keys[-1].role and draw(rarely(0.3)):
        renamed[-1] = (renamed[-1][0], draw(_remainder(keys[-1], columns)))
    return Grouped(child, window, tuple(renamed), tuple(calls), having)


@st.composite
def _remainder(draw: st.DrawFn, column: Col, columns: tuple[Col, ...]) -> str:
    """What operators do not compute of two streams: Spark does, over the results of their join."""
    others = [each for each in columns if each.kind == column.kind and each.role == column.role]
    return f"({column.name} + {draw(st.sampled_from(others)).name}) % 3"


@st.composite
def tops(draw: st.DrawFn, child: Tree, window: Window | None) -> TopN:
    """The first rows, mostly of partitions."""
    columns = tuple(each for each in below(child, window) if each.name != "rn") or below(child, window)
    partition = draw(_some(columns, 2)) if draw(rarely(0.8)) else []
    if window is not None and draw(rarely(0.85)):
        partition += [each for each in columns if each.name.startswith("window_") and each not in partition]
    function = draw(st.sampled_from(["ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"]))
    order = [(each.name, draw(st.booleans())) for each in draw(_some(columns, 2))]
    if function == "ROW_NUMBER":
        order += [(each.name, False) for each in columns if each.name not in dict(order)]
    names = tuple(each.name for each in partition)
    limit = draw(st.sampled_from([1, 2, 3]))
    return TopN(child, window, function, names, tuple(order), limit, draw(st.booleans()), draw(st.booleans()))


@st.composite
def _framed(draw: st.DrawFn, child: Tree, window: Window | None) -> Framed:
    """Often in the order of time, so that results may be final."""
    columns = below(child, window)
    taken = {each.name for each in columns}
    if any(name.startswith("o") for name in taken):  # columns of another one below
        columns = tuple(each for each in columns if not each.name.startswith("o")) or columns
    time = next((each for each in columns if each.role == "time"), None)
    order = [(time.name, False)] if time is not None and draw(rarely(0.8)) else []
    order += [(each.name, draw(st.booleans())) for each in draw(_some(columns, 1)) if each.name not in dict(order)]
    order += [(each.name, False) for each in below(child, window) if each.name not in dict(order)]
    partition = tuple(each.name for each in draw(_some(columns, 2))) if draw(rarely(0.7)) else ()
    calls = []
    for number, each in enumerate(draw(_some(columns, 3))):
        frame = draw(
            st.sampled_from(["", " ROWS UNBOUNDED PRECEDING", " ROWS 2 PRECEDING", " RANGE UNBOUNDED PRECEDING"])
        )
        ways = [
            ("ROW_NUMBER() {over})", "BIGINT"),
            ("RANK() {over})", "BIGINT"),
            (f"LAG({each.name}) {{over}})", each.kind),
        ]
        ways += [(f"COUNT({each.name}) {{over}}{frame})", "BIGINT"), (f"MIN({each.name}) {{over}}{frame})", each.kind)]
        ways += [(f"FIRST_VALUE({each.name}) {{over}}{frame})", each.kind)]
        if each.kind in ("INT", "BIGINT"):
            ways += [(f"CAST(SUM({each.name}) {{over}}{frame}) AS BIGINT)", "BIGINT")]
        sql, kind = draw(st.sampled_from(ways))
        name = next(f"o{n}" for n in range(number, 99) if f"o{n}" not in taken)
        taken.add(name)
        calls.append((Col(name, kind), sql))
    return Framed(child, window, partition, tuple(order), tuple(calls))


@st.composite
def _several(draw: st.DrawFn, child: Tree, window: Window | None) -> Several:
    columns = below(child, window)
    calls = []
    for number in range(draw(st.sampled_from([2, 1, 3]))):
        by = ", ".join(each.name for each in draw(st.lists(st.sampled_from(columns), max_size=2, unique=True)))
        partition = f"PARTITION BY {by} " if by else ""
        first = draw(st.sampled_from(columns))
        down = draw(st.sampled_from(["ASC NULLS FIRST", "DESC NULLS LAST"]))
        ways = [f"count(*) OVER ({partition}ORDER BY {first.name} {down})", f"count({first.name}) OVER ({partition})"]
        rest = [f"{each.name} NULLS FIRST" for each in columns if each is not first]
        order = ", ".join([f"{first.name} {down}", *rest])
        ways += [f"ROW_NUMBER() OVER ({partition}ORDER BY {order})", f"RANK() OVER ({partition}ORDER BY {order})"]
        calls.append((Col(f"w{number}", "BIGINT"), draw(st.sampled_from(ways))))
    test = draw(st.sampled_from(["", "", "w0 <= 2", "w0 = 1"]))
    return Several(child, window, tuple(calls), test)


@st.composite
def _pairs(draw: st.DrawFn, left: Tree, right: Tree) -> tuple[tuple[str, str], ...]:
    """Equalities of columns of one kind, preferably of the bounds of windows."""
    bounds = [
        (one.name, other.name)
        for role in ("start", "end")
        for one in left.columns
        for other in right.columns
        if one.role == other.role == role
    ]
    if len(bounds) == 2 and draw(rarely(0.7)):
        return tuple(bounds)
    texts = [(l.name, r.name) for l in left.columns for r in right.columns if l.kind == r.kind and l.kind != "DOUBLE"]  # noqa: E741
    if not texts:
        return ()
    return tuple(draw(st.lists(st.sampled_from(texts), min_size=1, max_size=2, unique=True)))


@st.composite
def _joined(draw: st.DrawFn, left: Tree, right: Tree) -> Tree:
    on = draw(_pairs(left, right))
    if not on:
        return left
    timed = time_of(left) is not None and time_of(right) is not None
    within = draw(st.sampled_from([0, 3, 10])) if timed and draw(st.booleans()) else None
    return Joined(left, right, draw(st.sampled_from(["INNER", "LEFT", "SEMI", "ANTI"])), on, within)


@st.composite
def _scalar(draw: st.DrawFn, outer: Tree, inner: Tree) -> Tree:
    pairs = [(l, r) for l in outer.columns for r in inner.columns if l.kind == r.kind and l.kind != "DOUBLE"]  # noqa: E741
    if not pairs:
        return outer
    one, other = draw(st.sampled_from(pairs))
    if draw(rarely(0.4)):
        return Chosen(outer, inner, (one, other.name), draw(st.booleans()))
    numbers = [each.name for each in inner.columns if each.kind in ("INT", "BIGINT")]
    is_test: bool = draw(rarely(0.4))
    calls = ["count(*)", *(f"{way}(i.{name})" for name in numbers for way in ("max", "count", "1 + min"))]
    compared = [each.name for each in outer.columns if each.kind in ("INT", "BIGINT")]
    test = draw(st.sampled_from(compared)) if compared and is_test else ""
    return Scalar(outer, inner, (one.name, other.name), draw(st.sampled_from(calls)), test)


@st.composite
def _combined(draw: st.DrawFn, left: Tree, right: Tree) -> Tree:
    pairs = [(l, r) for l in left.columns for r in right.columns if l.kind == r.kind]  # noqa: E741
    if not pairs:
        return left
    taken = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3, unique=True))
    sides = [
        Select(
            tree,
            None,
            tuple((Col(f"u{n}", pair[at].kind, pair[at].role), pair[at].name) for n, pair in enumerate(taken)),
        )
        for at, tree in enumerate((left, right))
    ]
    word = draw(st.sampled_from(["UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"]))
    return Combined(word, *sides)
