"""A job over Delta tables that is killed within its batches and between them: no change is lost, none is doubled."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table

from tests.spark.test_crash import kill
from tests.support.delta_tables import append, make
from tests.support.jobs import environment, json_rows
from tests.support.killing import Moment

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("part", pa.int64())])
KILLS, KEYS = 4, 40
PATIENCE_SECONDS, LOOK_SECONDS = 250.0, 0.01
JOB = """
CREATE STREAM IF NOT EXISTS grown (id BIGINT, v BIGINT, part BIGINT)
  WITH (connector = 'delta', path = '{0}/grown', max_files_per_trigger = '1');
CREATE STREAM IF NOT EXISTS changed (id BIGINT, v BIGINT, part BIGINT) PRIMARY KEY (id)
  WITH (connector = 'delta', path = '{0}/changed', max_files_per_trigger = '1') SETTINGS mode = 'changelog_kv';
CREATE STREAM IF NOT EXISTS rows WITH (connector = 'files', path = '{0}/rows');
CREATE STREAM IF NOT EXISTS changes WITH (connector = 'files', path = '{0}/changes', changelog = 'true');
INSERT INTO rows SELECT id, v, part FROM grown;
INSERT INTO changes SELECT id, v, part FROM changed;
"""


class Tables:
    """Both tables, and what happens to them between kills."""

    def __init__(self, folder: Path) -> None:
        self.grown, self.changed = folder / "grown", folder / "changed"
        self._drawn, self._number = random.Random(5), 0
        make(self.grown, SCHEMA, by=["part"])
        make(self.changed, SCHEMA, feed=True, by=["part"])

    def work(self) -> None:
        """Commits of several files each, and changes, some of which move rows to another file."""
        for _ in range(2):
            self._number += 1
            rows = [{"id": KEYS * self._number + key, "v": self._number, "part": key % 3} for key in range(KEYS)]
            append(self.grown, rows, SCHEMA)
            keys = self._drawn.sample(range(KEYS), 15)
            source = pa.table([keys, [self._number] * 15, [self._drawn.randrange(3) for _ in keys]], schema=SCHEMA)
            merging = Table(self.changed).merge(source, "s.id = t.id", source_alias="s", target_alias="t")
            merging.when_matched_update_all().when_not_matched_insert_all().execute()
            Table(self.changed).delete(f"id = {self._drawn.choice(keys)}")
        for table in self.grown, self.changed:
            Table(table).optimize.compact()


def held(table: Path) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in Table(table).to_pyarrow_table().to_pylist())


def files_of(folder: Path, moment: Moment) -> set[str]:
    return {str(path) for path in (folder / "workspace" / "queries").glob(f"*/{moment.files}")}


def start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log.txt").open("ab") as log:
        command = [sys.executable, "-m", "tests.spark.delta_kills", str(folder)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)


def test_a_job_that_is_killed_again_and_again_reads_each_change_once(tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_text(JOB.format(tmp_path))
    tables, drawn, killed = Tables(tmp_path), random.Random(7), Counter[Moment]()
    tables.work()
    for number in range(KILLS):
        moment = [Moment.BEGUN, Moment.COMMITTED][number % 2]
        before, wanted = files_of(tmp_path, moment), drawn.randint(1, 4)
        process = start(tmp_path)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(files_of(tmp_path, moment) - before) < wanted and process.poll() is None:
            assert time.monotonic() < deadline, (tmp_path / "log.txt").read_text()[-4000:]
            time.sleep(LOOK_SECONDS)
        time.sleep(drawn.choice([0, 0, 0.1, 0.4]))
        was_running = process.poll() is None
        kill(process)
        killed[moment] += was_running
        tables.work()
    assert min(killed.values()) >= 1, killed
    assert killed.total() >= KILLS - 1, killed
    process = start(tmp_path)
    try:
        assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log.txt").read_text()[-4000:]
    finally:
        kill(process)
    assert Counter(json_rows(tmp_path / "rows")) == held(tables.grown)
    total: Counter[tuple[object, ...]] = Counter()
    for *row, delta in json_rows(tmp_path / "changes"):
        total[tuple(row)] += int(str(delta))
    assert Counter({row: count for row, count in total.items() if count}) == held(tables.changed)
