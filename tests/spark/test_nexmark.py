"""Every query of Nexmark on Spark, against DuckDB over all rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from benchmarks.nexmark import queries
from benchmarks.nexmark.events import Events
from tests.support.nexmark import wrong_rows
from watersmeet.testing.spark_rig import spark_rigs

_ALWAYS = ("q9",)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in _ALWAYS else pytest.mark.slow) for name in queries.NAMES],
)
def test_results_are_those_of_the_whole_tables(name: str, spark: SparkSession, tmp_path: Path) -> None:
    events = Events(2_000, disordered=True, rate=250)
    with spark_rigs(spark, tmp_path) as open_rig:
        assert wrong_rows(name, events, tmp_path, open_rig, random=Random(1), steps=2, restarts=True) is None
