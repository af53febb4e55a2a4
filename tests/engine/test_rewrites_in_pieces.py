"""State that is rewritten is read in parts, and written as segments of about the bytes of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.support.little_memory import give_little_memory
from watersmeet.engine import segment_log
from watersmeet.kernels import api
from watersmeet.kernels.aggregate import step as aggregate_step
from watersmeet.kernels.asof import step as asof_step
from watersmeet.kernels.changelog import stored_rows
from watersmeet.state import small_segments, working_set
from watersmeet.state.mapped_file import MappedFile
from watersmeet.testing.harness import Harness, StepInput, load_script

KEYS, ROUNDS, MOST = 9_000, 4, 70_000  # DuckDB makes 2,048 rows at a time
STREAMS = "".join(
    f"CREATE {kind}STREAM {name} (id INT, k INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts){key} "
    "WITH (event_time_unit = 's');"
    for name, kind, key in (
        ("a", "", ""),
        ("l", "MUTABLE ", " PRIMARY KEY (id)"),
        ("r", "MUTABLE ", " PRIMARY KEY (id)"),
    )
)
QUERIES = {
    "newest rows": "SELECT id, v FROM l EMIT CHANGELOG",
    "counts of partners": "SELECT l.id, l.v, r.v AS w FROM l LEFT JOIN r ON l.k = r.k EMIT CHANGELOG",
    "groups": "SELECT id, count(*) AS n, max(v) AS v FROM a GROUP BY id EMIT CHANGELOG",
    "versions": "SELECT a.id, r.v FROM a LEFT JOIN r FOR SYSTEM_TIME AS OF a.ts ON a.id = r.id",
}


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is rewritten early, in parts and pieces that are small where memory is, and results are made as they go."""
    for module, name, value in (
        (stored_rows, "MIN_DEAD", KEYS),
        (aggregate_step, "MIN_SETTLED", KEYS),
        (asof_step, "MIN_SETTLED", KEYS),
        (api, "MANY_ROWS", 0),
        (small_segments, "SMALL_ROWS", 10),
        (working_set, "_PART_BYTES", MOST),
        (working_set, "_PIECE_ROWS", 1),
    ):
        monkeypatch.setattr(module, name, value)


def changes_and_state(query: str, most: int | None) -> tuple[list[Counter[object]], int]:
    """The net changes of each round, in which every key comes anew, and how many rows are stored in the end."""
    harness = Harness(*load_script(STREAMS + query), buckets=1, max_step_bytes=most)
    found, stored = [], 0
    for number in range(ROUNDS):
        rows = StepInput([(id, id // 2, number * (id % 3), 10 * number) for id in range(KEYS)])
        outcome = harness.step({name: rows for name in "alr" if harness.inputs_of(name)})
        net: Counter[object] = Counter()
        for weight, row in outcome.changes:
            net[row] += weight
        found.append(Counter({row: n for row, n in net.items() if n}))
        stored = outcome.count("state_rows")
    return found, stored


@pytest.mark.sample(2)
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_what_is_rewritten_in_pieces_is_the_same(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[tuple[int, bool]] = []
    set_aside = segment_log._set_aside

    def noted(rows: api.Rows, most: int | None) -> Iterator[tuple[pa.Table, MappedFile | None]]:
        for piece, file in set_aside(rows, most):
            pieces.append((piece.nbytes, file is not None))
            yield piece, file

    monkeypatch.setattr(segment_log, "_set_aside", noted)
    expected, stored = changes_and_state(query, None)
    assert any(expected)
    give_little_memory(monkeypatch)
    whole = max(nbytes for nbytes, _ in pieces)
    pieces.clear()
    assert changes_and_state(query, MOST) == (expected, stored)
    in_files = [nbytes for nbytes, is_in_file in pieces if is_in_file]
    assert max(in_files) < min(whole, 3 * MOST)
    assert len(in_files) > ROUNDS


@pytest.mark.parametrize(("most", "rows"), [(None, [70]), (1, [10] * 7), (200, [20, 20, 20, 10]), (249, [30, 30, 10])])
def test_a_segment_has_the_pieces_that_fit(most: int | None, rows: list[int]) -> None:
    """Of 80 bytes each."""
    pieces = iter([pa.table({"n": pa.array(range(10), pa.int64())}) for _ in range(7)])
    assert [part.num_rows for part, _ in segment_log._set_aside(pieces, most)] == rows
