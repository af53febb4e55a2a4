"""Hot keys on Spark: spread over buckets, through restarts, with the results of DuckDB's batch answer."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import batch_answer, json_lines, json_rows, run_job, write_lines
from watersmeet.engine.hot_keys import Phase
from watersmeet.errors import CheckpointError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.session import Session

pytestmark = pytest.mark.spark

NAMES = ("k", "n", "ts")
STREAMS = """
CREATE STREAM l (k INT, n INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS)
  WITH (connector = 'files', path = '{0}/l', event_time_unit = 's', max_files_per_trigger = '1');
CREATE STREAM r (k INT, n INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '3' SECONDS)
  WITH (connector = 'files', path = '{0}/r', event_time_unit = 's', max_files_per_trigger = '1');
CREATE STREAM sink WITH (connector = 'files', path = '{0}/out');
"""
JOIN = """
INSERT INTO sink SELECT l.n, r.n AS m FROM l LEFT JOIN r ON l.k = r.k WITHIN INTERVAL '4' SECONDS EMIT FINAL
SETTINGS skew_rows = 10, buckets = 3;
"""
ANSWER = "SELECT l.n, r.n AS m FROM l LEFT JOIN r ON l.k = r.k AND abs(l.ts - r.ts) <= 4"
ROWS = 20
Rows = list[tuple[object, ...]]


def rows_of(side: str) -> list[Rows]:
    """Files of ten seconds each; most rows have key 0."""
    chance = random.Random(side)
    rows: Rows = [(chance.choice((0, 0, 0, 1, 2)), n, n // 2 - chance.randrange(3)) for n in range(9 * ROWS)]
    return [rows[first : first + ROWS] for first in range(0, len(rows), ROWS)]


def write(folder: Path, files: range) -> None:
    for side in "lr":
        for number in files:
            write_lines(folder / side / f"{number}.json", json_lines(rows_of(side)[number], NAMES), age=number)


def phases(checkpoint: str) -> list[Phase]:
    """Of the newest entry in the log of hot keys."""
    entries = sorted(Path(checkpoint, "hot_keys").glob("*/join_1-*/*.json"), key=lambda path: int(path.stem))
    keys = json.loads(entries[-1].read_text())["keys"] if entries else {}
    return [Phase(each["phase"]) for each in keys.values()]


def run(session: Session, mode: QueryMode) -> tuple[str, int]:
    (query,) = run_job(session, JOIN, mode)
    return query.checkpoint, query.report().counters.get("join_1.hot_keys", 0)


@pytest.mark.slow
def test_a_hot_key_is_spread_through_restarts(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    write(tmp_path, range(4))
    session.sql(STREAMS.format(tmp_path))
    checkpoint, hot = run(session, QueryMode.DRAIN)
    assert hot == 1
    assert phases(checkpoint) == [Phase.SPREAD]
    write(tmp_path, range(4, 9))
    run(session, QueryMode.BOUNDED)
    sides = {side: (NAMES, [row for file in rows_of(side) for row in file]) for side in "lr"}
    assert json_rows(tmp_path / "out") == batch_answer(ANSWER, **sides)


@pytest.mark.slow
def test_a_checkpoint_without_its_hot_keys_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    write(tmp_path, range(3))
    session.sql(STREAMS.format(tmp_path))
    checkpoint, _ = run(session, QueryMode.DRAIN)
    shutil.rmtree(Path(checkpoint, "hot_keys"))
    write(tmp_path, range(3, 4))
    with pytest.raises(CheckpointError, match="the hot keys of join_1 are not those that it has noted"):
        run(session, QueryMode.DRAIN)
