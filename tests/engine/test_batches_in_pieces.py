"""A batch whose rows are more than a step may take is taken in several steps."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from watersmeet.columns import ID, WEIGHT
from watersmeet.engine import cuts, frames
from watersmeet.engine.cuts import in_pieces
from watersmeet.engine.frames import Frame, FrameKind, decode_table, row_frames, side_frames, side_rows
from watersmeet.engine.row_hashes import in_one_order, of_values
from watersmeet.runtime.idle_inputs import IdleWatch
from watersmeet.testing.harness import Harness, StepInput, load_script

SCRIPT = """
CREATE STREAM l (k INT, a INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (k INT, b INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE MUTABLE STREAM c (k INT, v INT) PRIMARY KEY (k);
"""
INNER = "SELECT l.a, r.b FROM l JOIN r ON l.k = r.k WITHIN INTERVAL '5' SECONDS"


def rows(nbytes: int) -> Frame:
    return Frame(0, 0, "", FrameKind.ROWS, 1, bytes(nbytes))


MARK = Frame(0, 0, "", FrameKind.MARK, 7, b"")


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([], 10, [[]]),
        ([4, 4, 4], None, [[4, 4, 4]]),
        ([4, 4, 4], 12, [[4, 4, 4]]),
        ([4, 4, 4], 11, [[4, 4], [4]]),
        ([4, 20, 4], 10, [[4], [20], [4]]),
    ],
)
def test_the_last_piece_has_what_is_not_rows(sizes: list[int], most: int | None, expected: list[list[int]]) -> None:
    pieces = list(in_pieces([MARK, *map(rows, sizes), MARK], most, {}))
    assert [is_last for _, is_last in pieces] == [False] * (len(pieces) - 1) + [True]
    *earlier, last = [piece for piece, _ in pieces]
    assert last[-2:] == [MARK, MARK]
    assert [[len(frame.payload) for frame in piece] for piece in [*earlier, last[:-2]]] == expected


def test_a_row_and_its_retraction_come_in_one_piece() -> None:
    """They are in different frames; rows of the other input have no key to be cut by."""
    hashes = sorted(number * 0x1E3779B97F4A7C15 % 2**63 for number in range(50))
    changes = [pa.table({"h": hashes, WEIGHT: pa.array([weight] * 50, pa.int8())}) for weight in (1, -1)]
    others = [Frame(0, 1, "", FrameKind.ROWS, 1, b"row") for _ in range(10)]
    sent = [MARK, *(frame for table in changes for frame in row_frames(table, bucket=0, input=0)), *others]
    pieces = list(in_pieces(sent, 500, {0: ("h",)}))
    assert [is_last for _, is_last in pieces] == [False] * (len(pieces) - 1) + [True]
    assert [MARK in piece for piece, _ in pieces] == [is_last for _, is_last in pieces]
    changed = [[each for each in piece if each.kind.has_rows and each.input == 0] for piece, _ in pieces]
    tables = [[decode_table(frame.payload) for frame in piece] for piece in changed if piece]
    assert len(tables) > 3
    assert all(len(piece) == 2 and piece[0]["h"] == piece[1]["h"] for piece in tables)
    assert sorted(key for piece in tables for key in piece[0]["h"].to_pylist()) == hashes
    assert sum(frame in others for piece, _ in pieces for frame in piece) == 10
    assert all(sum(frame in others for frame in piece) <= 4 for piece, _ in pieces)


def test_a_row_without_a_key_comes_with_its_retraction_by_its_id() -> None:
    """Rows without an id are never retracted, and need not be together."""
    ids = [f"id {number}" for number in range(20)] + [None] * 20
    table = pa.table({ID: ids, "v": range(40)})
    sent = [frame for rows in (table, table.slice(0, 20)) for frame in row_frames(rows, bucket=0, input=0)]
    pieces = [[decode_table(frame.payload) for frame in piece] for piece, _ in in_pieces(sent, 100, {0: (ID,)})]
    found = [[row for rows in piece for row in rows.to_pylist()] for piece in pieces if piece]
    assert len(found) > 1
    for piece in found:
        named = Counter(row[ID] for row in piece if row[ID] is not None)
        assert set(named.values()) <= {2}
        assert {row["v"] for row in piece if row[ID] is None}
    assert sorted(row["v"] for piece in found for row in piece) == sorted([*range(40), *range(20)])


def test_padded_rows_which_lack_the_key_come_with_their_retractions_by_their_ids() -> None:
    """They may be all rows of a batch."""
    ids = [f"id {number}" for number in range(40)]
    table = pa.table({ID: ids, "k": pa.array([None] * 30 + [7] * 10, pa.int64()), "v": range(40)})
    parts = [*(table[start : start + 4] for start in range(0, 40, 4)), table[:30]]
    sent = [frame for rows in parts for frame in row_frames(rows, bucket=0, input=0)]
    pieces = [[decode_table(frame.payload) for frame in piece] for piece, _ in in_pieces(sent, 100, {0: ("k",)})]
    found = [[row for rows in piece for row in rows.to_pylist()] for piece in pieces if piece]
    assert len(found) > 5
    for piece in found:
        assert set(Counter(row[ID] for row in piece if row["k"] is None).values()) <= {2}
    assert [sum(row["k"] == 7 for row in piece) for piece in found if any(row["k"] for row in piece)] == [10]


def test_every_attempt_takes_the_same_rows_in_each_piece_and_numbers_them_alike() -> None:
    """In whatever frames and order they come, and however the tasks that read a source number its rows."""
    random = Random(1)
    values = [random.choice(["", "x", None, "y" * random.randrange(200)]) for _ in range(300)]
    places = pa.array([number.to_bytes(8) for number in range(300)])
    table = pa.table({"k": [number % 7 for number in range(300)], "v": values, ID: map(str, range(300))})
    attempts = []
    for size in (300, 50, 1):
        order = random.sample(range(300), 300)
        in_task = pa.array([(place % size).to_bytes(8) for place in range(300)])
        rows = table.append_column("s:$seq", pc.binary_join_element_wise(places, in_task, b"")).take(order)
        chunks = [rows[start : start + size] for start in range(0, 300, size)]
        sent = [frame for chunk in chunks for frame in row_frames(chunk, bucket=0, input=0)]
        pieces = list(in_pieces(sent, 2_000, {0: of_values(rows.column_names)}, alike=True))
        tables = [pa.concat_tables(decode_table(frame.payload) for frame in piece) for piece, _ in pieces]
        attempts.append([in_one_order(each)[ID].to_pylist() for each in tables])
    assert len(attempts[0]) > 10
    assert attempts[0] == attempts[1] == attempts[2]


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("many", [0, 1])
def test_no_rows_are_lost_where_those_taken_first_or_last_are_few(many: int, *, alike: bool) -> None:
    sizes = {many: 4_000, 1 - many: 2}
    tables = {input: pa.table({"k": range(rows)}) for input, rows in sizes.items()}
    sent = [frame for input, table in tables.items() for frame in row_frames(table, bucket=0, input=input)]
    pieces = list(in_pieces([MARK, *sent], 40_000, {0: ("k",), 1: ("k",)}, [1], alike=alike))
    inputs = [
        [frame.input for frame in piece if frame is not MARK for _ in range(frame.frontier)] for piece, _ in pieces
    ]
    assert [is_last for _, is_last in pieces] == [False] * (len(pieces) - 1) + [True]
    assert MARK in pieces[-1][0]
    found = [input for piece in inputs for input in piece]
    assert found == sorted(found)
    assert Counter(found) == sizes


@pytest.mark.parametrize("cut_by", [{}, {0: ("k",)}], ids=["by frames", "by a column"])
def test_rows_of_the_side_output_are_cut_too(cut_by: dict[int, tuple[str, ...]]) -> None:
    """A batch may be late as a whole."""
    late = side_rows("late", "l", pa.array(["why"] * 100), pa.array(["{}"] * 100))
    sent = [
        MARK,
        *(frame for number in range(0, 100, 10) for frame in side_frames(late[number : number + 10], bucket=0)),
    ]
    pieces = [piece for piece, _ in in_pieces(sent, 2 * len(sent[1].payload), cut_by)]
    assert [sum(frame.kind is FrameKind.SIDE for frame in piece) for piece in pieces] == [2] * 5
    assert sum(decode_table(frame.payload).num_rows for piece in pieces for frame in piece if frame is not MARK) == 100


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_rows_of_a_piece_stay_in_their_order(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that wait for their step may lie in a file, each with its rows in the order of their pieces."""
    monkeypatch.setattr(cuts, "_ALWAYS_HELD", held)
    table = pa.table({"k": [number % 7 for number in range(400)], "v": range(400)})
    sent = [frame for start in range(0, 400, 40) for frame in row_frames(table[start : start + 40], bucket=0, input=0)]
    pieces = [piece for piece, _ in in_pieces(sent, 1_000, {0: ("k",)})]
    found = [[(frame.frontier, decode_table(frame.payload)) for frame in piece] for piece in pieces]
    assert len([piece for piece in found if piece]) > 3
    assert all(count == rows.num_rows > 0 for piece in found for count, rows in piece)
    values = [[value for _, rows in piece for value in rows["v"].to_pylist()] for piece in found]
    assert all(piece == sorted(piece) for piece in values)
    assert sorted(value for piece in values for value in piece) == list(range(400))


@pytest.mark.parametrize("values", [[0.0, -0.0], [float("nan"), -float("nan")], [None, None], [[1, None], [1, None]]])
def test_what_joins_take_for_equal_is_never_apart(values: list[object]) -> None:
    sent = [frame for each in 9 * values for frame in row_frames(pa.table({"k": [each]}), bucket=0, input=0)]
    ((piece, is_last),) = in_pieces(sent, 1, {0: ("k",)})
    assert (len(piece), is_last) == (18, True)


def test_hot_keys_are_chosen_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in pieces spreads the same keys as one that is taken whole."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
    found = []
    for most in (None, 1):
        harness = Harness(*load_script(f"{SCRIPT}{INNER} SETTINGS skew_rows = 4"), buckets=2, max_step_bytes=most)
        batches = []
        for batch in range(5):
            rows = [(1 if batch < 3 else number, 10 * batch + number, 7 + batch) for number in range(8)]
            outcome = harness.step({name: StepInput(rows) for name in "lr"})
            keys = [sorted(log.read().keys) for log in harness._hot_keys.values()]
            batches.append((sorted(outcome.changes), keys))
        found.append(batches)
    assert found[0] == found[1]
    assert any(any(keys) for _, keys in found[0])


def test_a_silent_input_is_idle_however_many_steps_each_bucket_took() -> None:
    """Only what every bucket has heard since counts, and that is told by the number of its batch."""
    script = f"{SCRIPT}{INNER.replace('JOIN', 'LEFT JOIN')} EMIT FINAL SETTINGS idle_timeout = '1 second'"
    found = []
    for most in (None, 1):
        harness, watch, given = Harness(*load_script(script), buckets=3, max_step_bytes=most), IdleWatch(0.0), []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
            first = {"l": StepInput([(k, k, 10) for k in range(7)]), "r": StepInput([(1, 1, 10)])}
            counters = harness.step(first).counters
            list(watch.events(counters))
            for time in (100, 200, 300):
                events = list(watch.events(counters))
                outcome = harness.step({"l": StepInput([(k, k + time, time) for k in range(7)])}, events)
                counters = outcome.counters
                given.append(sorted(outcome.changes, key=repr))
        found.append(given)
    assert found[0] == found[1]
    assert [len(each) for each in found[0]] == [6, 7, 7]


def test_a_limit_counts_what_is_there_after_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
    script = f"{SCRIPT}{INNER.replace('5', '0')} SETTINGS join_max_buffered_bytes = 400"
    for most in (None, 1):
        harness = Harness(*load_script(script), buckets=1, max_step_bytes=most)
        for time in range(3):
            rows = [(1, number, 10 * time + number) for number in range(8)]
            harness.step({name: StepInput(rows) for name in "lr"})


@pytest.mark.parametrize(
    "select",
    [
        "SELECT k, a FROM l LIMIT 7 EMIT FINAL",
        "SELECT k, a FROM l WHERE k <> 3 LIMIT 4 OFFSET 3 EMIT FINAL",
        "SELECT k, a FROM l LIMIT 25 OFFSET 2 EMIT FINAL",
        "SELECT sum(10 * k + a) AS s FROM (SELECT a, k FROM l LIMIT 7)",
        "SELECT k, v FROM c LIMIT 3",
        f"{INNER} LIMIT 7 EMIT FINAL SETTINGS late_rows = 'late'",
    ],
)
def test_the_first_rows_of_a_batch_are_the_same_in_whatever_steps_it_comes(
    select: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIMIT without ORDER BY: the batches that came first, and of a batch the rows that its columns put first."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
    used, width = ("c", 2) if " c " in select else ("lr" if " r " in select else "l", 3)
    drawn = Random(7)
    batches = [[(k, drawn.randrange(5), batch)[:width] for k in drawn.sample(range(9), 5)] for batch in range(6)]
    if "late" in select:  # the last step has late rows alone
        batches = [[*batch, (7, 7, -99)] for batch in batches]
    found = []
    for most in (None, 1):
        harness, held, states = Harness(*load_script(SCRIPT + select), max_step_bytes=most), Counter[Any](), []
        for batch in batches:
            outcome = harness.step({name: StepInput(batch) for name in used})
            for weight, row in outcome.changes:
                held[row] += weight
                assert weight == 1 or "EMIT FINAL" not in select
            states.append(+held)
            batch.sort(key=lambda row: (row[-1] < 0, drawn.random()))
        found.append(states)
    assert found[0] == found[1]
    assert found[0][0] != found[0][-1]


@pytest.mark.parametrize("most", [None, 1])
def test_what_is_revised_and_comes_back_within_a_batch_keeps_its_place(
    most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of the join below take back a row of the limit and give an equal one with another id."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
    select = "SELECT k, v FROM (SELECT l.k AS k, c.v AS v FROM l JOIN c ON l.k = c.k) LIMIT 2"
    harness = Harness(*load_script(SCRIPT + select), max_step_bytes=most)
    held = Counter[Any]()
    for changes in ([(1, 5)], [(2, 5), (3, 5)], [(1, 6), (1, 5)]):
        inputs = {"c": StepInput(changes), "l": StepInput([] if held else [(k, 0, 1) for k in (1, 2, 3)])}
        for weight, row in harness.step(inputs).changes:
            held[row] += weight
    assert +held == {(1, 5): 1, (2, 5): 1}


def steps_of(select: str, inputs: dict[str, StepInput]) -> int:
    harness = Harness(*load_script(SCRIPT + select), buckets=1, max_step_bytes=1)
    counters = harness.step(inputs).counters
    return sum(value for name, value in counters.items() if ".step_time." in name)


@pytest.mark.parametrize(
    ("select", "steps"),
    [
        (INNER, 2),
        ("SELECT l.k, count(*) AS n FROM l JOIN r ON l.k = r.k WITHIN INTERVAL '5' SECONDS GROUP BY l.k", 3),
        (f"{INNER} SETTINGS max_rows_per_key = 9", 2),
        (f"{INNER.replace('=', '<>')} SETTINGS eviction = 'oldest'", 1),
        (f"{INNER.replace('JOIN', 'LEFT JOIN').replace('=', '<>')} SETTINGS eviction = 'oldest'", 1),
        ("SELECT l.a, r.b FROM l ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k EMIT CHANGELOG", 2),
        ("SELECT l.a, c.v FROM l JOIN c ON l.k = c.k EMIT CHANGELOG", 2),
        ("SELECT l.a, c.k FROM l JOIN c ON l.k = c.v EMIT CHANGELOG", 2),
        ("SELECT l.a, c.k FROM l JOIN c ON l.k < c.v EMIT CHANGELOG", 3),
    ],
    ids=[
        "append-only",
        "with an aggregate of its results",
        "rows are evicted by key",
        "rows are evicted without one, and few stay together",
        "rows with marks are evicted without one, and few stay together",
        "a join as of a time, with corrections",
        "a changing stream",
        "changes of a changing stream",
        "changes of a changing stream without a key",
    ],
)
def test_how_many_steps_a_batch_takes(select: str, steps: int) -> None:
    """Each source brings one frame."""
    sides = {name: StepInput([(1, 1, 7), (6, 2, 7)]) for name in "lr"} | {"c": StepInput([(1, 5)])}
    used = {name: rows for name, rows in sides.items() if f" {name} " in select}
    assert steps_of(select, used) == steps


def test_a_step_of_a_corrected_join_as_of_a_time_has_all_rows_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each step would revise what the one before has given for the same keys."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 100)
    select = "SELECT l.a, r.b FROM l ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k EMIT CHANGELOG"
    harness = Harness(*load_script(SCRIPT + select), buckets=1, max_step_bytes=500)
    rows = [(number % 20, number, number) for number in range(100)]
    changes = harness.step({name: StepInput(rows) for name in "lr"}).changes
    assert sorted(changes) == [(1, (number, number)) for number in range(100)]


def test_equal_rows_stored_by_two_batches_are_two_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step of a batch and the first of the next, which share what they add to a count."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
    harness = Harness(*load_script(f"{SCRIPT}SELECT k, count(*) AS n FROM l GROUP BY k"), buckets=1, max_step_bytes=1)
    counted = [harness.step({"l": StepInput([(7, 0, 1)] * size)}).changes[-1] for size in (1, 2, 3, 1, 1)]
    assert counted == [(1, (7, n)) for n in (1, 3, 6, 7, 8)]
