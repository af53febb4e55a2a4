"""A driver that is killed between what tasks write, its own commit and Spark's note of the batch: results are exact."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.lookup.conftest import mariadb, mariadb_process, postgres, server
from tests.spark.test_crash import kill
from tests.support.jobs import environment, json_lines, write_lines
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres

__all__ = ["mariadb", "mariadb_process", "postgres", "server"]
pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.slow]
NAMES = ("id", "v", "note")
FILES, ROWS = 4, 8_000  # more than the tasks hand over
PATIENCE_SECONDS = 250.0
SOURCE = """
CREATE STREAM IF NOT EXISTS o (id BIGINT, v BIGINT, note STRING)
  WITH (connector = 'files', path = '{0}/o', max_files_per_trigger = '1');
"""
DELTA = """
CREATE STREAM IF NOT EXISTS sink (id BIGINT, v BIGINT, note STRING) WITH (connector = 'delta', path = '{0}/table');
INSERT INTO sink SELECT id, v, note FROM o;
"""
JDBC = """
CREATE MUTABLE STREAM IF NOT EXISTS sink (id BIGINT, n BIGINT, note STRING) PRIMARY KEY (id)
  WITH (connector = 'jdbc', url = '{1}', table = 'sums', user = '{2}', password = '${{file:{0}/password}}');
INSERT INTO sink SELECT id, sum(v) AS n, max(note) AS note FROM o GROUP BY id;
"""
DUCKDB = """
CREATE MUTABLE STREAM IF NOT EXISTS sink (id BIGINT, n BIGINT, note STRING) PRIMARY KEY (id)
  WITH (connector = 'duckdb', path = '{0}/sums.duckdb', table = 'sums');
INSERT INTO sink SELECT id, sum(v) AS n, max(note) AS note FROM o GROUP BY id;
"""
ANSWER = "SELECT id, CAST(sum(v) AS BIGINT), max(note) FROM given GROUP BY id ORDER BY id"


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    """The input, as a file for each batch."""
    chance = random.Random(7)
    made = [(chance.randrange(12_000), number, f"{number:0200}") for number in range(FILES * ROWS)]
    for number in range(FILES):
        lines = json_lines(made[number * ROWS : (number + 1) * ROWS], NAMES)
        write_lines(tmp_path / "o" / f"{number}.json", lines, age=number)
    return pa.table(dict(zip(NAMES, map(list, zip(*made, strict=True)), strict=True)))


def run(folder: Path, sink: str, point: str = "") -> int:
    """Run the job, perhaps to the point where it dies; its exit code comes back."""
    command = [sys.executable, "-m", "tests.spark.sink_kills", str(folder), sink, point]
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)
    try:
        return process.wait(PATIENCE_SECONDS)
    finally:
        kill(process)


def test_delta(rows: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "delta.sql").write_text((SOURCE + DELTA).format(tmp_path))
    for point in "files written", "committed", "committed":
        assert run(tmp_path, "delta", point) == -9, (tmp_path / "log.txt").read_text()[-4000:]
    assert DeltaTable(tmp_path / "table").version() == 2, "the table was made, and has two batches"
    assert run(tmp_path, "delta") == 0, (tmp_path / "log.txt").read_text()[-4000:]
    table = DeltaTable(tmp_path / "table")
    assert table.to_pyarrow_table().sort_by("v").equals(rows.sort_by("v"))
    assert table.version() == FILES
    orphans = table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True)
    assert len(orphans) >= 1, "a task's, of the batch that was not committed"


def test_postgresql(rows: pa.Table, postgres: Postgres, tmp_path: Path) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS sums", "CREATE TABLE sums (id bigint PRIMARY KEY, n bigint NOT NULL, note varchar(200))"
    )
    (tmp_path / "password").write_text(postgres.password)
    (tmp_path / "jdbc.sql").write_text((SOURCE + JDBC).format(tmp_path, postgres.url, "postgres"))
    staged = "SELECT count(*) FROM pg_class WHERE relname LIKE 'watersmeet%' AND relkind = 'r'"
    for point in "staged", "merged, not committed", "merge committed", "staged":
        assert run(tmp_path, "jdbc", point) == -9, (tmp_path / "log.txt").read_text()[-4000:]
        ((left,),) = postgres.execute(staged)
        assert (left > 0) == (point != "merge committed"), point
    assert run(tmp_path, "jdbc") == 0, (tmp_path / "log.txt").read_text()[-4000:]
    assert postgres.execute(staged) == [(0,)]
    assert postgres.execute("SELECT * FROM sums ORDER BY id") == answer(rows)


def test_mariadb(rows: pa.Table, mariadb: MariaDb, tmp_path: Path) -> None:
    mariadb.execute(
        "CREATE OR REPLACE TABLE sums (id bigint PRIMARY KEY, n bigint NOT NULL, note varchar(200))",
    )
    (tmp_path / "password").write_text(mariadb.password)
    (tmp_path / "mariadb.sql").write_text((SOURCE + JDBC).format(tmp_path, mariadb.url, "root"))
    for point in "written, not committed", "merge committed", "written, not committed":
        assert run(tmp_path, "mariadb", point) == -9, (tmp_path / "log.txt").read_text()[-4000:]
    assert 0 < mariadb.execute("SELECT count(*) FROM sums")[0][0] < len(answer(rows))
    assert run(tmp_path, "mariadb") == 0, (tmp_path / "log.txt").read_text()[-4000:]
    assert mariadb.execute("SELECT * FROM sums ORDER BY id") == answer(rows)


def test_duckdb(rows: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "duckdb.sql").write_text((SOURCE + DUCKDB).format(tmp_path))
    for point in "between statements", "file committed", "between statements":
        assert run(tmp_path, "duckdb", point) == -9, (tmp_path / "log.txt").read_text()[-4000:]
    assert run(tmp_path, "duckdb") == 0, (tmp_path / "log.txt").read_text()[-4000:]
    with duckdb.connect(tmp_path / "sums.duckdb") as database:
        assert database.sql("SELECT * FROM sums ORDER BY id").fetchall() == answer(rows)


def answer(rows: pa.Table) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.register("given", rows)
        return database.sql(ANSWER).fetchall()
