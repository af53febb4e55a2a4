"""Rows of one key that are more than a step may take are divided, in the same way at every attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.columns import ID, TIME, WEIGHT
from watersmeet.engine import cuts, frames
from watersmeet.engine.cuts import in_pieces
from watersmeet.engine.frames import Frame, decode_table, row_frames
from watersmeet.kernels.row_bytes import table_bytes
from watersmeet.testing.harness import Harness, StepInput, load_script

Row = tuple[Any, ...]
MOST = 1_000


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "_NEVER_DIVIDED", 1)


def frames_of(table: pa.Table, seed: int, input: int = 0) -> list[Frame]:
    """The rows in a random order, in frames of random sizes."""
    chance, found = Random(seed), list[Frame]()
    rows = table.take(chance.sample(range(table.num_rows), table.num_rows))
    while rows.num_rows:
        count = chance.randrange(1, 30)
        found += row_frames(rows[:count], bucket=0, input=input)
        rows = rows[count:]
    return found


def pieces(sent: Iterable[Frame], cut_by: dict[int, Sequence[str]], *, divides: bool = True) -> list[pa.Table]:
    """The rows of each piece that has some."""
    found = []
    for piece, _ in in_pieces(sent, MOST, cut_by, divides=divides):
        tables = [decode_table(frame.payload) for frame in piece if frame.kind.has_rows]
        if tables:
            found.append(pa.concat_tables(tables))
    return found


def of_one_key(rows: int) -> pa.Table:
    return pa.table({TIME: [3 * number for number in range(rows)], "k": [7] * rows, "v": range(rows)})


def test_rows_of_a_key_are_divided_by_time_where_none_is_retracted() -> None:
    table = pa.concat_tables([of_one_key(600), pa.table({TIME: range(600), "k": range(100, 700), "v": range(600)})])
    found = pieces(frames_of(table, 1), {0: ("k",)})
    assert sum(piece.num_rows for piece in found) == 1_200
    hot = [piece.filter(piece["k"].combine_chunks().to_numpy() == 7) for piece in found]
    spans = sorted((min(each[TIME].to_pylist()), max(each[TIME].to_pylist())) for each in hot if each.num_rows)
    assert len(spans) > 10
    assert all(until < since for (_, until), (since, _) in pairwise(spans))
    assert all(table_bytes(each) <= 1.3 * MOST for each in hot)
    others = Counter(key for piece in found for key in set(piece["k"].to_pylist()) - {7})
    assert set(others.values()) == {1}, "the rows of other keys stay together"


def test_rows_of_one_time_are_divided_by_their_values() -> None:
    table = of_one_key(300).set_column(0, TIME, pa.array([5] * 300, pa.int64()))
    found = pieces(frames_of(table, 2), {0: ("k",)})
    assert len(found) > 5
    assert sorted(value for piece in found for value in piece["v"].to_pylist()) == list(range(300))


def test_rows_without_a_time_are_taken_too() -> None:
    table = of_one_key(300)
    undated = table.set_column(0, TIME, pa.array([None, *range(299)], pa.int64()))
    none = table.set_column(0, TIME, pa.nulls(300, pa.int64()))
    for rows in (undated, none):
        found = pieces(frames_of(rows, 3), {0: ("k",)})
        assert len(found) > 5
        assert sorted(value for piece in found for value in piece["v"].to_pylist()) == list(range(300))


@pytest.mark.parametrize("has_ids", [True, False], ids=["by ids", "by values"])
def test_a_row_and_its_retraction_stay_together(has_ids: bool) -> None:
    """Their times may differ."""
    table = of_one_key(200)
    if has_ids:
        table = table.append_column(ID, pa.array([f"id {number}" for number in range(200)]))
    taken_back = table.set_column(0, TIME, pa.array([0] * 200, pa.int64()))
    weighted = [
        rows.append_column(WEIGHT, pa.array([weight] * 200, pa.int8()))
        for rows, weight in ((table, 1), (taken_back, -1))
    ]
    found = pieces(frames_of(pa.concat_tables(weighted), 4), {0: ("k",)})
    assert len(found) > 5
    for piece in found:
        sums = Counter[int]()
        for value, weight in zip(piece["v"].to_pylist(), piece[WEIGHT].to_pylist(), strict=True):
            sums[value] += weight
        assert not any(sums.values())


@pytest.mark.parametrize("columns", [("k",), ()], ids=["a key", "without keys"])
def test_every_attempt_divides_alike(columns: Sequence[str]) -> None:
    """In whatever order rows arrive, and in whatever frames; partners of both inputs that are close in time meet."""
    found = []
    for seed in range(4):
        sent = [*frames_of(of_one_key(300), seed), *frames_of(of_one_key(300), seed + 50, input=1)]
        of_seed = pieces(sent, {0: columns, 1: columns})
        found.append({frozenset(piece["v"].to_pylist()) for piece in of_seed})
        assert all(len(piece) == 2 * len(set(piece["v"].to_pylist())) for piece in of_seed)
    assert len(found[0]) > 5
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("columns", [("k",), ()], ids=["a key", "without keys"])
def test_keys_stay_whole_where_their_order_counts(columns: Sequence[str]) -> None:
    (piece,) = pieces(frames_of(of_one_key(300), 5), {0: columns}, divides=False)
    assert piece.num_rows == 300


SCRIPT = """
CREATE STREAM l (id INT, k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (id INT, k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE MUTABLE STREAM c (id INT, k INT, v INT) PRIMARY KEY (id);
"""
LIMITS = "SETTINGS join_max_buffered_bytes = 9000"
QUERIES = {
    "evicting left": f"SELECT l.id, r.id AS n FROM l LEFT JOIN r ON l.k = r.k WITHIN INTERVAL '9' SECONDS {LIMITS},"
    " eviction = 'oldest'",
    "evicting anti": "SELECT l.id FROM l ANTI JOIN r ON l.k = r.k AND l.id < r.id WITHIN INTERVAL '9' SECONDS"
    f" {LIMITS}, eviction = 'lru'",
    "evicting full, without keys": "SELECT l.id, r.id AS n FROM l FULL JOIN r ON l.k < r.k WITHIN INTERVAL '1' SECONDS"
    f" {LIMITS}, eviction = 'oldest'",
    "evicting semi, without keys": "SELECT l.id FROM l SEMI JOIN r ON l.k < r.k WITHIN INTERVAL '1' SECONDS"
    f" {LIMITS}, eviction = 'pressure'",
    "asof": "SELECT l.id, r.id AS n FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k EMIT CHANGELOG",
    "groups": "SELECT c.k, count(*) AS n, max(l.id) AS m FROM l JOIN c ON l.id = c.id GROUP BY c.k",
    "over": "SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY id) AS n"
    " FROM (SELECT c.k, l.id FROM l JOIN c ON l.id = c.id) QUALIFY n <= 3",
    "join of a join": "SELECT l.id, c.v, r.id AS n FROM l JOIN c ON l.id = c.id LEFT JOIN r ON r.k = c.k",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", QUERIES)
def test_results_are_those_of_keys_that_stay_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 200)
    found = []
    for least in (1, 1 << 20):
        monkeypatch.setattr(cuts, "_NEVER_DIVIDED", least)
        chance, total = Random(6), Counter[tuple[Any, ...]]()
        harness = Harness(*load_script(SCRIPT + QUERIES[name]), buckets=2, max_step_bytes=600)
        for step in range(4):
            times = [step * 40 + chance.randrange(40) for _ in range(60)]
            keys = [1 if chance.random() < 0.8 else chance.randrange(9) for _ in times]
            rows = [(step * 60 + place, key, time) for place, (key, time) in enumerate(zip(keys, times, strict=True))]
            changed = [(chance.randrange(240), chance.choice((1, 1, 2)), chance.randrange(5)) for _ in range(40)]
            given = {"l": StepInput(rows[::2]), "r": StepInput(rows[1::2]), "c": StepInput(changed)}
            reads = {part.input.stream.name for part in harness.plan.streams}
            outcome = harness.step({stream: each for stream, each in given.items() if stream in reads})
            for weight, row in outcome.changes:
                total[tuple(row)] += weight
        found.append(total)
    assert found[0] == found[1] != Counter()
