"""Rows that were found last are in memory: lookups find what they would without, within bounds, and read less."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.columns import TIME
from watersmeet.state import keyed_segments
from watersmeet.state.arrow_budget import ArrowBudget
from watersmeet.state.found_rows import FoundRows
from watersmeet.state.hot_bounds import HotBounds
from watersmeet.state.keyed_segments import KeyedSegments
from watersmeet.state.segments import Segment

MOST = 1_000_000
#: DuckDB returns some types as others, so the rows of a relation come in two schemas.
TEXTS = (pa.string(), pa.large_string())
HOT = [1, 2, 3]
CONNECTION = duckdb.connect()


def table(keys: Iterable[int], text: pa.DataType = TEXTS[0]) -> pa.Table:
    keys = list(keys)
    texts = pa.array([f"{key}" * (key % 5) if key % 3 else None for key in keys], text)
    return pa.table({TIME: pa.array(keys, pa.int64()), "k": pa.array(keys, pa.int64()), "text": texts})


def segment(number: int, rows: pa.Table) -> Segment:
    return Segment(f"{number}-left", "left", rows.num_rows, rows.nbytes, 0, 0, 1)


def taken(budget: ArrowBudget) -> int:
    return budget.max_bytes - budget.left


class Held:
    """A relation whose segments are in files, with the rows found last; ``read`` counts the rows read from files."""

    def __init__(self, bounds: HotBounds, budget: ArrowBudget | None = None) -> None:
        self.budget = budget or ArrowBudget(MOST)
        self.found = FoundRows(self.budget)
        self.found.limit(bounds)
        self.rows = KeyedSegments(CONNECTION, "rows", self.budget, self.found)
        self.tables: dict[str, pa.Table] = {}
        self._numbers = count()
        self.read = 0

    def add(self, rows: pa.Table, *, in_memory: bool = False) -> str:
        new = segment(next(self._numbers), rows)
        self.rows.add(new, rows, in_memory=in_memory)
        self.tables[new.id] = rows
        return new.id

    def remove(self, id: str) -> None:
        self.rows.remove(id)
        del self.tables[id]

    def find(self, keys: Iterable[int]) -> list[tuple[object, ...]]:
        probes = pa.table({"k": pa.array(keys, pa.int64())})
        read = self.rows._read

        def counting(id: str, rows: pa.Array) -> pa.Table:
            self.read += len(rows)
            return read(id, rows)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.rows, "_read", counting)
            tables = self.rows.find(["k"], probes, list(self.tables), MOST)
        assert tables is not None
        return rows_of(tables)


def rows_of(tables: Iterable[pa.Table]) -> list[tuple[object, ...]]:
    rows = (row for each in tables for row in each.to_pylist())
    return sorted(((row["k"], row[TIME], row["text"] or "") for row in rows), key=str)


KEYS = st.lists(st.integers(0, 30), min_size=1, max_size=12)


@given(data=st.data(), rows=st.none() | st.integers(0, 20), nbytes=st.none() | st.integers(0, 900))
@settings(max_examples=60)
def test_lookups_find_the_same_rows_whatever_is_held(data: st.DataObject, rows: int | None, nbytes: int | None) -> None:
    """Segments come, go and move to files; places are given anew; the budget runs out; bounds hold throughout."""
    bounds = HotBounds(rows, nbytes)
    held = Held(bounds, ArrowBudget(data.draw(st.sampled_from([300, 2_000, MOST]))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_segments, "MAX_PLACES", 60)
        for _ in range(data.draw(st.integers(1, 25))):
            live = sorted(held.tables)
            action = data.draw(st.sampled_from(["find", "find", "add", "remove", "move"]))
            if action == "find":
                keys = data.draw(KEYS)
                expected = [each.filter(pa.array(np.isin(each["k"], keys))) for each in held.tables.values()]
                assert held.find(keys) == rows_of(expected)
            elif action == "add" or not live:
                if sum(each.num_rows for each in held.tables.values()) > 40:
                    continue  # all rows together must have places
                text = data.draw(st.sampled_from(TEXTS))
                held.add(table(data.draw(KEYS), text), in_memory=data.draw(st.booleans()))
            elif action == "remove":
                held.remove(data.draw(st.sampled_from(live)))
            else:
                held.rows.move_to_file(data.draw(st.sampled_from(live)))
            assert bounds.allow(held.found.rows, held.found.nbytes)
            assert held.budget.left >= 0
    for id in list(held.tables):
        held.remove(id)
    held.rows.close()
    assert (held.found.rows, held.found.nbytes, taken(held.budget)) == (0, 0, 0)


def test_rows_are_read_once() -> None:
    held = Held(HotBounds(rows=100))
    for text in TEXTS:
        held.add(table(range(10), text))
    before = taken(held.budget)
    first = held.find([1, 2, 3])
    assert (held.read, held.found.rows) == (6, 6)
    assert held.find([1, 2, 3]) == first
    assert held.read == 6
    held.find([3, 4])
    assert held.read == 8
    # what is held is in the budget, beside the index that the first lookup made
    index = sum(run._taken for each in held.rows._indexes.values() for run in each._runs)
    assert taken(held.budget) - before == index + held.found.nbytes


def test_rows_in_memory_are_not_held_again() -> None:
    held = Held(HotBounds(rows=100))
    id = held.add(table(range(10)), in_memory=True)
    held.find([1])
    assert (held.read, held.found.rows) == (0, 0)
    held.rows.move_to_file(id)
    held.find([1])
    assert (held.read, held.found.rows) == (1, 1)


@pytest.mark.parametrize("bounds", [HotBounds(rows=60), HotBounds(nbytes=60 * 40), HotBounds(rows=60, nbytes=1 << 20)])
def test_rows_in_use_stay_while_others_pass(bounds: HotBounds) -> None:
    held = Held(bounds)
    held.add(table(range(500)))
    held.find(HOT)
    for key in range(10, 300):
        before = held.read
        held.find([*HOT, key])
        assert held.read == before + 1  # only the row that was never found
    before = held.read
    held.find([10, 20, 30])
    assert held.read == before + 3  # found long ago


def test_a_lookup_larger_than_the_bounds_leaves_a_part_of_its_rows() -> None:
    held = Held(HotBounds(rows=20))
    held.add(table(range(500)))
    held.find(range(500))
    assert 5 <= held.found.rows <= 10
    before = held.read
    held.find(range(500))
    assert before < held.read < before + 500


@pytest.mark.parametrize("bounds", [HotBounds(rows=0), HotBounds(rows=1), HotBounds(nbytes=10), None])
def test_no_row_is_held_where_none_may_be(bounds: HotBounds | None) -> None:
    held = Held(HotBounds(rows=1))
    held.found = held.rows._found = FoundRows(held.budget)
    if bounds is not None:
        held.found.limit(bounds)
    held.add(table(range(10)))
    for _ in range(2):
        assert len(held.find([1, 2])) == 2
    assert (held.read, held.found.rows) == (4, 0)


def test_rows_of_removed_segments_leave_at_once() -> None:
    held = Held(HotBounds(nbytes=1 << 30))
    ids = [held.add(table(range(5_000))) for _ in range(2)]
    held.find(range(5_000))
    assert held.found.rows == 10_000
    before, allocated = held.found.nbytes, pa.total_allocated_bytes()
    held.remove(ids[0])
    assert held.found.rows == 5_000
    assert allocated - pa.total_allocated_bytes() > before // 3
    read = held.read
    assert len(held.find(range(5_000))) == 5_000
    assert held.read == read


def test_relations_share_the_bounds_and_not_their_places() -> None:
    held = Held(HotBounds(rows=40))
    held.add(table(range(100)))
    other = KeyedSegments(CONNECTION, "other", held.budget, held.found)
    rows = table(range(100, 200))
    other.add(segment(0, rows), rows, in_memory=False)
    for start in range(0, 100, 5):
        held.find(range(start, start + 5))
        keys = pa.table({"k": pa.array(range(100 + start, 105 + start), pa.int64())})
        for _ in range(2):
            found = other.find(["k"], keys, ["0-left"], MOST)
            assert [row[0] for row in rows_of(found or [])] == list(range(100 + start, 105 + start))
        assert 0 < held.found.rows <= 40
    other.remove("0-left")
    assert all(run.owner == "rows" for run in (*held.found._young, *held.found._old))


def test_a_lookup_looks_into_few_runs() -> None:
    held = Held(HotBounds(rows=10_000))
    held.add(table(range(900)))
    for start in range(0, 900, 3):
        held.find(range(start, start + 3))
    sizes = [len(each) for each in held.found._young]
    assert sum(sizes) == 900
    assert all(larger > 2 * smaller for larger, smaller in pairwise(sizes))


def test_rows_are_dropped_when_places_are_given_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_segments, "MAX_PLACES", 12)
    held = Held(HotBounds(rows=100))
    first = held.add(table(range(5)))
    held.add(table(range(5, 10)))
    assert [row[0] for row in held.find([7])] == [7]
    held.remove(first)
    held.add(table(range(10, 15)))  # what stood at the places 5 to 9 is at 0 to 4, and these are at 5 to 9
    assert {row[0] for row in held.find([7, 12])} == {7, 12}
