"""The cases of the notation, in buckets that stay open for an epoch: each epoch is given up once, and runs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ALL
from tests.real_time.epoch_harness import EpochHarness
from watersmeet.testing.notation import Case, read_cases
from watersmeet.testing.runner import run_case

CASES = [
    case
    for path in sorted((Path(__file__).parents[1] / "cases").glob("*.wmt"))
    for case in read_cases(path)
    if case.error is None
]
#: In a quick run, every sixteenth case.
CHOSEN = CASES if ALL else CASES[::16]


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", [pytest.param(case, id=f"{Path(case.path).stem}-{case.title}") for case in CHOSEN])
def test_case(case: Case, tmp_path: Path) -> None:
    failure = run_case(case, lambda streams, query: EpochHarness(streams, query, tmp_path))
    assert failure is None, failure
