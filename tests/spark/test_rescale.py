"""Queries that get other buckets between two runs give what they would have given, and their batches go on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

STREAMS = """
CREATE STREAM a (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '2' SECONDS) WITH (event_time_unit = 's');
CREATE STREAM b (id INT, w STRING, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '2' SECONDS)
  WITH (event_time_unit = 's');
CREATE MUTABLE STREAM m (id INT, x INT, ts BIGINT) PRIMARY KEY (id) WITH (event_time_unit = 's');
"""
QUERIES = {
    "chain": "SELECT a.v, count() AS n, max(b.w) AS w FROM a LEFT JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS"
    " GROUP BY a.v",
    "left": "SELECT a.id, a.v, b.w FROM a LEFT JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS EMIT FINAL",
    "temporal": "SELECT a.id, a.v, b.w FROM a ASOF LEFT JOIN b ON a.id = b.id AND a.ts >= b.ts EMIT CHANGELOG",
    "upsert": "SELECT id, x FROM m",
    "changing": "SELECT a.v, m.x FROM a LEFT JOIN m ON a.id = m.id",
    "global": "SELECT count(), sum(a.v), min(b.w) FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS",
    "distinct": "SELECT count(DISTINCT a.v) FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS",
    "ordered": "SELECT a.id, a.ts, b.w FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS ORDER BY a.ts",
}


class Job:
    """A query whose inputs come piece by piece; it drains what is there, and so ends after each piece."""

    def __init__(self, spark: SparkSession, workspace: Path, query: str) -> None:
        self.query = query
        self.total: Counter[tuple[Any, ...]] = Counter()
        self.batches: list[int] = []
        self.session: Session = watersmeet.connect(spark, workspace)
        self.session.show = self._show
        self.session.sql(STREAMS)

    def _show(self, names: Sequence[str], changes: Any, batch: int) -> None:
        self.batches.append(batch)
        for weight, row in changes:
            self.total[tuple(row)] += weight

    def takes(self, rows: dict[str, str], mode: QueryMode = QueryMode.DRAIN) -> None:
        for stream, values in rows.items():
            self.session.sql(f"INSERT INTO {stream} VALUES {values}")
        for result in self.session.run(self.query, mode):
            assert isinstance(result, Started)
            assert result.query.wait(PATIENCE_SECONDS)


def pieces(seed: int, count: int) -> list[dict[str, str]]:
    """Rows out of order by less than the delay."""
    chance = random.Random(seed)

    def piece(number: int) -> dict[str, str]:
        times = [4 * number + chance.randrange(5) for _ in range(12)]
        keys = [chance.randrange(9) for _ in times]
        return {
            "a": ", ".join(f"({key}, {chance.randrange(4)}, {time})" for key, time in zip(keys, times, strict=True)),
            "b": ", ".join(f"({chance.randrange(9)}, 'w{chance.randrange(4)}', {time})" for time in times),
            "m": ", ".join(f"({chance.randrange(9)}, {chance.randrange(50)}, {time})" for time in times),
        }

    return [piece(number) for number in range(count)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name != "chain" else []) for name in QUERIES]
)
def test_a_query_goes_on_with_other_buckets(spark: SparkSession, tmp_path: Path, name: str) -> None:
    query = f"{QUERIES[name]} SETTINGS buckets = 4"
    undisturbed, rescaled = (Job(spark, tmp_path / each, query) for each in ("undisturbed", "rescaled"))
    for number, rows in enumerate(pieces(7, 4)):
        mode = QueryMode.BOUNDED if number == 3 else QueryMode.DRAIN
        for job in (undisturbed, rescaled):
            job.takes(rows, mode)
        if number in (0, 1):
            (done,) = rescaled.session.rescale(query, (7, 3)[number])
            assert (done.before, done.after) == ((4, 7), (7, 3))[number]
    assert +rescaled.total == +undisturbed.total
    assert rescaled.batches == undisturbed.batches
    assert rescaled.batches == sorted(rescaled.batches)
