"""Chains of inner and left joins in one operator, against nested loops: results, and when each of them is certain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.kernels.test_multi_way import END, Arrival, Row, arrivals_of, cuts, window
from watersmeet.errors import PlanError
from watersmeet.kernels.multi_way.join import MultiWayJoin
from watersmeet.testing.harness import Harness, StepInput, load_script

Result = tuple[Row | None, ...]
FAR = 10**9


@dataclass(frozen=True)
class Link:
    """How a stream is added: ``windows`` (i, least, most) of its time minus that of stream i, its key that of one.

    With ``within`` there are no windows: its time is that near to the times of all streams that a row has, or of those
    that its conditions name if the clause is its ``own``.  ``same`` is a stream with an equal ``v``, and ``positive``
    one whose ``v`` is above 0, which may be the stream itself.
    """

    left: bool
    key_of: int
    windows: tuple[tuple[int, int, int], ...] = ()
    within: int | None = None
    own: bool = False
    same: int | None = None
    positive: int | None = None


@dataclass(frozen=True)
class Chain:
    """Streams s0, s1, …, each after the first with its link."""

    links: tuple[Link, ...]
    delays: tuple[int, ...]
    buckets: int = 1

    @property
    def streams(self) -> int:
        return len(self.links) + 1

    def sql(self) -> str:
        script = "".join(
            f"CREATE STREAM s{i} (k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECONDS) "
            "WITH (event_time_unit = 's');\n"
            for i, delay in enumerate(self.delays)
        )
        columns = ", ".join(f"s{i}.k AS k{i}, s{i}.v AS v{i}, s{i}.ts AS ts{i}" for i in range(self.streams))
        text = f"SELECT {columns} FROM s0"
        for j, link in enumerate(self.links, 1):
            terms = [f"s{link.key_of}.k = s{j}.k"]
            terms += [f"s{j}.ts - s{i}.ts BETWEEN {least} AND {most}" for i, least, most in link.windows]
            if link.same is not None:
                terms.append(f"s{link.same}.v = s{j}.v")
            if link.positive is not None:
                terms.append(f"s{link.positive}.v > 0")
            has_within = link.within is not None and (link.own or j == len(self.links))
            within = f" WITHIN INTERVAL '{link.within}' SECONDS" if has_within else ""
            text += f" {'LEFT' if link.left else 'INNER'} JOIN s{j} ON {' AND '.join(terms)}{within}"
        return f"{script}{text} EMIT FINAL SETTINGS multi_join = 'on';"

    # -- results ---------------------------------------------------------------------------------------------------

    def matches(self, result: Result, j: int, row: Row) -> bool:
        link = self.links[j - 1]
        of = (*result, row)
        if row[0] is None or (keyed := of[link.key_of]) is None or keyed[0] != row[0]:
            return False
        for i, least, most in link.windows:
            if (other := of[i]) is None or not least <= row[2] - other[2] <= most:
                return False
        if link.within is not None:
            near = [other for i in self.compared(j) if (other := of[i]) is not None]
            if any(abs(row[2] - other[2]) > link.within for other in near):
                return False
        if link.same is not None and ((other := of[link.same]) is None or row[1] is None or other[1] != row[1]):
            return False
        return link.positive is None or ((tested := of[link.positive]) is not None and (tested[1] or 0) > 0)

    def certain(self, arrived: Sequence[Arrival], frontier: int) -> Counter[Any]:
        """The results of these rows that no later row can change, at a frontier."""
        found: list[Result] = [(row,) for stream, row in arrived if stream == 0]
        for j in range(1, self.streams):
            rows = [row for stream, row in arrived if stream == j]
            found = [longer for result in found for longer in self._added(result, j, rows, frontier)]
        blank = (None, None, None)
        return Counter(sum(((row or blank) for row in result), ()) for result in found)

    def _added(self, result: Result, j: int, rows: Sequence[Row], frontier: int) -> Iterator[Result]:
        matching = [row for row in rows if self.matches(result, j, row)]
        yield from ((*result, row) for row in matching)
        if self.links[j - 1].left and not matching and self.is_closed(result, j, frontier):
            yield (*result, None)

    def is_closed(self, result: Result, j: int, frontier: int) -> bool:
        first = result[0]
        assert first is not None
        link = self.links[j - 1]
        lacks = any(result[i] is None for i, _, _ in link.windows)
        lacks |= link.within is not None and result[link.key_of] is None
        also_by_value = all(link.same is not None for link in self.links)  # then v is another common key
        has_no_key = first[0] is None or (also_by_value and first[1] is None)
        return lacks or has_no_key or first[2] + self.after_first(j)[1] < frontier

    def is_filtered(self, stream: int, row: Row) -> bool:
        """Whether a condition over its stream alone keeps a row from the join: the stream's own, or an inner join's."""
        tested = {
            j for j, link in enumerate(self.links, 1) if link.positive == stream and (j == stream or not link.left)
        }
        is_always_there = stream == 0 or not self.links[stream - 1].left
        return bool(tested & {stream} or (tested and is_always_there)) and (row[1] or 0) <= 0

    # -- times -----------------------------------------------------------------------------------------------------

    def compared(self, j: int) -> list[int]:
        """The streams with which a WITHIN compares the times of stream j."""
        link = self.links[j - 1]
        named = {link.key_of, link.same, link.positive} - {None, j}
        return sorted(i for i in range(j) if i in named or not link.own)

    def after_first(self, j: int) -> tuple[int, int]:
        """The least and greatest time of a row of stream j after that of the first stream."""
        if j == 0:
            return 0, 0
        link = self.links[j - 1]
        if link.within is not None:
            there = [i for i in self.compared(j) if i in (0, link.key_of) or not self.links[i - 1].left]
            bounds = [(i, -link.within, link.within) for i in there]
        else:
            bounds = list(link.windows)
        found = [(self.after_first(i)[0] + least, self.after_first(i)[1] + most) for i, least, most in bounds]
        return max(low for low, _ in found), min(high for _, high in found)

    def reach(self, stream: int) -> int:
        last = max(self.after_first(j)[1] for j in range(1, self.streams))
        return last if stream == 0 else max(last, 0) - self.after_first(stream)[0]


class Run:
    """A chain in the harness beside the model of its frontier, its late rows and its state."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.harness = Harness(*load_script(chain.sql()), buckets=chain.buckets)
        assert isinstance(self.harness.plan.operators[0].kernel, MultiWayJoin)
        assert len(self.harness.plan.operators) == 1
        self.accepted: list[Arrival] = []
        self.newest: list[int | None] = [None] * chain.streams
        self.given: Counter[Any] = Counter()

    def frontier(self) -> int:
        known = [time - delay for time, delay in zip(self.newest, self.chain.delays, strict=True) if time is not None]
        return min(known) if len(known) == self.chain.streams else -FAR

    def step(self, arrivals: Sequence[Arrival], *, restart: bool = False) -> None:
        before = self.frontier()
        self.accepted += [(stream, row) for stream, row in arrivals if row[2] >= before]
        for stream, row in arrivals:
            self.newest[stream] = max(row[2], -FAR if (known := self.newest[stream]) is None else known)
        if restart:
            self.harness.restart()
        fed = {f"s{i}": StepInput([row for stream, row in arrivals if stream == i]) for i in range(self.chain.streams)}
        outcome = self.harness.step({name: given for name, given in fed.items() if given.rows})
        self._count(outcome.changes)
        after = self.frontier()
        assert self.given == self.chain.certain(self.accepted, after)
        kept = [
            row
            for stream, row in self.accepted
            if row[2] >= after - self.chain.reach(stream) and not self.chain.is_filtered(stream, row)
        ]
        assert outcome.count("state_rows") == len(kept)

    def end(self) -> None:
        outcome = self.harness.step({}, END)
        self._count(outcome.changes)
        assert self.given == self.chain.certain(self.accepted, FAR)
        assert outcome.count("state_rows") == 0
        assert not self.harness.step({}, END).changes

    def _count(self, changes: Sequence[tuple[int, Any]]) -> None:
        assert all(weight == 1 for weight, _ in changes)
        self.given.update(row for _, row in changes)


def test_a_padded_row_meets_the_streams_after_it() -> None:
    """The example of kernels/multi_way/join.py."""
    after = ((0, 0, 10),)
    run = Run(Chain((Link(True, 0, after), Link(True, 0, after)), (0, 0, 0)))
    run.step([(0, (1, 0, 5)), (2, (1, 0, 7))])
    run.step([(0, (2, 0, 15)), (1, (2, 0, 15)), (2, (2, 0, 15))])
    assert +run.given == {(2, 0, 15) * 3: 1}
    run.step([(0, (2, 0, 16)), (1, (2, 0, 16)), (2, (2, 0, 16))])
    assert run.given[1, 0, 5, None, None, None, 1, 0, 7] == 1
    run.end()


def test_a_stream_joined_to_one_that_is_lacking_matches_nothing() -> None:
    """Its key, its window or another condition may be the one that compares with NULL."""
    near = ((0, -5, 5),)
    for link in (
        Link(True, 1, near),
        Link(True, 0, ((1, -5, 5),)),
        Link(True, 0, near, same=1),
        Link(True, 0, near, positive=1),
    ):
        run = Run(Chain((Link(True, 0, near), link), (0, 0, 0)))
        run.step([(0, (1, 1, 5)), (2, (1, 1, 5)), (0, (2, 1, 5)), (1, (2, 1, 5)), (2, (2, 1, 5))])
        run.end()
        assert run.given == {(1, 1, 5) + (None,) * 6: 1, (2, 1, 5) * 3: 1}


def test_a_partner_may_be_further_away_than_the_stream_that_probes() -> None:
    """s2 is near s0, and s1 up to 50 after it: a new s2 must not make s0 look as if it had no s1."""
    run = Run(Chain((Link(True, 0, ((0, 0, 50),)), Link(True, 0, ((0, 0, 5),))), (0, 0, 0)))
    run.step([(0, (1, 0, 0)), (1, (1, 0, 50))])
    run.step([(2, (1, 0, 5))])
    assert +run.given == {(1, 0, 0, 1, 0, 50, 1, 0, 5): 1}
    run.end()


def test_a_row_without_a_key_is_padded_at_once() -> None:
    near = ((0, -5, 5),)
    run = Run(Chain((Link(True, 0, near), Link(True, 0, near)), (0, 0, 0)))
    run.step([(0, (None, 0, 5))])
    assert run.given == {(None, 0, 5) + (None,) * 6: 1}
    run.end()


def test_inner_joins_meet_rows_that_all_lack_a_stream() -> None:
    """DuckDB 2.0 failed where it moved a condition of theirs below a left join without any match."""
    run = Run(Chain((Link(True, 0, within=1), Link(False, 0, within=1), Link(False, 0, within=1)), (0, 0, 0, 0)))
    run.step([(0, (1, 0, 0)), (2, (1, 0, 0)), (3, (1, 0, 0))])
    run.end()
    assert run.given == {(1, 0, 0, None, None, None, 1, 0, 0, 1, 0, 0): 1}


@pytest.mark.parametrize("restarts", [False, True])
def test_rows_in_any_order_give_the_same_results(restarts: bool) -> None:
    """Two partners in s1, one in s2, none in s3; all within 10, in one step each, from the last to the first."""
    links = (Link(True, 0, within=10), Link(False, 0, within=10), Link(True, 2, within=10))
    rows: list[Arrival] = [(0, (1, 1, 5)), (1, (1, 2, 0)), (1, (1, 3, 10)), (2, (1, 4, 6))]
    for order in (rows, rows[::-1], [rows[2], rows[0], rows[3], rows[1]]):
        run = Run(Chain(links, (100,) * 4))
        for arrival in order:
            run.step([arrival], restart=restarts)
        assert not +run.given  # an s3 may come still
        run.end()
        assert sorted(row[4] for row in run.given) == [2, 3]


@pytest.mark.parametrize("restarts", [False, True])
def test_all_permutations_of_arrival_in_all_cuts(restarts: bool) -> None:
    """s0@5 has two rows of s1 and none of s2, s0@30 none of s1: 120 orders, each in 16 cuts, each with its key."""
    rows = [(0, 1, 5), (0, 2, 30), (1, 3, 5), (1, 4, 15), (2, 5, 30)]
    links = (Link(True, 0, within=10), Link(True, 0, within=10))
    harness = Harness(*load_script(Chain(links, (100,) * 3).sql()), buckets=2)
    tried = list(product(permutations(rows), cuts(len(rows))))
    assert len(tried) == 120 * 16
    found: Counter[Any] = Counter()
    for number in range(len(rows) + 1):
        if restarts:
            harness.restart()
        parts = [(key, order[cut[number]]) for key, (order, cut) in enumerate(tried) if number < len(cut)]
        fed = {
            f"s{i}": StepInput([(key, v, ts) for key, part in parts for stream, v, ts in part if stream == i])
            for i in range(3)
        }
        outcome = harness.step(fed, END if number == len(rows) else [])
        found.update((row[0], row[1], row[4], row[7]) for _, row in outcome.changes)
    expected = ((1, 3, None), (1, 4, None), (2, None, 5))
    assert found == {(key, *values): 1 for key in range(len(tried)) for values in expected}


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    streams = draw(st.sampled_from([2, 3, 3, 4, 5]))
    kinds = draw(st.lists(st.booleans(), min_size=streams - 1, max_size=streams - 1).filter(any))
    is_near = draw(st.booleans())
    near = draw(st.integers(0, 6))
    own = draw(st.booleans())
    links = []
    for j, left in enumerate(kinds, 1):
        others = st.sampled_from(range(j))
        compared = draw(st.lists(others, min_size=1, max_size=2, unique=True))
        links.append(
            Link(
                left=left,
                key_of=draw(others),
                windows=() if is_near else tuple((i, *draw(window)) for i in sorted(compared)),
                within=(draw(st.integers(0, 6)) if own else near) if is_near else None,
                own=own,
                same=draw(st.none() | others),
                positive=draw(st.none() | st.sampled_from(range(j + 1))),
            )
        )
    delays = tuple(draw(st.lists(st.integers(0, 6), min_size=streams, max_size=streams)))
    return Chain(tuple(links), delays, buckets=draw(st.integers(1, 3)))


@given(chain=chains(), data=st.data())
def test_the_chain_is_exact_under_disorder_restarts_and_any_cut(chain: Chain, data: st.DataObject) -> None:
    check(chain, data)


def check(chain: Chain, data: st.DataObject) -> None:
    """Feed random rows in random steps; results, late rows and state are the model's after each."""
    arrivals = data.draw(arrivals_of(chain.streams))
    try:
        run = Run(chain)
    except PlanError:  # its windows contradict each other
        reject()
    edges = sorted({0, len(arrivals), *data.draw(st.lists(st.integers(0, len(arrivals)), max_size=6))})
    for low, high in pairwise(edges):
        run.step(arrivals[low:high], restart=data.draw(st.booleans()))
    run.end()
