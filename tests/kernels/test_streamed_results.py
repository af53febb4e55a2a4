"""Results that are made piece by piece while they are taken, as those of many new rows are."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels import test_multi_way, test_shared_stores
from tests.kernels.models import STREAMS, cut, rows_of, shapes
from tests.kernels.test_interval_properties import check
from tests.support.little_memory import give_little_memory
from tests.support.reference import Kind
from watersmeet.errors import WatersmeetError
from watersmeet.kernels import api
from watersmeet.kernels.aggregate import final_step
from watersmeet.kernels.asof import changelog as asof_changelog
from watersmeet.kernels.changelog import join as changelog_join
from watersmeet.state import working_set
from watersmeet.state.working_sets import WorkingSets
from watersmeet.testing.harness import Harness, StepInput, load_script
from watersmeet.testing.notation import parse_cases
from watersmeet.testing.runner import run_case

CASES = Path(__file__).parent.parent / "cases"
OFTEN = ("inner", "multi_way", "row_bounds", "changing", "best_rows", "final_aggregates", "asof")
OTHERS = sorted({path.stem for path in CASES.glob("*.wmt")} - {*OFTEN})
PAGES = [*OFTEN, *(pytest.param(page, marks=pytest.mark.slow) for page in OTHERS)]


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is streamed, in pieces of two rows."""
    stream_all(monkeypatch)


def stream_all(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(api, "MANY_ROWS", 0)
    patched.setattr(api, "MANY_RESULTS", 0)
    patched.setattr(api, "PAIRS_PER_ROW", 0)
    patched.setattr(working_set, "_PIECE_ROWS", 2)
    patched.setattr(final_step, "_PART_BYTES", 1)
    patched.setattr(asof_changelog, "_PART_BYTES", 100)
    give_little_memory(patched)


@pytest.mark.sample(4)
@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("page", PAGES)
def test_cases_have_the_same_results(page: str) -> None:
    path = CASES / f"{page}.wmt"
    failures = [failure.report for case in parse_cases(path.read_text(), path.name) if (failure := run_case(case))]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("page", ["changing", "whole_queries"])
def test_changes_that_are_gathered_before_they_are_grouped_are_the_same(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog_join, "_MANY_PARTS", 0)
    give_little_memory(monkeypatch)
    test_cases_have_the_same_results(page)


@given(query=test_multi_way.queries(), data=st.data())
def test_joins_of_many_streams_have_the_same_results(query: test_multi_way.Query, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patched:
        stream_all(patched)
        test_multi_way.check(query, data)


@pytest.mark.usefixtures("in_pieces")
def test_all_permutations_of_queries_that_share_stores() -> None:
    test_shared_stores.test_all_permutations_of_arrival_in_all_cuts(restarts=True)


SCRIPT = """
CREATE STREAM l (k INT, a INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM r (k INT, b INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT l.a, r.b FROM l JOIN r ON l.k = r.k WITHIN INTERVAL '5' SECONDS;
"""


@pytest.mark.usefixtures("in_pieces")
def test_groups_that_end_at_one_time_come_in_parts() -> None:
    """Each group once, with what several steps have stored of it."""
    windows = "TUMBLE(l, ts, INTERVAL '10' SECONDS)"
    select = f"SELECT k, count(*) AS n, max(a) AS most FROM {windows} GROUP BY k, window_end EMIT FINAL"
    harness = Harness(*load_script(f"{SCRIPT.partition('SELECT')[0]}{select}"), buckets=1)
    for step in range(3):
        assert harness.step({"l": StepInput([(k, 10 * k + step, step) for k in range(9)])}).changes == []
    changes = harness.step({"l": StepInput([(99, 0, 25)])}).changes
    assert sorted(changes) == [(1, (k, 3, 10 * k + 2)) for k in range(9)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["", "LEFT", "FULL"])
def test_a_hot_key_gives_all_its_pairs(kind: str) -> None:
    """More than 4,096 new rows, which have more than 131,072 pairs: several pieces."""
    harness = Harness(*load_script(SCRIPT.replace("JOIN", f"{kind} JOIN")), buckets=1)
    counts = {"l": 50, "r": 4_100}
    sides = {name: StepInput([(1, number, 7) for number in range(count)]) for name, count in counts.items()}
    outcome = harness.step(sides)
    assert {row for _, row in outcome.changes} == set(product(range(50), range(4_100)))
    assert len(outcome.changes) == outcome.count("matched") == 50 * 4_100
    assert len(harness.step({"r": StepInput([(1, -1, 8)])}).changes) == 50


@pytest.mark.parametrize("kind", ["", "LEFT"])
@pytest.mark.parametrize("most", [40, 100, 101])
def test_few_rows_of_a_hot_key_give_all_their_pairs(kind: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made at once up to a limit, and piece by piece beyond."""
    monkeypatch.setattr(api, "MANY_RESULTS", most)
    harness = Harness(*load_script(SCRIPT.replace("JOIN", f"{kind} JOIN")), buckets=1)
    harness.step({"r": StepInput([(1, number, 7) for number in range(50)])})
    outcome = harness.step({"l": StepInput([(1, number, 7) for number in range(2)])})
    assert {row for _, row in outcome.changes} == set(product(range(2), range(50)))
    assert len(outcome.changes) == outcome.count("matched") == 100


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["left", "right", "full"])
@given(data=st.data())
def test_pairs_of_a_table_in_pieces_are_the_same(kind: Kind, data: st.DataObject) -> None:
    """They are kept in a table, as they are not too many, and leave it in pieces."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "MANY_ROWS", 0)
        patched.setattr(api, "MANY_RESULTS", 0)
        patched.setattr(api, "PAIRS_PER_ROW", 1_000_000)
        shape = data.draw(shapes(kind))
        delays = {name: data.draw(st.integers(0, 3)) for name in STREAMS}
        check(shape, delays, data.draw(st.composite(cut)(data.draw(st.composite(rows_of)()))))


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["left", "right", "full"])
@given(data=st.data())
def test_outer_joins_have_the_same_results(kind: Kind, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patched:
        stream_all(patched)
        shape = data.draw(shapes(kind))
        delays = {name: data.draw(st.integers(0, 3)) for name in STREAMS}
        check(shape, delays, data.draw(st.composite(cut)(data.draw(st.composite(rows_of)()))))


@pytest.mark.usefixtures("in_pieces")
def test_an_expression_that_fails_midway_is_an_error_and_leaves_nothing() -> None:
    """The sum overflows for the last of four rows; after a restart without it, all is as before."""
    sums = SCRIPT.replace("l.k = r.k", "l.k = r.k AND l.a + r.b > 0")
    harness = Harness(*load_script(sums), buckets=1)
    harness.step({"l": StepInput([(1, 1, 7)])})
    good = [(1, number, 7) for number in (1, 2, 3)]
    with pytest.raises(WatersmeetError, match="an expression of join_1 cannot be evaluated"):
        harness.step({"r": StepInput([*good, (1, 2**31 - 1, 7)])})
    harness.restart()
    assert {row for _, row in harness.step({"r": StepInput(good)}).changes} == {(1, 1), (1, 2), (1, 3)}


@pytest.mark.usefixtures("in_pieces")
def test_a_result_that_is_given_up_midway_leaves_nothing() -> None:
    harness = Harness(*load_script(SCRIPT.replace("JOIN", "LEFT JOIN")), buckets=1)
    harness.step({"l": StepInput([(1, number, 7) for number in range(200)])})
    (number,) = (place for place, part in enumerate(harness.plan.inputs) if part.input.stream.name == "r")
    rows = StepInput([(1, number, 7) for number in range(60)])
    frames = harness._pack(harness.plan.inputs[number], rows, harness._tasks.packs[number])
    outboxes = harness._bucket(0, harness._operators[0]).outboxes(frames)
    next(outboxes)
    outboxes.close()  # type: ignore[attr-defined]
    connection = harness._working_sets.get("join_1", "0").connection
    assert connection.sql("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall() == []
    again = harness._bucket(0, harness._operators[0]).outboxes(frames)
    assert sum(rows.num_rows for outbox in again for rows in outbox.changes.values()) == 200 * 60


def test_an_error_in_the_midst_of_a_result_is_duckdbs() -> None:
    """Arrow raises an OSError with its text."""
    rows = WorkingSets(keyed_bytes=1 << 30).get("q", "1")
    many = rows.register(pa.table({"n": ["1"] * 300_000 + ["x"]}))
    pieces = rows.stream(f"SELECT CAST(n AS INTEGER) AS n FROM {many}")
    with pytest.raises(duckdb.ConversionException, match="Could not convert string 'x'"):
        assert sum(piece.num_rows for piece in pieces) < 300_000
    assert rows.query("SELECT 1 AS n")["n"].to_pylist() == [1]
    rows.release()


def test_a_result_takes_no_more_memory_than_a_piece() -> None:
    """Half a gigabyte of pairs, of which Arrow never holds more than a hundredth."""
    rows = WorkingSets(keyed_bytes=1 << 30).get("q", "0")
    many = rows.register(pa.table({"n": pa.array(range(8_000), pa.int64())}))
    gc.collect()
    before = pa.total_allocated_bytes()
    pieces: Iterator[pa.Table] = rows.stream(f"SELECT l.n AS l, r.n AS r FROM {many} AS l, {many} AS r")
    counted = 0
    for piece in islice(pieces, 250):
        counted += piece.num_rows
        assert pa.total_allocated_bytes() - before < 16 << 20
    assert counted > 20_000_000
    pieces.close()  # type: ignore[attr-defined]
    rows.release()
