"""The cases of the notation files in real time, with a Kafka broker: a sample in every run, all of them with
WATERSMEET_TEST_ALL=1.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_cases_on_spark import CASES, sample
from tests.support.kafka_broker import Broker
from watersmeet.testing.case import Case
from watersmeet.testing.cuts import Cut, way_to_feed
from watersmeet.testing.live_rig import run_live
from watersmeet.testing.runner import Failure

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

SAMPLE = 1
AT_ONCE = 3  # queries side by side: each has four or more Python workers, and up to a third of the task slots
FILES = {path: list(cases) for path, cases in groupby(CASES, lambda case: case.path)}
#: Cases that no query in real time can be held to, with the reason, by file.
LEFT_OUT = {
    "frontiers": {
        "lateness is judged by the frontier before the batch, not by the batch's own rows": "in real time nobody knows "
        "which rows of a stream are taken together"
    },
    "limit_by_arrival": {
        "LIMIT: the first rows of an append-only stream, for good": "the first are those of what comes together"
    },
    "limits": {
        "in a changelog an evicted row has been padded before, and stays so": "what is evicted depends on the rows "
        "that come together",
    },
    "rising_groups": {
        "an hour ends with the first frontier of the next one": "each step stores what it adds to a group",
        "quotients: zero has twice as many numbers": "each step stores what it adds to a group",
    },
    "whole_queries": {
        "TUMBLE: a group once, when its window has ended": "lateness is judged by the rows that were taken before",
    },
}


def check(spark: SparkSession, cases: Sequence[Case], folder: Path, broker: Broker) -> list[str]:
    """Run the cases; return the titles of those that cannot be run."""

    def run(fed: tuple[Case, Cut]) -> Failure | None:
        return run_live(spark, *fed, folder, broker.address)

    ways = [(case, way_to_feed(case)) for case in cases]
    chosen = [(case, way) for case, way in ways if way is not None]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        failures = list(threads.map(run, chosen))
    failed = [
        f"{case.path}:{failure.line}: {case.title}\n{failure.report}"
        for (case, _), failure in zip(chosen, failures, strict=True)
        if failure is not None
    ]
    assert not failed, "\n\n".join(failed)
    return [case.title for case, way in ways if way is None]


def test_sample(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    assert check(spark, sample(SAMPLE), tmp_path, broker) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", [pytest.param(path, id=Path(path).stem) for path in FILES])
def test_all_cases(spark: SparkSession, broker: Broker, path: str, tmp_path: Path) -> None:
    assert check(spark, FILES[path], tmp_path, broker) == list(LEFT_OUT.get(Path(path).stem, ()))
