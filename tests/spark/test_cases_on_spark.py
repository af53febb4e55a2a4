"""The cases of the notation files on Spark: a sample in every run, all of them in all ways with
WATERSMEET_TEST_ALL=1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlglot import exp

from watersmeet.testing.harness import load_script
from watersmeet.testing.notation import Case, read_cases
from watersmeet.testing.regroup import variants
from watersmeet.testing.spark_rig import run_group

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# Cases in one Spark query. Measured with 8 cases on 2 cores: one or two in a query 22 s, four 27 s, eight 38 s.
GROUP = 2
SAMPLE = 2  # cases in every run: a query costs seconds
CASES = [
    case
    for path in sorted((Path(__file__).parents[1] / "cases").glob("*.wmt"))
    for case in read_cases(path)
    if case.error is None
]
WAYS = ("as written", "restarts", "all at once", "row by row", "row by row, restarts")


def traits(case: Case) -> set[object]:
    """What a case can stand for in the sample: its file, its kinds of join by emit mode, and other features."""
    _, query = load_script(case.script)
    joins = {(join.side, join.kind, query.emit) for join in query.select.find_all(exp.Join)}
    features = {(kind, query.emit) for kind in (exp.Exists, exp.In, exp.Not, exp.Order) if query.select.find(kind)}
    has_raw = any(block.raw for step in case.steps for block in step.inputs)
    controls = {control.kind for step in case.steps for control in step.controls}
    return {case.path, *joins, *features, *controls, ("raw", has_raw)}


def sample(size: int) -> list[Case]:
    """The few cases that have most traits between them: again and again the one that brings most new ones."""
    left = {case.path + case.title: traits(case) for case in CASES}
    chosen: set[str] = set()
    while len(chosen) < size and any(left.values()):
        best = max(left, key=lambda name: len(left[name]))
        chosen.add(best)
        found = left[best]
        left = {name: each - found for name, each in left.items()}
    return [case for case in CASES if case.path + case.title in chosen]


def groups(cases: Iterable[Case]) -> list[Sequence[Case]]:
    """Cases with about as many steps share a query, so that its last batches are not those of a single case."""
    in_order = sorted(cases, key=lambda case: len(case.steps))
    return [in_order[start : start + GROUP] for start in range(0, len(in_order), GROUP)]


def check(spark: SparkSession, cases: Sequence[Case], folder: Path) -> None:
    outcomes = run_group(spark, cases, folder)
    failed = [
        f"{case.path}:{failure.line}: {case.title}\n{failure.report}"
        for case, failure in zip(cases, outcomes, strict=True)
        if failure is not None
    ]
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{Path(case.path).stem}-{case.title}") for case in sample(SAMPLE)]
)
def test_sample(spark: SparkSession, case: Case, tmp_path: Path) -> None:
    check(spark, [case], tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", WAYS)
def test_all_cases(spark: SparkSession, way: str, tmp_path: Path) -> None:
    chosen = (variant for case in CASES for name, variant in variants(case) if name == way)
    for number, group in enumerate(groups(chosen)):
        check(spark, group, tmp_path / str(number))
