"""A batch that runs again after a kill may store other bytes: those of its last attempt are what later batches read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import json_lines, json_rows, write_lines
from watersmeet.runtime.checkpoint_files import BY_RENAMES, with_settings
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("again", [2, 1])
def test_the_state_is_that_of_the_last_attempt(spark: SparkSession, tmp_path: Path, again: int) -> None:
    """Other rows in the file make sure that the bytes differ, as they do where rows come in another order."""

    def write(number: int, v: int) -> None:
        write_lines(
            tmp_path / "in" / f"{number}.json", json_lines([(number, v, number)], ("id", "v", "ts")), age=number
        )

    def run() -> None:
        session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
        session.sql(
            "CREATE STREAM IF NOT EXISTS o (id INT, v INT, ts BIGINT) WITH (connector = 'files', "
            f"path = '{tmp_path}/in', event_time_unit = 's', max_files_per_trigger = '1');"
            f"CREATE STREAM IF NOT EXISTS sink WITH (connector = 'files', path = '{tmp_path}/out')"
        )
        text = (
            "INSERT INTO sink SELECT a.id, a.v, b.v AS w FROM o AS a JOIN o AS b ON a.id <= b.id SETTINGS buckets = 1"
        )
        (started,) = session.run(text, QueryMode.DRAIN)
        assert isinstance(started, Started)
        assert started.query.wait(120)

    def commits() -> dict[int, Path]:
        found = (tmp_path / "workspace").glob("queries/*/spark/commits/[0-9]*")
        return {int(path.name): path for path in found}

    with with_settings(spark, {name: spark.conf.get(name) or "" for name in BY_RENAMES}):
        for name in BY_RENAMES:
            spark.conf.unset(name)  # as users have it: the tests' own session has them for all queries
        write(0, 0)
        write(1, 10)
        run()
        for _ in range(again):  # as if it had been killed before it was committed
            last = max(commits())
            commits()[last].unlink()
            write(1, 20)
            run()
        write(2, 30)
        run()
        write(3, 40)
        run()
    by_id = {0: 0, 1: 20, 2: 30, 3: 40}
    pairs = [(a, by_id[a], by_id[b]) for b in by_id for a in range(b + 1)]
    assert sorted(json_rows(tmp_path / "out")) == sorted(pairs)
