"""Copies of segments for other workers: a cache beside the state store, which holds every segment."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.columns import TIME, WEIGHT
from watersmeet.engine import segment_log
from watersmeet.engine.bucket_step import OpenBucket
from watersmeet.state.local_copies import LocalCopies
from watersmeet.state.segments import Segment, read_segment
from watersmeet.state.store import Store
from watersmeet.testing.harness import Harness, StepInput, load_script

ROWS = pa.table({TIME: pa.array([1, 2], pa.int64()), WEIGHT: pa.array([1, -1], pa.int8())})


def test_a_copy_is_there_until_it_is_removed(tmp_path: Path) -> None:
    one, other = LocalCopies(str(tmp_path), "join-0"), LocalCopies(str(tmp_path), "join-1")
    one.put("1-left-a", ROWS)
    mapped = LocalCopies(str(tmp_path), "join-0").get("1-left-a")
    assert mapped == ROWS
    assert other.get("1-left-a") is None
    one.remove("1-left-a")
    one.remove("1-left-a")
    assert one.get("1-left-a") is None
    assert mapped == ROWS  # a mapped table stays


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"no Arrow at all"])
def test_a_file_that_is_no_copy_is_none(tmp_path: Path, content: bytes) -> None:
    copies = LocalCopies(str(tmp_path), "join-0")
    copies.put("1-left-a", ROWS)
    (tmp_path / "join-0" / "1-left-a.arrow").write_bytes(content)
    assert copies.get("1-left-a") is None


def test_where_nothing_can_be_written_there_are_no_copies(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    copies = LocalCopies(str(tmp_path / "file"), "join-0")
    copies.put("1-left-a", ROWS)
    assert copies.get("1-left-a") is None


def run(copies: bool, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[Counter[Any], int]:
    """Return the results of a join whose worker forgets everything before each step, and the segments read."""
    read = 0

    def count(store: Store, segment: Segment) -> pa.Table:
        nonlocal read
        read += 1
        return read_segment(store, segment)

    def with_copies(spec: Any, bucket: int, store: Any, working_set: Any, **named: Any) -> OpenBucket:
        local = LocalCopies(str(folder), f"{spec.name}-{bucket}") if copies else None
        return OpenBucket(spec, bucket, store, working_set, local, **named)

    with monkeypatch.context() as patched:
        patched.setattr(segment_log, "read_segment", count)
        patched.setattr("watersmeet.testing.harness.OpenBucket", with_copies)
        harness = Harness(
            *load_script(
                "CREATE MUTABLE STREAM l (k INT, v INT) PRIMARY KEY (k);"
                "CREATE MUTABLE STREAM r (k INT, w INT) PRIMARY KEY (k);"
                "SELECT l.k, v, w FROM l FULL JOIN r ON l.k = r.k EMIT CHANGELOG"
            )
        )
        rng = random.Random(3)
        found: Counter[Any] = Counter()
        for _ in range(12):
            harness.restart()
            inputs = {side: StepInput([(rng.randrange(30), rng.randrange(9)) for _ in range(8)]) for side in "lr"}
            for weight, row in harness.step(inputs).changes:
                found[row] += weight
    return +found, read


@pytest.mark.slow
def test_a_worker_that_is_behind_takes_copies_and_needs_no_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected, read = run(False, monkeypatch, tmp_path)
    assert read > 0
    assert run(True, monkeypatch, tmp_path) == (expected, 0)
