"""A worker with little memory: its batches are cut, its state lies on disk, and the results are the same."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import run_job
from watersmeet import QueryMode
from watersmeet.errors import ConfigError, Position
from watersmeet.session.results import Plan
from watersmeet.settings.query_settings import LEAST_WORKER_BYTES

pytestmark = pytest.mark.spark
#: A bucket's rows of a batch have more than twice the bytes that a step may take.
ROWS, BATCHES = 200_000, 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_batches_are_cut_and_the_results_are_those_of_a_batch_query(spark: SparkSession, tmp_path: Path) -> None:
    chance = np.random.default_rng(4)
    streams = []
    for side in "lr":
        (tmp_path / side).mkdir()
        for number in range(BATCHES):
            times = np.arange(number * ROWS, (number + 1) * ROWS) + chance.integers(0, 1000, ROWS)
            table = pa.table(
                {
                    "k": chance.integers(0, ROWS, ROWS),
                    "id": times * 10,
                    "note": [f"{i:0200}" for i in times],
                    "ts": times,
                }
            )
            pq.write_table(table, tmp_path / side / f"{number}.parquet")
        streams.append(
            f"CREATE STREAM {side} (k BIGINT, id BIGINT, note STRING, ts BIGINT, WATERMARK FOR ts AS ts - "
            f"INTERVAL '1000' SECONDS) WITH (connector = 'files', format = 'parquet', path = '{tmp_path / side}', "
            "event_time_unit = 's', max_files_per_trigger = '1');"
        )
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql("".join(streams) + f"CREATE STREAM out WITH (connector = 'files', path = '{tmp_path}/out')")
    on = "l.k = r.k AND l.note >= r.note"
    select = f"SELECT l.id AS a, r.id AS b, right(r.note, 9) AS n FROM l LEFT JOIN r ON {on}"
    (query,) = run_job(
        session,
        f"INSERT INTO out {select} WITHIN INTERVAL '200000' SECONDS EMIT FINAL "
        f"SETTINGS worker_memory = '{LEAST_WORKER_BYTES} B', buckets = 2",
        QueryMode.BOUNDED,
    )
    sums = "SELECT count(*), sum(a), sum(b), sum(CAST(n AS BIGINT)) FROM"
    with duckdb.connect() as con:
        for side in "lr":
            con.execute(f"CREATE VIEW {side} AS SELECT * FROM read_parquet('{tmp_path / side}/*.parquet')")
        expected = con.sql(f"{sums} ({select} AND abs(l.ts - r.ts) <= 200000)").fetchall()
        found = con.sql(f"{sums} read_json('{tmp_path}/out/*.json')").fetchall()
    assert found == expected
    (operator,) = query.report().operators.values()
    assert operator.steps > 2 * 2 * BATCHES  # a step for each bucket and batch, if none is cut
    plan = session.sql(f"EXPLAIN {select} SETTINGS worker_memory = '600MB'")
    assert isinstance(plan, Plan)
    assert "memory of a worker: 600 MB (worker_memory); state beyond is on disk" in plan.text


def test_more_than_the_machine_has_is_refused_where_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    session.sql("CREATE STREAM l (k INT, ts TIMESTAMP); CREATE STREAM r (k INT, ts TIMESTAMP)")
    session.sql(f"CREATE STREAM out WITH (connector = 'files', path = '{tmp_path}/out')")
    insert = "INSERT INTO out SELECT l.k FROM l JOIN r ON l.k = r.k\nWITHIN INTERVAL '1' SECOND\nSETTINGS buckets = 1,"
    with pytest.raises(ConfigError, match=r"worker_memory = '900 TB', and this machine or its") as refused:
        session.sql(f"{insert} worker_memory = '900TB'")
    assert refused.value.position == Position(3, 23)
