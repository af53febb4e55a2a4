"""Aggregates, DISTINCT, top-n and lookups over random joins, simplest choices first so that failures shrink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.random_queries.conditions import rarely
from tests.random_queries.growing import distincts, groups, tops, windows
from tests.random_queries.lookups import Table, lookups, tables
from tests.random_queries.queries import COUNTS, queries
from tests.random_queries.query import AsofJoin, Emit, Kind, Query, Subquery
from tests.random_queries.render import duckdb_sql, watersmeet_sql
from tests.random_queries.rows import COLUMNS, Streams
from tests.random_queries.trees import Col, Joined, Over, Stream, Tree, time_of

#: What stands over joins.
_NODES = ("grouped", "grouped", "grouped", "top", "distinct")
_CHANGELOGS = ("\nEMIT CHANGELOG", "\nEMIT CHANGELOG", "")
_ALL_MODES = ("\nEMIT CHANGELOG", "\nEMIT FINAL", "\nEMIT FINAL", "")


@dataclass(frozen=True)
class Chain(Tree):
    """A chain of joins as a subquery."""

    query: Query

    @property
    def columns(self) -> tuple[Col, ...]:
        timed = _never_padded(self.query)
        return tuple(
            Col(f"{alias}_{name}", kind, "time" if name == "ts" and alias in timed else "")
            for alias in self.query.visible
            for name, kind in COLUMNS.items()
        )

    def sql(self, *, duck: bool) -> str:
        return duckdb_sql(self.query) if duck else watersmeet_sql(self.query)


def _never_padded(query: Query) -> set[str]:
    """The aliases whose times are event times of all results; none after EXISTS or IN, whose results may come late."""
    timed = {query.first.alias}
    if any(isinstance(term, Subquery) for term in query.where):
        return set()
    for join in query.joins:
        if isinstance(join, AsofJoin):
            continue
        right = {join.source.alias}
        match join.kind:
            case Kind.INNER:
                timed |= right
            case Kind.RIGHT | Kind.RIGHT_SEMI | Kind.RIGHT_ANTI:
                timed = right
            case Kind.FULL:
                timed = set()
    return timed


@st.composite
def over_joins(draw: st.DrawFn, given: Streams, joins: Sequence[int] = COUNTS) -> tuple[Tree, tuple[Table, ...], str]:
    """A query over joins, the tables that it looks rows up in, and what it emits."""
    looks_up = bool(given.appended) and draw(rarely(0.3))
    tree, used = draw(_looked_up(given) if looks_up else _chained(given, joins))
    if not used or draw(rarely(0.7)):
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            tree = draw(_over(given, tree))
    emit = draw(st.sampled_from(_ALL_MODES if _has_windows(tree) or not isinstance(tree, Over) else _CHANGELOGS))
    return tree, used, emit


@st.composite
def _looked_up(draw: st.DrawFn, given: Streams) -> tuple[Tree, tuple[Table, ...]]:
    """A lookup of a stream's rows, perhaps below a join.  It says when it happens, so the table may change."""
    table = draw(tables(versions=(3, 2)))
    tree: Tree = draw(lookups(Stream(draw(st.sampled_from(given.appended))), table))
    if draw(st.booleans()):
        other, key = Stream(draw(st.sampled_from(sorted(given.streams)))), draw(st.sampled_from(["id", "k"]))
        kind = draw(st.sampled_from(["INNER", "LEFT", "SEMI", "ANTI"]))
        tree = Joined(tree, other, kind, ((f"l{key}", key),), draw(st.sampled_from([0, 3, 10])))
    return tree, (table,)


@st.composite
def _chained(draw: st.DrawFn, given: Streams, joins: Sequence[int]) -> tuple[Tree, tuple[Table, ...]]:
    """A chain of joins, perhaps below a lookup."""
    chain = draw(queries(given, joins))
    tree = Chain(Query(chain.first, chain.joins, chain.where, (), Emit.DEFAULT))
    if len(given.appended) < len(given.streams) or not draw(rarely(0.25)):
        return tree, ()
    table = draw(tables(versions=(1,)))
    return draw(lookups(tree, table)), (table,)


def _has_windows(tree: Tree) -> bool:
    """Whether a query has TUMBLE, HOP or CUMULATE."""
    return any(isinstance(each, Over) and each.window is not None for each in tree.all())


@st.composite
def _over(draw: st.DrawFn, given: Streams, child: Tree) -> Tree:
    node = draw(st.sampled_from(_NODES))
    has_time = time_of(child) is not None and not (_has_windows(child) and draw(rarely(0.7)))
    window = draw(windows(given)) if has_time and draw(rarely(0.6)) else None
    strategy = {"grouped": groups, "top": tops, "distinct": distincts}[node]
    tree: Tree = draw(strategy(child, window))
    return tree
