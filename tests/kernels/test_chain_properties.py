"""Two joins in a chain, or in one operator, against nested loops, and regressions (named below)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.engine.control_events import Event, EventKind
from watersmeet.testing.harness import Harness, StepInput, load_script

Rows = dict[str, list[tuple[Any, ...]]]
NOTHING = (None, None)


@dataclass(frozen=True)
class Chain:
    """a JOIN b over ``lower <= b.ts - a.ts <= upper``, then JOIN c with the times of a or of b."""

    kinds: tuple[str, str]
    changelog: bool
    first: tuple[int, int]
    second: tuple[int, int]
    through: str  # the stream that c is joined with: a or b
    buckets: int
    multi_join: str

    def sql(self, delays: dict[str, int]) -> str:
        one, two = self.kinds
        emit = "CHANGELOG" if self.changelog else "FINAL"
        return (
            "".join(stream(name, delays[name]) for name in "abc")
            + "SELECT a.k AS ak, a.ts AS ats, b.k AS bk, b.ts AS bts, c.k AS ck, c.ts AS cts FROM a "
            + f"{one} JOIN b ON a.k = b.k AND b.ts - a.ts >= {self.first[0]} AND b.ts - a.ts <= {self.first[1]} "
            + f"{two} JOIN c ON {self.through}.k = c.k AND c.ts - {self.through}.ts >= {self.second[0]} "
            + f"AND c.ts - {self.through}.ts <= {self.second[1]} EMIT {emit} SETTINGS multi_join = '{self.multi_join}';"
        )

    def reference(self, rows: Rows) -> Counter[Any]:
        pairs = nested(rows["a"], rows["b"], self.kinds[0], self.first, lambda a: a)
        of_through = (lambda ab: ab[:2]) if self.through == "a" else (lambda ab: ab[2:])
        return Counter(nested(pairs, rows["c"], self.kinds[1], self.second, of_through))


def nested(left: list[Any], right: list[Any], kind: str, window: tuple[int, int], key_and_time: Any) -> list[Any]:
    found = []
    for one in left:
        key, time = key_and_time(one)
        partners = [
            other
            for other in right
            if key is not None and key == other[0] and window[0] <= other[1] - time <= window[1]
        ]
        found += [(*one, *other) for other in partners]
        if not partners and kind == "LEFT":
            found.append((*one, *NOTHING))
    return found


def stream(name: str, delay: int = 0) -> str:
    return (
        f"CREATE STREAM {name} (k INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECONDS) "
        "WITH (event_time_unit = 's');"
    )


def run(sql: str, steps: list[Rows], *, buckets: int = 2) -> Counter[Any]:
    """Return all changes of the steps and the end of input."""
    harness = Harness(*load_script(sql), buckets=buckets)
    found: Counter[Any] = Counter()
    for step in steps:
        for weight, row in harness.step({name: StepInput(rows) for name, rows in step.items() if rows}).changes:
            found[row] += weight
    for weight, row in harness.step({}, [Event(EventKind.END)]).changes:
        found[row] += weight
    assert min(found.values(), default=0) >= 0
    return +found


window = st.integers(-5, 5).flatmap(lambda low: st.integers(0, 5).map(lambda width: (low, low + width)))


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    first = draw(st.sampled_from(["INNER", "LEFT"]))
    second = draw(st.sampled_from(["INNER", "LEFT"]))
    allowed = not (first == "LEFT" and second == "LEFT")  # that changelog is refused
    return Chain(
        kinds=(first, second),
        changelog=allowed and draw(st.booleans()),
        first=draw(window),
        second=draw(window),
        through=draw(st.sampled_from("ab")),
        buckets=draw(st.integers(1, 3)),
        multi_join=draw(st.sampled_from(["auto", "off"])),
    )


@given(chain=chains(), data=st.data())
def test_a_chain_is_exact_under_disorder_restarts_and_any_cut(chain: Chain, data: st.DataObject) -> None:
    row = st.tuples(st.sampled_from("abc"), st.sampled_from([0, 0, 1, None]), st.integers(-7, 3))
    drawn = data.draw(st.lists(row, min_size=1, max_size=16))
    arrivals = [(name, (k, 2 * i + jitter)) for i, (name, k, jitter) in enumerate(drawn)]
    delays = dict.fromkeys("abc", 0)
    newest: dict[str, int] = {}
    for name, (_, time) in arrivals:
        newest[name] = max(newest.get(name, time), time)
        delays[name] = max(delays[name], newest[name] - time)
    harness = Harness(*load_script(chain.sql(delays)), buckets=chain.buckets)
    so_far: Rows = {name: [] for name in "abc"}
    everything: Rows = {name: [each for n, each in arrivals if n == name] for name in "abc"}
    whole = chain.reference(everything)
    seen: Counter[Any] = Counter()
    while arrivals:
        size = data.draw(st.integers(1, 7))
        step, arrivals = arrivals[:size], arrivals[size:]
        if data.draw(st.booleans()):
            harness.restart()
        fresh = {name: [each for n, each in step if n == name] for name in "abc"}
        for name, rows in fresh.items():
            so_far[name] += rows
        for weight, values in harness.step({n: StepInput(rows) for n, rows in fresh.items() if rows}).changes:
            seen[values] += weight
        assert min(seen.values(), default=0) >= 0
        if chain.changelog:
            assert +seen == chain.reference(so_far)
        else:
            assert seen <= whole, "EMIT FINAL emitted a row that is not final"
    for weight, values in harness.step({}, [Event(EventKind.END)]).changes:
        seen[values] += weight
    assert min(seen.values(), default=0) >= 0
    assert +seen == whole


def by_cuts(sql: str, batches: list[Rows]) -> tuple[Counter[Any], Counter[Any]]:
    """Return the changes of the batches, one after the other, and in a single batch."""
    together: Rows = {}
    for batch in batches:
        for name, rows in batch.items():
            together[name] = together.get(name, []) + rows
    return run(sql, batches), run(sql, [together])


def test_a_windowed_join_over_a_join_without_window_waits_for_its_rows() -> None:
    """The first join can bring a row of any age: the second must neither call it late nor forget its partners."""
    sql = (
        stream("a") + stream("b") + stream("c") + "SELECT a.k, a.ts AS ats, b.ts AS bts, c.ts AS cts FROM a "
        "JOIN b ON a.k = b.k JOIN c ON a.k = c.k AND c.ts BETWEEN a.ts - 5 AND a.ts + 5;"
    )
    batches: list[Rows] = [
        {"a": [(1, 5)], "b": [(2, 5)], "c": [(1, 6)]},
        {"a": [(3, 100)], "b": [(3, 100)], "c": [(3, 100)]},
        {"b": [(1, 101)]},  # meets a@5, whose c@6 lies far behind every frontier
    ]
    cut, whole = by_cuts(sql, batches)
    assert whole == {(1, 5, 101, 6): 1, (3, 100, 100, 100): 1}
    assert cut == whole


@pytest.mark.parametrize("kind", ["RIGHT", "FULL"])
def test_a_trailing_window_says_nothing_of_the_first_stream_that_a_padded_row_lacks(kind: str) -> None:
    """As for left joins (chains.wmt): b without its a still meets c, by the window between b and c."""
    sql = (
        stream("a") + stream("b") + stream("c") + f"SELECT a.k AS ak, b.k AS bk, b.ts AS bts, c.ts AS cts FROM a "
        f"{kind} JOIN b ON a.k = b.k JOIN c ON b.k = c.k WITHIN INTERVAL '10' SECONDS EMIT FINAL;"
    )
    found = run(sql, [{"a": [(2, 5)], "b": [(1, 5), (2, 5)], "c": [(1, 6), (2, 6)]}])
    assert found == {(None, 1, 5, 6): 1, (2, 2, 5, 6): 1}


def test_a_join_without_window_treats_padded_rows_alike_however_batches_are_cut() -> None:
    """A padded row has no time; without a window it must either be stored like any other row or match nothing."""
    sql = (
        stream("a") + stream("b") + stream("c") + "SELECT a.k AS ak, b.k AS bk, b.ts AS bts, c.ts AS cts FROM a "
        "RIGHT JOIN b ON a.k = b.k WITHIN INTERVAL '1' SECOND JOIN c ON b.k = c.k EMIT CHANGELOG;"
    )
    cut, whole = by_cuts(sql, [{"a": [(2, 5)], "b": [(1, 5), (2, 5)]}, {"c": [(1, 6), (2, 6)]}])
    assert cut == whole
