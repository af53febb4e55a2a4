"""Every case of the notation files with restarts, at each of which the query gets another number of buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rescaled import RescaledHarness
from watersmeet.testing.notation import Case, read_cases
from watersmeet.testing.regroup import variants
from watersmeet.testing.runner import run_case

FILES = sorted(Path(__file__).parent.glob("*.wmt"))
CASES = [
    pytest.param(variant, id=f"{path.stem}-{case.title}-{name}")
    for path in FILES
    for case in read_cases(path)
    for name, variant in variants(case)
    if name.endswith("restarts")
]


@pytest.mark.sample(160)
@pytest.mark.parametrize("case", CASES)
def test_a_case_with_other_buckets_after_each_restart(case: Case) -> None:
    failure = run_case(case, RescaledHarness)
    assert failure is None, f"{case.path}:{failure.line}: {case.title}\n{failure.report}"
