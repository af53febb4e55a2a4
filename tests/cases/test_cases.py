"""Every case of the notation files, in the harness: as written, all at once, row by row, and with restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.testing.notation import Case, read_cases
from watersmeet.testing.regroup import variants
from watersmeet.testing.runner import run_case

CASES = [
    pytest.param(variant, id=f"{path.stem}-{case.title}-{name}")
    for path in sorted(Path(__file__).parent.glob("*.wmt"))
    for case in read_cases(path)
    for name, variant in variants(case)
]


@pytest.mark.parametrize("case", CASES)
def test_case(case: Case) -> None:
    failure = run_case(case)
    assert failure is None, f"{case.path}:{failure.line}: {case.title}\n{failure.report}"
