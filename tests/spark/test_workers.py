"""The cache in the workers is only a cache: with more partitions than workers, and with sets thrown out at every
step, results are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from watersmeet.testing.notation import read_cases
from watersmeet.testing.spark_rig import run_group

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CASES = Path(__file__).parents[1] / "cases"


@pytest.fixture
def five_partitions(spark: SparkSession) -> Iterator[SparkSession]:
    """More partitions than workers: Spark gives a bucket to whichever worker is free."""
    name = "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(name))
    spark.conf.set(name, "5")
    yield spark
    spark.conf.set(name, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "files",
    [
        pytest.param(("changelog", "right_full"), id="two files"),
        pytest.param(("chains", "semi_anti"), id="two more", marks=pytest.mark.slow),
    ],
)
def test_results_do_not_depend_on_the_worker(
    five_partitions: SparkSession, tmp_path: Path, files: tuple[str, ...]
) -> None:
    # the longest case of each file: the most steps in which a set may be another worker's or gone
    cases = [max(read_cases(CASES / f"{name}.wmt"), key=lambda case: len(case.steps)) for name in files]
    outcomes = run_group(five_partitions, cases, tmp_path, buckets=5)
    assert [failure.report for failure in outcomes if failure is not None] == []
