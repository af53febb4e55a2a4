"""Which run and which files an epoch begins with, and which results a consumer keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.real_time.topic_results import Result, without_repeats
from watersmeet.runtime.real_time import epochs
from watersmeet.runtime.real_time.epochs import Epochs, RunStart, named_runs, next_run


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


def test_runs_with_the_same_first_epoch_are_named_once() -> None:
    assert named_runs([RunStart(first=first) for first in (0, 0, 4, 4, 5)]) == {1: 0, 3: 4, 4: 5}
    assert len(named_runs([RunStart(first=first) for first in range(20)])) == 8


def test_a_run_that_gave_nothing_voids_what_came_before() -> None:
    """Run 1 gives a row in epoch 1 and fails. Run 2 commits epoch 1 without having read the row; run 3 reads it."""
    starts = [RunStart(first=first) for first in (0, 1, 2)]

    def result(run: int, epoch: int) -> Result:
        named = " ".join(f"{number}:{first}" for number, first in named_runs(starts[: run + 1]).items())
        return Result(None, {"id": 1}, {"_run": str(run), "_batch": str(epoch), "_runs": named})

    assert without_repeats([result(0, 1), result(2, 2)]) == [result(2, 2)]


@given(st.lists(st.tuples(st.lists(st.booleans(), max_size=4), st.booleans()), min_size=1, max_size=8))
def test_a_consumer_keeps_what_was_committed(runs: list[tuple[list[bool], bool]]) -> None:
    """Each run commits some epochs, and fails in the next one; each of them gives a row or none."""
    starts: list[RunStart] = []
    found, committed = [], []
    epoch = 0
    for run, (epochs_of_run, gives_at_last) in enumerate(runs):
        starts.append(RunStart(first=epoch))
        named = " ".join(f"{number}:{first}" for number, first in named_runs(starts).items())
        for place, gives in enumerate([*epochs_of_run, gives_at_last]):
            result = Result(None, {}, {"_run": str(run), "_batch": str(epoch + place), "_runs": named})
            if gives:
                found.append(result)
                if place < len(epochs_of_run) or run == len(runs) - 1:
                    committed.append(result)
        epoch += len(epochs_of_run)
    kept = without_repeats(found)
    if found and found[-1].run == len(runs) - 1:
        assert kept == committed
    else:  # nobody has heard of the last run
        assert all(result in kept for result in committed)
