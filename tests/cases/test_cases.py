"""Every case of the notation files, in the harness: as written, all at once, row by row, and with restarts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.ways import ways
from watersmeet.engine import frames
from watersmeet.state import large_values
from watersmeet.testing.harness import Harness
from watersmeet.testing.notation import Case, read_cases
from watersmeet.testing.runner import run_case

FILES = sorted(Path(__file__).parent.glob("*.wmt"))
PADDING = ("left", "right_full", "semi_anti", "right_semi_anti", "changelog")
CASES = [
    pytest.param(variant, id=f"{path.stem}-{case.title}-{name}", marks=[pytest.mark.slow] if is_slow else [])
    for path in FILES
    for case in read_cases(path)
    for name, variant, is_slow in ways(case)
]


@pytest.mark.parametrize("case", CASES)
def test_case(case: Case) -> None:
    failure = run_case(case)
    assert failure is None, f"{case.path}:{failure.line}: {case.title}\n{failure.report}"


#: Here fewer rows are stored if a row and its partner come in one step.
STORES_MORE = (
    "rows that meet what OR combines with NOT EXISTS come at once, the others when their windows close",
    "a window that follows from those of four streams, from a WITHIN and through a semi join",
    "a test that stands in all parts of OR is made once",
)


@pytest.mark.sample(80)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{path.stem}-{case.title}")
        for path in FILES
        for case in read_cases(path)
        if case.title not in STORES_MORE
    ],
)
def test_batches_taken_row_by_row(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is a frame, and each frame a step where the operator takes pieces: the same results."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 1)
    failure = run_case(case, partial(Harness, max_step_bytes=1))
    assert failure is None, f"{case.path}:{failure.line}: {case.title}\n{failure.report}"


@pytest.mark.sample(80)
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{path.stem}-{case.title}") for path in FILES for case in read_cases(path)]
)
def test_all_texts_beside_their_rows(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an operator only passes a column on, it gets references to the values: the same results."""
    monkeypatch.setattr(large_values, "LARGE_BYTES", 1)
    monkeypatch.setattr(large_values, "PIECE_BYTES", 1)
    failure = run_case(case)
    assert failure is None, f"{case.path}:{failure.line}: {case.title}\n{failure.report}"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{path.stem}-{case.title}")
        for path in FILES
        if path.stem in PADDING
        for case in read_cases(path)
    ],
)
def test_padding_with_tiny_memory(case: Case) -> None:
    """Spilling must lose no row (trap 10); that it happens at all is seen in tests/state/test_spilling.py."""
    failure = run_case(case, partial(Harness, table_bytes=16_000_000))
    assert failure is None, f"{case.path}:{failure.line}: {case.title}\n{failure.report}"
