"""Joins of three streams and more in one operator, against nested loops, and all permutations of small cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.errors import PlanError
from watersmeet.kernels.multi_way.join import MultiWayJoin
from watersmeet.kernels.multi_way.match import JoinedInput, MultiWayMatch
from watersmeet.testing.harness import Harness, StepInput, StepOutcome, load_script

END = [Event(EventKind.END)]
Row = tuple[int | None, int | None, int]  # k, v, ts
Arrival = tuple[int, Row]  # the number of a stream, and its row


@dataclass(frozen=True)
class Query:
    """Streams s0, s1, … with windows ``(i, j): (least, most)`` of sj.ts - si.ts, equal ``k``, and more conditions.

    ``same`` are two streams whose ``v`` must be equal; with ``residual`` the sum of all ``v`` is not 2.
    """

    streams: int
    windows: dict[tuple[int, int], tuple[int, int]]
    delays: tuple[int, ...]
    same: tuple[int, int] | None = None
    residual: bool = False
    null_safe: bool = False
    buckets: int = 1

    def sql(self) -> str:
        equals = "IS NOT DISTINCT FROM" if self.null_safe else "="
        script = "".join(
            f"CREATE STREAM s{i} (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECONDS) "
            "WITH (event_time_unit = 's');\n"
            for i, delay in enumerate(self.delays)
        )
        columns = ", ".join(f"s{i}.k AS k{i}, s{i}.v AS v{i}, s{i}.ts AS ts{i}" for i in range(self.streams))
        text = f"SELECT {columns} FROM s0"
        for j in range(1, self.streams):
            terms = [f"s{j - 1}.k {equals} s{j}.k"]
            for (left, right), (least, most) in self.windows.items():
                if right == j:
                    terms.append(f"s{right}.ts - s{left}.ts BETWEEN {least} AND {most}")
            if self.same is not None and self.same[1] == j:
                terms.append(f"s{self.same[0]}.v = s{j}.v")
            text += f" JOIN s{j} ON {' AND '.join(terms)}"
        if self.residual:
            text += f" WHERE {' + '.join(f's{i}.v' for i in range(self.streams))} <> 2"
        return f"{script}{text} EMIT FINAL SETTINGS multi_join = 'on';"

    def holds(self, rows: Sequence[Row]) -> bool:
        keys = {row[0] for row in rows}
        if len(keys) > 1 or (None in keys and not self.null_safe):
            return False
        if any(not least <= rows[j][2] - rows[i][2] <= most for (i, j), (least, most) in self.windows.items()):
            return False
        if self.same is not None:
            one, other = (rows[i][1] for i in self.same)
            if one is None or one != other:
                return False
        values = [row[1] for row in rows]
        return not self.residual or (None not in values and sum(value or 0 for value in values) != 2)

    def results(self, arrived: Sequence[Arrival]) -> Counter[Any]:
        of = [[row for stream, row in arrived if stream == i] for i in range(self.streams)]
        return Counter(sum(rows, ()) for rows in product(*of) if self.holds(rows))

    def reach(self, stream: int) -> int:
        """How long after a row of a stream its latest partner may come: by shortest paths over the windows."""
        far = 10**6
        most = {(i, j): 0 if i == j else far for i, j in product(range(self.streams), repeat=2)}
        for (i, j), (low, high) in self.windows.items():
            most[i, j] = min(most[i, j], high)
            most[j, i] = min(most[j, i], -low)
        for via, i, j in product(range(self.streams), repeat=3):
            most[i, j] = min(most[i, j], most[i, via] + most[via, j])
        return max(most[stream, other] for other in range(self.streams) if other != stream)


class Run:
    """A query in the harness beside the model of its frontier, its late rows and its state."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.harness = Harness(*load_script(query.sql()), buckets=query.buckets)
        assert isinstance(self.harness.plan.operators[0].kernel, MultiWayJoin)
        self.accepted: list[Arrival] = []
        self.newest: list[int | None] = [None] * query.streams
        self.given: Counter[Any] = Counter()

    def frontier(self) -> int:
        known = [time - delay for time, delay in zip(self.newest, self.query.delays, strict=True) if time is not None]
        return min(known) if len(known) == self.query.streams else -(10**9)

    def step(self, arrivals: Sequence[Arrival], *, restart: bool = False) -> None:
        before = self.frontier()
        self.accepted += [(stream, row) for stream, row in arrivals if row[2] >= before]
        for stream, row in arrivals:
            self.newest[stream] = max(row[2], -(10**9) if (known := self.newest[stream]) is None else known)
        outcome = self.take(arrivals, restart=restart)
        assert self.given == self.query.results(self.accepted)
        after = self.frontier()
        kept = [row for stream, row in self.accepted if row[2] >= after - self.query.reach(stream)]
        assert outcome.count("state_rows") == len(kept)

    def take(self, arrivals: Sequence[Arrival], *, restart: bool) -> StepOutcome:
        if restart:
            self.harness.restart()
        fed = {f"s{i}": StepInput([row for stream, row in arrivals if stream == i]) for i in range(self.query.streams)}
        outcome = self.harness.step({name: given for name, given in fed.items() if given.rows})
        self._count(outcome.changes)
        return outcome

    def end(self) -> None:
        outcome = self.harness.step({}, END)
        self._count(outcome.changes)
        assert self.given == self.query.results(self.accepted)
        assert outcome.count("state_rows") == 0

    def _count(self, changes: Sequence[tuple[int, Any]]) -> None:
        assert all(weight == 1 for weight, _ in changes)
        self.given.update(row for _, row in changes)


def cuts(length: int) -> Iterator[list[slice]]:
    """All ways to cut a sequence into steps."""
    for count in range(length):
        for places in combinations(range(1, length), count):
            edges = [0, *places, length]
            yield [slice(low, high) for low, high in pairwise(edges)]


AROUND = {(0, 1): (-10, 10), (0, 2): (-10, 10), (1, 2): (-10, 10)}
#: r2 and r4 are stored, s7 probes them, and r8 is stored after it; one row of a third stream completes each result.
PANELS = {
    "in order": [0, 1, 2, 3, 4],
    "delayed probe": [0, 1, 3, 2, 4],
    "delayed store": [0, 2, 1, 3, 4],
    "probe before all stores": [2, 0, 1, 3, 4],
    "stores before the probe": [0, 1, 3, 4, 2],
}
PANEL_ROWS: list[Arrival] = [(0, (1, 2, 2)), (0, (1, 4, 4)), (1, (1, 7, 7)), (0, (1, 8, 8)), (2, (1, 0, 5))]


@pytest.mark.parametrize("order", PANELS.values(), ids=PANELS)
def test_the_panels_of_stores_and_probes(order: list[int]) -> None:
    """Late at the store or at the probe: s7 meets r2, r4 and r8, each once."""
    run = Run(Query(3, AROUND, (100, 100, 100)))
    for number in order:
        run.step([PANEL_ROWS[number]])
    run.end()
    assert sorted(row[1] for row in run.given) == [2, 4, 8]
    assert set(run.given.values()) == {1}


@pytest.mark.parametrize("restarts", [False, True])
def test_all_permutations_of_arrival_in_all_cuts(restarts: bool) -> None:
    """Five rows of three streams, four of them with one event time: 120 orders, each in 16 cuts, each with its key."""
    rows = [(0, 1, 5), (0, 2, 5), (1, 3, 5), (1, 4, 15), (2, 5, 5)]
    query = Query(3, AROUND, (100, 100, 100), buckets=2)
    tried = list(product(permutations(rows), cuts(len(rows))))
    assert len(tried) == 120 * 16
    run = Run(query)
    for number in range(len(rows)):
        parts = [(key, order[cut[number]]) for key, (order, cut) in enumerate(tried) if number < len(cut)]
        run.take([(stream, (key, v, ts)) for key, part in parts for stream, v, ts in part], restart=restarts)
    found = Counter((row[0], row[1], row[4], row[7]) for row in run.given.elements())
    assert found == {(key, a, b, 5): 1 for key in range(len(tried)) for a in (1, 2) for b in (3, 4)}


def test_a_row_stays_until_no_partner_can_come_and_no_longer() -> None:
    """The example of kernels/multi_way/join.py: no intermediate row is stored."""
    run = Run(Query(3, AROUND, (0, 0, 0)))
    run.step([(0, (1, 0, 5)), (1, (1, 0, 7)), (2, (1, 0, 14))])
    assert +run.given == {(1, 0, 5, 1, 0, 7, 1, 0, 14): 1}
    for stream in range(3):
        run.step([(stream, (2, 0, 16))])  # F = 16 with the last of them: s0@5 goes
    run.step([(1, (1, 0, 17)), (2, (1, 0, 17)), (0, (1, 0, 17))])
    run.end()


def test_a_bound_over_a_third_stream_holds_and_prunes() -> None:
    """s1 is within 10 after s0 because s2 is: nothing else says so."""
    query = Query(3, {(0, 2): (0, 10), (1, 2): (0, 10)}, (0, 0, 0))
    assert [query.reach(stream) for stream in range(3)] == [10, 10, 0]
    run = Run(query)
    run.step([(0, (1, 0, 0)), (1, (1, 0, 11)), (2, (1, 0, 10))])
    run.step([(stream, (1, 0, 20)) for stream in range(3)])
    run.end()
    assert {(row[2], row[5], row[8]) for row in run.given} == {(20, 20, 20), (20, 11, 20)}


@pytest.mark.parametrize(("null_safe", "probed"), [(False, [1, 2]), (True, [1, None, 2])])
def test_a_lookup_asks_for_null_only_where_null_equals_null(null_safe: bool, probed: list[int | None]) -> None:
    inputs = tuple(JoinedInput(f"{name}:$t", (f"{name}:k",), (f"{name}:k",), 0) for name in "abc")
    match = MultiWayMatch(inputs, (null_safe,), bounds=(), terms=(), output=("a:k",))
    new = {0: pa.table({"a:k": [7]}), 1: pa.table({"b:k": [1, None]}), 2: pa.table({"c:k": [2]})}
    assert match.probes(0, new).to_pydict() == {"a:k": probed}


window = st.integers(-6, 4).flatmap(lambda low: st.integers(0, 8).map(lambda width: (low, low + width)))


@st.composite
def arrivals_of(draw: st.DrawFn, streams: int) -> list[Arrival]:
    """Rows of some streams, out of order by up to eight, some without a key or a value."""
    value = st.sampled_from([0, 1, 2, None])
    row = st.tuples(st.sampled_from([1, 1, 1, 2, None]), value, st.integers(-5, 3))
    drawn = draw(st.lists(st.tuples(st.integers(0, streams - 1), row), min_size=1, max_size=18))
    return [(stream, (k, v, i + jitter)) for i, (stream, (k, v, jitter)) in enumerate(drawn)]


@st.composite
def queries(draw: st.DrawFn) -> Query:
    streams = draw(st.sampled_from([2, 3, 3, 4, 5]))
    windows = {}
    for j in range(1, streams):
        windows[draw(st.integers(0, j - 1)), j] = draw(window)
    if draw(st.booleans()):
        i, j = sorted(draw(st.permutations(range(streams)))[:2])
        windows.setdefault((i, j), draw(window))
    same = tuple(sorted(draw(st.permutations(range(streams)))[:2])) if draw(st.booleans()) else None
    return Query(
        streams,
        windows,
        delays=tuple(draw(st.lists(st.integers(0, 6), min_size=streams, max_size=streams))),
        same=same,  # type: ignore[arg-type]
        residual=draw(st.booleans()),
        null_safe=draw(st.booleans()),
        buckets=draw(st.integers(1, 3)),
    )


@given(query=queries(), data=st.data())
def test_the_join_is_exact_under_disorder_restarts_and_any_cut(query: Query, data: st.DataObject) -> None:
    check(query, data)


def check(query: Query, data: st.DataObject) -> None:
    """Feed random rows in random steps; results, late rows and state are the model's after each."""
    arrivals = data.draw(arrivals_of(query.streams))
    try:
        run = Run(query)
    except PlanError:  # its windows contradict each other
        reject()
    while arrivals:
        size = data.draw(st.integers(1, 6))
        run.step(arrivals[:size], restart=data.draw(st.booleans()))
        arrivals = arrivals[size:]
    run.end()
