"""State larger than its memory: it is spilled to disk, and no row is lost (trap 10)."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from watersmeet.engine.bucket_step import _step_errors
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.errors import LimitError
from watersmeet.testing.harness import Harness, StepInput, load_script

SQL = """
CREATE STREAM a (id INT, ts BIGINT, text STRING, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM b (id INT, ts BIGINT, text STRING, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT {columns} FROM a {kind} JOIN b ON a.id = b.id WITHIN INTERVAL '1' HOUR;
"""
ROWS, STEPS = 4_000, 16


def run(kind: str, table_bytes: int | None) -> tuple[Counter[object], int]:
    """The results, and how many bytes were spilled at the fullest."""
    columns = "a.*" if kind == "LEFT ANTI" else "a.id AS x, b.id AS y, a.text AS s, b.text AS t"
    harness = Harness(*load_script(SQL.format(kind=kind, columns=columns)), buckets=1, table_bytes=table_bytes)
    found: Counter[object] = Counter()
    spilled = 0
    for step in range(STEPS):
        rows = range(step * ROWS, (step + 1) * ROWS)
        left = StepInput([(i, step, f"{i:0500d}") for i in rows])
        right = StepInput([(i, step, f"{i:0500d}") for i in rows if i % 3 == 0])
        found.update(row for _, row in harness.step({"a": left, "b": right}).changes)
        connection = harness._working_sets.get("join_1", "0").connection
        ((used,),) = connection.sql("SELECT coalesce(sum(size), 0) FROM duckdb_temporary_files()").fetchall()
        spilled = max(spilled, int(used))
    found.update(row for _, row in harness.step({}, [Event(EventKind.END)]).changes)
    harness.restart()
    return found, spilled


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["FULL", "LEFT ANTI"])
def test_state_larger_than_memory_loses_no_row(kind: str) -> None:
    expected, _ = run(kind, None)
    found, spilled = run(kind, 32_000_000)
    assert found == expected
    assert sum(found.values()) == ROWS * STEPS if kind == "FULL" else sum(found.values()) < ROWS * STEPS
    assert spilled > 0


def test_a_table_that_cannot_be_committed_is_told_by_its_reason() -> None:
    """DuckDB names the transaction, whatever is the matter."""
    failed = "TransactionContext Error: Failed to commit:"
    for reason in (
        "could not allocate block of size 256.0 KiB (6.5 MiB/6.6 MiB used)",
        "failed to pin block of size 8",
    ):
        with pytest.raises(LimitError, match=r"join_1 needs more memory than a worker has: .*"), _step_errors("join_1"):
            raise duckdb.TransactionException(f"{failed} {reason}")
    with pytest.raises(duckdb.TransactionException, match="No space left"), _step_errors("join_1"):
        raise duckdb.TransactionException(f"{failed} No space left on device")


def test_a_batch_that_does_not_fit_is_told_in_one_sentence() -> None:
    with pytest.raises(LimitError, match="a batch of join_1 needs more memory than a worker has"):
        run("FULL", 6_000_000)
