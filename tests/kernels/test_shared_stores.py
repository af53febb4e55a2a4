"""Joins of several queries over shared stores, against nested loops for each query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, Protocol

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.kernels.test_multi_way import END, Arrival, Row, arrivals_of, cuts
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import ConfigError, PlanError, UnsupportedError, WatersmeetError
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import StatementSet
from watersmeet.testing.harness import Harness, load_script
from watersmeet.testing.rig import StepInput, StepOutcome

STREAMS = 4
NEVER = -(10**9)


def created(delays: Sequence[int]) -> str:
    """Streams s0, s1, … with the columns k, v and ts, in seconds."""
    return "".join(
        f"CREATE STREAM s{i} (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECONDS) "
        "WITH (event_time_unit = 's');\n"
        for i, delay in enumerate(delays)
    )


class MakeHarness(Protocol):
    """What makes a harness for a statement set."""

    def __call__(self, streams: Mapping[str, StreamDef], query: StatementSet, *, buckets: int) -> Harness: ...


def harness_of(
    queries: Sequence[str],
    delays: Sequence[int] = (0,) * STREAMS,
    buckets: int = 2,
    script: str = "",
    make: MakeHarness = Harness,
) -> Harness:
    script = script or created(delays)
    streams, _ = load_script(f"{script} SELECT * FROM s0;")
    inserts = "".join(f"INSERT INTO t{number} {each};" for number, each in enumerate(queries))
    (found,) = parse(f"EXECUTE STATEMENT SET BEGIN {inserts} END;")
    assert isinstance(found, StatementSet)
    return make(streams, found, buckets=buckets)


@dataclass(frozen=True)
class Query:
    """A chain of joins, each of which adds one of the ``streams`` by ``k``, all rows within ``window`` seconds.

    ``left`` says of each but the first whether it is a LEFT JOIN.  ``least`` filters the first stream by ``v`` (None:
    not at all), and ``different`` demands that the first and the second have not the same ``v``.
    """

    streams: tuple[int, ...]
    window: int
    left: tuple[bool, ...]
    least: int | None
    different: bool

    def sql(self) -> str:
        columns = ", ".join(f"a{i}.k AS k{i}, a{i}.v AS v{i}, a{i}.ts AS ts{i}" for i in range(len(self.streams)))
        text = f"SELECT {columns} FROM s{self.streams[0]} a0"
        for i, (stream, left) in enumerate(zip(self.streams[1:], self.left, strict=True), 1):
            text += f" {'LEFT ' if left else ''}JOIN s{stream} a{i} ON a0.k = a{i}.k"
            text += " AND a0.v <> a1.v" if self.different and i == 1 else ""
        text += f" WITHIN INTERVAL '{self.window}' SECONDS"
        return text + (f" WHERE a0.v >= {self.least}" if self.least is not None else "") + " EMIT FINAL"

    def results(self, arrived: Sequence[Arrival]) -> Counter[Any]:
        of = [[row for stream, row in arrived if stream == i] for i in range(STREAMS)]
        rows: list[tuple[Row | None, ...]] = [(row,) for row in of[self.streams[0]] if self.passes(row)]
        for i, (stream, left) in enumerate(zip(self.streams[1:], self.left, strict=True), 1):
            joined: list[tuple[Row | None, ...]] = []
            for before in rows:
                partners = [row for row in of[stream] if self.matches(before, row, i)]
                joined += [(*before, row) for row in partners] or ([(*before, None)] if left else [])
            rows = joined
        return Counter(sum((row or (None, None, None) for row in result), ()) for result in rows)

    def passes(self, row: Row) -> bool:
        return self.least is None or (row[1] is not None and row[1] >= self.least)

    def matches(self, before: Sequence[Row | None], row: Row, input: int) -> bool:
        first = before[0]
        assert first is not None
        if first[0] is None or first[0] != row[0]:
            return False
        if any(other is not None and abs(other[2] - row[2]) > self.window for other in before):
            return False
        return not (self.different and input == 1) or (None not in (first[1], row[1]) and first[1] != row[1])

    @property
    def is_inner(self) -> bool:
        return not any(self.left)


class Run:
    """Queries in the harness beside the model of their frontier, their late rows and, for inner joins, their stores."""

    def __init__(
        self, queries: Sequence[Query], delays: Sequence[int], buckets: int, make: MakeHarness = Harness
    ) -> None:
        self.queries, self.delays = queries, delays
        self.harness = harness_of([query.sql() for query in queries], delays, buckets, make=make)
        self.read = sorted({stream for query in queries for stream in query.streams})
        self.accepted: list[Arrival] = []
        self.newest = dict.fromkeys(self.read, NEVER)
        self.given: list[Counter[Any]] = [Counter() for _ in queries]

    def frontier(self) -> int:
        """All queries have one, the least over their streams."""
        known = [time - self.delays[stream] for stream, time in self.newest.items() if time != NEVER]
        return min(known) if len(known) == len(self.read) else NEVER

    def step(self, arrivals: Sequence[Arrival], *, restart: bool = False) -> None:
        before = self.frontier()
        arrivals = [(stream, row) for stream, row in arrivals if stream in self.read]
        self.accepted += [(stream, row) for stream, row in arrivals if row[2] >= before]
        for stream, row in arrivals:
            self.newest[stream] = max(row[2], self.newest[stream])
        if restart:
            self.harness.restart()
        fed = {f"s{i}": StepInput([row for stream, row in arrivals if stream == i]) for i in self.read}
        outcomes = self.harness.step_all({name: rows for name, rows in fed.items() if rows.rows})
        self.count(outcomes)
        for query, given_rows in zip(self.queries, self.given, strict=True):
            if query.is_inner:
                assert given_rows == query.results(self.accepted)
        if all(query.is_inner for query in self.queries):
            assert outcomes[0].count("state_rows") == len(list(self.stored()))

    def stored(self) -> Iterator[Arrival]:
        """Each row once, while one of the queries that read it may still need it."""
        after = self.frontier()
        for stream, row in self.accepted:
            reading = [query for query in self.queries if stream in query.streams]
            passing = any(query.passes(row) or stream in query.streams[1:] for query in reading)
            if passing and row[2] >= after - max(query.window for query in reading):
                yield stream, row

    def end(self) -> None:
        outcomes = self.harness.step_all({}, END)
        self.count(outcomes)
        for query, given_rows in zip(self.queries, self.given, strict=True):
            assert given_rows == query.results(self.accepted)
        assert outcomes[0].count("state_rows") == 0

    def count(self, outcomes: Sequence[StepOutcome]) -> None:
        for outcome, given_rows in zip(outcomes, self.given, strict=True):
            assert all(weight == 1 for weight, _ in outcome.changes)
            given_rows.update(row for _, row in outcome.changes)


@st.composite
def query_sets(draw: st.DrawFn) -> list[Query]:
    """Two to four queries over some of four streams, some of them joined with themselves."""

    @st.composite
    def query(draw: st.DrawFn) -> Query:
        streams = draw(st.lists(st.integers(0, STREAMS - 1), min_size=2, max_size=3))
        left = tuple(draw(st.booleans()) for _ in streams[1:])
        least = draw(st.sampled_from([None, None, 0, 1]))
        return Query(tuple(streams), draw(st.integers(0, 8)), left, least, draw(st.booleans()))

    return draw(st.lists(query(), min_size=2, max_size=4))


def connected(queries: Sequence[Query]) -> list[Query]:
    """Those queries that share a stream with the first, or with one that does."""
    found, rest = [queries[0]], list(queries[1:])
    while near := [each for each in rest if any(set(each.streams) & set(other.streams) for other in found)]:
        found += near
        rest = [each for each in rest if each not in near]
    return found


@given(
    queries=query_sets(),
    delays=st.tuples(*[st.integers(0, 6)] * STREAMS),
    arrivals=arrivals_of(STREAMS),
    buckets=st.integers(1, 2),
    data=st.data(),
)
def test_shared_stores_agree_with_nested_loops(
    queries: list[Query], delays: tuple[int, ...], arrivals: list[Arrival], buckets: int, data: st.DataObject
) -> None:
    assume(len(connected(queries)) == len(queries))
    run = Run(queries, delays, buckets)
    while arrivals:
        size = data.draw(st.integers(1, len(arrivals)))
        run.step(arrivals[:size], restart=data.draw(st.booleans()))
        arrivals = arrivals[size:]
    run.end()


PAIR = Query((0, 1), 10, (False,), None, different=False)
PADDED = Query((0, 2), 60, (True,), None, different=False)
TRIPLE = Query((0, 1, 2), 10, (False, False), 1, different=False)


def test_a_row_stays_until_no_query_needs_it_and_no_longer() -> None:
    """The example of kernels/multi_way/shared.py."""
    run = Run([PAIR, Query((0, 2), 60, (False,), None, different=False)], (0, 0, 0, 0), 1)
    run.step([(0, (1, 0, 5))])
    for stream in range(3):
        run.step([(stream, (2, 0, 16))])  # F = 16: no row of s1 can come for s0@5, but rows of s2 can
    run.step([(2, (1, 0, 65)), (1, (1, 0, 16)), (0, (3, 0, 65))])
    assert [+each for each in run.given] == [
        {(2, 0, 16, 2, 0, 16): 1},
        {(1, 0, 5, 1, 0, 65): 1, (2, 0, 16, 2, 0, 16): 1},
    ]
    run.step([(stream, (9, 0, 66)) for stream in range(3)])
    run.end()


@pytest.mark.parametrize("restarts", [False, True])
def test_all_permutations_of_arrival_in_all_cuts(restarts: bool) -> None:
    """Four rows, three of one event time, for three queries: 24 orders, each in 8 cuts, each with its key."""
    rows = [(0, 1, 5), (1, 2, 5), (2, 3, 5), (0, 0, 15)]
    tried = list(product(permutations(rows), cuts(len(rows))))
    assert len(tried) == 24 * 8
    run = Run([PAIR, PADDED, TRIPLE], (100,) * STREAMS, 2)
    for number in range(len(rows)):
        parts = [(key, order[cut[number]]) for key, (order, cut) in enumerate(tried) if number < len(cut)]
        run.step([(stream, (key, v, ts)) for key, part in parts for stream, v, ts in part], restart=restarts)
    run.end()
    for query, found in zip(run.queries, run.given, strict=True):
        one = query.results([(stream, (1, v, ts)) for stream, v, ts in rows])
        assert sum(found.values()) == len(tried) * sum(one.values())


def test_each_row_is_stored_once_for_all_queries() -> None:
    run = Run([PAIR, TRIPLE, Query((1, 0, 1), 10, (False, False), None, different=True)], (0,) * STREAMS, 2)
    run.step([(0, (1, 0, 5)), (1, (1, 2, 5)), (1, (1, 0, 6)), (2, (1, 3, 5))])
    run.end()


# -- plans -------------------------------------------------------------------------------------------------------------

JOIN = "SELECT a.k AS k FROM s0 a JOIN s1 b ON a.k = b.k WITHIN INTERVAL '9' SECONDS"


def stores(queries: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """The stores of a set and their columns."""
    harness = harness_of(queries)
    return [(part.input.alias, part.carried) for part in harness.plan.inputs]


def test_a_store_has_the_columns_that_any_query_needs() -> None:
    other = "SELECT c.v AS v FROM s1 b JOIN s2 c ON b.k = c.k AND b.v < 3 WITHIN INTERVAL '5' SECONDS"
    assert stores([JOIN, other]) == [
        ("s0", ("s0:k",)),
        ("s1", ("s1:$e0", "s1:k")),
        ("s2", ("s2:k", "s2:v")),
    ]


def test_an_equal_filter_is_tested_at_the_source() -> None:
    queries = [f"{JOIN} WHERE a.v > 1", f"{JOIN.replace('s1', 's2')} WHERE a.v > 1"]
    harness = harness_of(queries)
    assert harness.plan.inputs[0].keep is not None
    assert harness.plan.inputs[0].carried == ("s0:k",)


def test_a_computed_column_is_computed_only_for_rows_that_pass() -> None:
    """A product overflows on rows that the filter of its query drops, and the other query keeps."""
    condition = "a.k = b.k AND a.v * 2147483647 > 5"
    guarded = JOIN.replace("JOIN", "LEFT JOIN").replace("a.k = b.k", condition) + " WHERE a.v < 2"
    harness = harness_of([JOIN, guarded])
    rows = {"s0": StepInput([(1, 1, 1), (1, 2, 1)]), "s1": StepInput([(1, 1, 1)])}
    assert [[row for _, row in each.changes] for each in harness.step_all(rows)] == [[(1,), (1,)], [(1,)]]


def test_a_column_with_the_name_of_an_expression_is_another_key() -> None:
    queries = [JOIN.replace("a.k =", "a.k + 1 ="), JOIN.replace("a.k =", "a.`k + 1` =")]
    script = created((0,) * STREAMS).replace("s0 (k INT", "s0 (k INT, `k + 1` INT")
    harness = harness_of(queries, script=script)
    assert [part.input.alias for part in harness.plan.inputs] == ["s0", "s1", "s0_2"]


def test_a_second_store_of_a_stream_has_a_name_of_its_own() -> None:
    """There is a stream s0_2, with another type of v."""
    script = created((0,) * STREAMS) + created((0,)).replace("s0 (k INT, v INT", "s0_2 (k INT, v STRING")
    third = "SELECT b.v AS v, a.v AS w FROM s1 b JOIN s0_2 a ON a.k = b.k WITHIN INTERVAL '9' SECONDS"
    harness = harness_of([JOIN, third.replace("s0_2 a ON a.k", "s0 a ON a.v"), third], script=script)
    assert [part.input.alias for part in harness.plan.inputs] == ["s0", "s1", "s0_3", "s0_2"]
    rows = {"s0": StepInput([(1, 1, 1)]), "s1": StepInput([(1, 7, 1)]), "s0_2": StepInput([(1, "x", 1)])}
    assert [[row for _, row in each.changes] for each in harness.step_all(rows)] == [[(1,)], [(7, 1)], [(7, "x")]]


def test_a_stream_kept_by_two_keys_has_two_stores() -> None:
    by_v = "SELECT a.k AS k FROM s0 a JOIN s1 b ON a.v = b.v WITHIN INTERVAL '9' SECONDS"
    both = "SELECT a.k AS k FROM s0 a JOIN s2 c ON a.v = c.v WITHIN INTERVAL '9' SECONDS"
    with pytest.raises(PlanError, match="shares no store") as found:
        harness_of([JOIN, by_v])
    assert "s0 is kept by k (INT) and by v (INT); s1 is kept by k (INT) and by v (INT)" in str(found.value)
    third = "SELECT a.k AS k FROM s1 a JOIN s1 b ON a.k = b.k JOIN s3 c ON c.k = a.k WITHIN INTERVAL '9' SECONDS"
    assert [name for name, _ in stores([JOIN, third])] == ["s0", "s1", "s3"]
    assert [name for name, _ in stores([by_v, both])] == ["s0", "s1", "s2"]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT k FROM s0", "it joins nothing"),
        (f"{JOIN} ORDER BY a.ts", "not ordered yet"),
        ("SELECT a.k, count(*) AS n FROM s0 a JOIN s1 b ON a.k = b.k GROUP BY a.k", "not aggregated or ranked yet"),
        (JOIN.replace("JOIN", "FULL JOIN"), "only inner and left joins"),
        (JOIN.replace("a.k = b.k", "a.k < b.k"), "no key of one type in common"),
        ("SELECT a.k AS k FROM s0 a LEFT JOIN s1 b ON a.k = b.k", "where results are final"),
        (f"{JOIN} SETTINGS multi_join = 'off'", "multi_join = 'off'"),
        (
            "SELECT a.k AS k FROM s2 a JOIN s3 b ON a.k = b.k",
            "no other query joins s2; no other query joins s3",
        ),
        (f"{JOIN} GRACE PERIOD INTERVAL '1' SECOND", "s0 has another GRACE PERIOD"),
    ],
)
def test_a_query_that_cannot_share_is_refused_with_the_reason(query: str, why: str) -> None:
    with pytest.raises(PlanError) as found:
        harness_of([JOIN, query])
    assert why in str(found.value)
    assert found.value.position is not None
    assert found.value.hint is not None


@pytest.mark.parametrize(
    ("settings", "error", "why"),
    [
        ("buckets = 3", ConfigError, "another query of this statement set has 2"),
        ("skew = 'spread'", UnsupportedError, "hot keys"),
    ],
)
def test_settings_hold_for_the_whole_set(settings: str, error: type[WatersmeetError], why: str) -> None:
    with pytest.raises(error, match=why) as found:
        harness_of([f"{JOIN} SETTINGS buckets = 2", f"{JOIN} SETTINGS {settings}"])
    assert found.value.position is not None
    harness = harness_of([JOIN, f"{JOIN} SETTINGS buckets = 3"])
    assert harness.plan.query.settings.buckets == 3


def test_an_error_of_a_setting_is_where_the_setting_is() -> None:
    with pytest.raises(ConfigError, match="no option 'bogus'") as found:
        harness_of([JOIN, f"\n{JOIN} SETTINGS bogus = 1"])
    assert found.value.position is not None
    assert found.value.position.line == 2
