"""Joins with limits, on Spark: what is evicted is the same if batches run twice, and every row is accounted for."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import json_lines, json_rows, run_job, write_lines
from watersmeet.connectors import registry
from watersmeet.errors import LimitError, WatersmeetError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.report import Report
from watersmeet.session.results import Batch

pytestmark = pytest.mark.spark

FILES, ROWS = 3, 60
LIMIT = 4_000
STREAMS = "".join(
    f"CREATE STREAM {name} (id INT, v INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS) "
    f"WITH (connector = 'files', path = '{{0}}/{name}', event_time_unit = 's', max_files_per_trigger = '1');"
    for name in "op"
)
JOB = """
INSERT INTO sink SELECT o.id, o.v, o.ts, p.id AS pid, p.v AS pv, p.ts AS pts
FROM o FULL JOIN p ON o.id = p.id WITHIN INTERVAL '100' SECONDS EMIT FINAL
SETTINGS buckets = 3, eviction = '{0}', join_max_buffered_bytes = {1}, evicted_rows = 'gone';
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with rows out of order by less than the delay, of few keys, one of which has most rows."""
    folder = tmp_path_factory.mktemp("inputs")
    chance = random.Random(3)
    for name in "op":
        for number in range(FILES):
            seconds = range(number * ROWS, (number + 1) * ROWS)
            rows = [(chance.choice((1, 1, 1, 2, 3, 4)), chance.randrange(99), i + chance.randrange(5)) for i in seconds]
            write_lines(folder / name / f"{number}.json", json_lines(rows, ("id", "v", "ts")), age=number)
    return folder


def run(
    spark: SparkSession, folder: Path, inputs: Path, policy: str, fails_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[tuple[object, ...]], Counter[Any], Report]:
    """Results, evicted rows and counts of the job; with ``fails_at`` that batch cannot be written the first time."""
    session = watersmeet.connect(spark, workspace=folder / "workspace")
    session.sql(STREAMS.format(inputs))
    session.sql(f"CREATE STREAM sink WITH (connector = 'files', path = '{folder / 'out'}', format = 'json')")
    job = JOB.format(policy, LIMIT)
    if fails_at is not None:
        with monkeypatch.context() as patched:
            patched.setattr(registry, "open_sink", partial(_failing_sink, registry.open_sink, fails_at))
            with pytest.raises(WatersmeetError, match="no space left"):
                run_job(session, job, QueryMode.DRAIN)
    (query,) = run_job(session, job)
    gone = session.sql("SELECT source, reason, raw FROM table(gone)")
    assert isinstance(gone, Batch)
    evicted = Counter(tuple(row) for row in gone.frame.collect())
    return json_rows(folder / "out"), evicted, query.report()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["oldest", "lru"])
def test_a_batch_that_runs_again_evicts_the_same_rows(
    policy: str, spark: SparkSession, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = run(spark, tmp_path / "one", inputs, policy, None, monkeypatch)
    disturbed = run(spark, tmp_path / "two", inputs, policy, 2, monkeypatch)
    assert disturbed[:2] == undisturbed[:2]
    assert disturbed[2].evicted == undisturbed[2].evicted


@pytest.mark.slow
def test_every_row_is_in_a_result_and_every_evicted_one_is_kept(
    spark: SparkSession, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, evicted, report = run(spark, tmp_path, inputs, "lru", 1, monkeypatch)
    by_reason = Counter[str]()
    for (source, reason, _), count in evicted.items():
        by_reason[f"{source}.{reason.removeprefix('join_1: ')}"] += count
    assert {name: count for name, count in report.evicted.items() if count} == by_reason
    assert sum(report.evicted.values()) > ROWS
    assert report.used == {"o": FILES * ROWS, "p": FILES * ROWS}
    seen = {(row[0], row[1], row[2]) for row in results} | {(row[3], row[4], row[5]) for row in results}
    assert seen >= {(row["id"], row["v"], row["ts"]) for name in "op" for row in _rows(inputs / name)}


@pytest.mark.slow
def test_the_limit_is_one_for_all_buckets(spark: SparkSession, inputs: Path, tmp_path: Path) -> None:
    """Few keys: one bucket of three has most rows, and more than a third of the limit."""
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql(STREAMS.format(inputs))
    session.sql("CREATE STREAM sink WITH (connector = 'blackhole')")
    text = "INSERT INTO sink SELECT o.id, p.ts FROM o JOIN p ON o.id = p.id SETTINGS buckets = 3"
    held = 2 * FILES * ROWS * 36  # 16, event time, key, and an event time or nothing more
    (query,) = run_job(session, f"{text}, join_max_buffered_bytes = {held}", QueryMode.DRAIN)
    assert query.report().state_rows == 2 * FILES * ROWS
    full = query.report().state_bytes
    with pytest.raises(LimitError, match="the state of join_1 has reached its limit"):
        run_job(session, f"{text}, join_max_buffered_bytes = {full // 2}, skew_rows = 9999")


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def _failing_sink(open_sink: Callable[..., Any], fails_at: int, target: Any, *args: Any, **others: Any) -> _Failing:
    return _Failing(open_sink(target, *args, **others), fails_at)


class _Failing:
    """A sink that cannot write one batch."""

    def __init__(self, sink: Any, fails_at: int) -> None:
        self._sink, self._fails_at = sink, fails_at

    def write(self, frame: Any, batch_id: int, key: str) -> object:
        if batch_id == self._fails_at:
            raise WatersmeetError("no space left")
        return self._sink.write(frame, batch_id, key)
