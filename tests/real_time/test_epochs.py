"""Which run and which files an epoch begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.runtime.real_time import epochs
from watersmeet.runtime.real_time.epochs import Epochs, RunStart, next_run


@pytest.mark.parametrize(
    ("firsts", "committed", "expected"),
    [
        ([], None, (0, 0, None)),
        ([0], None, (1, 0, None)),  # the first run committed nothing
        ([0], 3, (1, 4, 0)),
        ([0, 4], 3, (2, 4, 0)),  # the second run committed nothing
        ([0, 4], 4, (2, 5, 1)),
        ([0, 4, 4, 4], 9, (4, 10, 3)),
        ([0, 2, 5], 4, (3, 5, 1)),
    ],
)
def test_a_run_begins_after_the_last_commit(
    firsts: list[int], committed: int | None, expected: tuple[int, int, int | None]
) -> None:
    assert next_run([RunStart(first=first) for first in firsts], committed) == expected


def test_only_files_of_committed_runs_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = 0
    monkeypatch.setattr(epochs, "batch_id", lambda: current)

    def put(of: Epochs, value: bytes) -> None:
        store = of.open("inputs", "0")
        store.put("v", value)
        of.write(store)

    first = Epochs(str(tmp_path), 0, 0, None)
    put(first, b"0 of run 0")
    current = 1
    assert first.open("inputs", "0").get("v") == b"0 of run 0"
    put(first, b"1 of run 0")  # Spark does not commit this epoch
    second = Epochs(str(tmp_path), *next_run([RunStart(first=0)], committed=0))
    assert second.open("inputs", "0").get("v") == b"0 of run 0"
    put(second, b"1 of run 1")
    put(first, b"1 of run 0, by a task that is still ending")
    current = 2
    assert second.open("inputs", "0").get("v") == b"1 of run 1"
    third = Epochs(str(tmp_path), *next_run([RunStart(first=0), RunStart(first=1)], committed=1))
    assert third.open("inputs", "0").get("v") == b"1 of run 1"
