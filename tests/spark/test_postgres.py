"""Tables of PostgreSQL as changing streams on Spark: a join of them holds what it holds there, after kills too."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import environment, run_job
from tests.support.postgres import Postgres, postgres_server
from tests.support.postgres_changes import SECRET, Writers, stored
from watersmeet.errors import CheckpointError, ConnectorError, UnsupportedError
from watersmeet.runtime.inspection.copy import copy_checkpoint
from watersmeet.runtime.inspection.verify import verify
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Batch
from watersmeet.session.session import Session

_PATIENCE = 240.0
_MAIN = "from watersmeet.cli.main import main; main()"
_JOIN = "SELECT p.id, p.v, w.v AS other, p.n + w.n AS n FROM plain p LEFT JOIN whole w ON p.id = w.id"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server(settings=("wal_level=logical", "max_replication_slots=40")) as running:
        yield running


@pytest.fixture
def tables(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    monkeypatch.setenv(SECRET, server.password)
    for name in ("plain", "whole"):
        server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v TEXT, n BIGINT)",
            f"INSERT INTO {name} SELECT i, 'first', i FROM generate_series(1, 20) i",
        )
    server.execute("ALTER TABLE whole REPLICA IDENTITY FULL")
    server.execute("CREATE TABLE joined (id INT PRIMARY KEY, v TEXT, other TEXT, n BIGINT)")
    yield server
    if server.process is None:
        server.start()
    for (slot,) in server.execute("SELECT slot_name FROM pg_replication_slots"):
        server.execute(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{slot}'")
        server.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    server.execute("DROP TABLE plain, whole, joined CASCADE")
    for (name,) in server.execute("SELECT pubname FROM pg_publication"):
        server.execute(f"DROP PUBLICATION {name}")


def job(server: Postgres, *, most: int = 1_000) -> str:
    """Two tables, their join, and a table that it is written to."""
    login = f"url = '{server.url}', user = 'postgres', password = '${{env:{SECRET}}}'"
    source = f"connector = 'postgres', {login}, max_rows_per_trigger = {most}, poll_interval = '100 ms'"
    columns = "(id INT, v STRING, n BIGINT) PRIMARY KEY (id)"
    return f"""
    CREATE STREAM IF NOT EXISTS plain {columns} WITH ({source}, table = 'plain') SETTINGS mode = 'versioned_kv';
    CREATE STREAM IF NOT EXISTS whole {columns} WITH ({source}, table = 'whole') SETTINGS mode = 'changelog_kv';
    CREATE MUTABLE STREAM IF NOT EXISTS joined (id INT, v STRING, other STRING, n BIGINT) PRIMARY KEY (id)
      WITH (connector = 'jdbc', {login}, table = 'joined', staging = 'none');
    INSERT INTO joined {_JOIN} SETTINGS buckets = 1, source_retry = '3 minutes', sink_retry = '3 minutes';
    """


def expected(server: Postgres) -> list[tuple[object, ...]]:
    return stored(server, f"({_JOIN}) j", "id, v, other, n")


def joined(server: Postgres) -> list[tuple[object, ...]]:
    return stored(server, "joined", "id, v, other, n")


@pytest.mark.slow
def test_a_join_of_two_tables(spark: SparkSession, tables: Postgres, tmp_path: Path) -> None:
    """Runs with an end, and transactions between them; then what cannot be done."""
    session = watersmeet.connect(spark, tmp_path / "workspace")
    writers = Writers(tables, ("plain", "whole"), random.Random(5))
    for seed in range(2):
        run_job(session, job(tables, most=7 + 100 * seed), QueryMode.DRAIN)
        assert joined(tables) == expected(tables)
        writers.open(2)
        writers.act(60)
        writers.close()
        writers.sessions.clear()
    (query,) = run_job(session, job(tables), QueryMode.DRAIN)
    assert joined(tables) == expected(tables)
    assert not verify(query.checkpoint).faults
    progress = query._query.lastProgress if query._query is not None else None
    assert progress is not None
    assert str(progress["sources"]).count("warnings") == 2
    pieces = list(Path(query.checkpoint, "pieces").rglob("*.piece"))
    assert len(pieces) <= 4  # what was processed is deleted
    everything = b"".join(path.read_bytes() for path in Path(query.checkpoint).rglob("*") if path.is_file())
    assert tables.password.encode() not in everything
    _refusals(session, query.checkpoint, pieces[0], tmp_path)


def _refusals(session: Session, checkpoint: str, piece: Path, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="of two checkpoints only one can go on"):
        copy_checkpoint(checkpoint, str(folder / "copy"))
    with pytest.raises(UnsupportedError, match="cannot be followed in real time"):
        list(session.run("INSERT INTO joined SELECT id, v, v AS other, n FROM plain SETTINGS mode = 'real_time'"))
    with pytest.raises(UnsupportedError, match="has no rows that"):
        session.sql("SELECT * FROM table(plain)")
    piece.write_bytes(piece.read_bytes()[:-1])
    assert "is damaged" in verify(checkpoint).faults[0].what


@pytest.mark.slow
def test_times_and_bad_rows(spark: SparkSession, tables: Postgres, tmp_path: Path) -> None:
    """A declared event time, deletes at the time of their commit, values that Spark does not have."""
    tables.execute(
        "CREATE TABLE timed (id INT PRIMARY KEY, at TIMESTAMPTZ, d NUMERIC)",
        "INSERT INTO timed VALUES (1, '2020-01-01', 1.5), (2, '2020-01-01', 2.25), (3, 'infinity', 3)",
    )
    session = watersmeet.connect(spark, tmp_path / "workspace")
    script = f"""
    CREATE MUTABLE STREAM IF NOT EXISTS timed (id INT, at TIMESTAMP, d DECIMAL(10, 1), WATERMARK FOR at AS at)
      PRIMARY KEY (id) WITH (connector = 'postgres', url = '{tables.url}', table = 'timed', user = 'postgres',
      password = '${{env:{SECRET}}}');
    CREATE MUTABLE STREAM IF NOT EXISTS results (id INT, at TIMESTAMP, d DECIMAL(10, 1)) PRIMARY KEY (id);
    INSERT INTO results SELECT id, at, d FROM timed SETTINGS buckets = 1;
    """
    (query,) = run_job(session, script, QueryMode.DRAIN)
    tables.execute("UPDATE timed SET at = now(), d = 7 WHERE id = 1", "DELETE FROM timed WHERE id = 2")
    (query,) = run_job(session, script, QueryMode.DRAIN)
    found = session.sql("SELECT id, CAST(d AS STRING) AS d FROM table(results)")
    assert isinstance(found, Batch)
    assert [tuple(row) for row in found.frame.collect()] == [(1, "7.0")]
    side = "".join(path.read_text() for path in Path(query.checkpoint, "side").glob("*.jsonl"))
    assert "column at: 'infinity' is no TIMESTAMP" in side
    tables.execute("TRUNCATE timed")
    with pytest.raises(ConnectorError, match="was truncated"):
        run_job(session, script, QueryMode.DRAIN)
    tables.execute("DROP TABLE timed")


# -- kills -------------------------------------------------------------------------------------------------------------


class Running:
    """A job in a process of its own, with all that it starts."""

    def __init__(self, folder: Path, server: Postgres, *modes: str) -> None:
        (folder / "job.sql").write_text(job(server, most=5_000))
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, "run", "job.sql", "--workspace", "workspace", *modes],
            cwd=folder,
            env={**environment(), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill all of it at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def wait_for(self, pattern: str) -> None:
        """Wait for a file of its checkpoint."""
        before = set(self._found(pattern))
        give_up = time.monotonic() + _PATIENCE
        while not set(self._found(pattern)) - before:
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < give_up, f"no {pattern} came"
            time.sleep(0.005)

    def _found(self, pattern: str) -> Iterator[str]:
        return map(str, self.folder.glob(f"workspace/queries/*/{pattern}"))


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("seed", range(2))
def test_kills(tables: Postgres, tmp_path: Path, seed: int) -> None:
    """The job is killed amid its snapshots and its changes, and the server too; a run to the end has it all."""
    drawn = random.Random(seed)
    many = "INSERT INTO {} SELECT i, 'many', i FROM generate_series(100, 20000) i"
    for name in ("plain", "whole"):
        tables.execute(many.format(name))
    moments = ("pieces/*/slot.json", "pieces/plain/*-s-*.piece", "pieces/whole/*-s-*.piece", "spark/offsets/[0-9]*")
    for moment in moments:
        running = Running(tmp_path, tables)
        running.wait_for(moment)
        time.sleep(drawn.random() * 0.05)
        running.kill()
    writers = Writers(tables, ("plain", "whole"), drawn)
    writers.open(3)
    try:
        for moment in (*["pieces/*/*-t-*.piece", "spark/offsets/[0-9]*", "spark/commits/[0-9]*"] * 2, "server"):
            running = Running(tmp_path, tables)
            if moment == "server":
                running.wait_for("spark/commits/[0-9]*")
                writers.close()
                tables.stop()
                time.sleep(3)
                tables.start()
                running.wait_for("spark/commits/[0-9]*") if _write(tables) else None
            else:
                _until(running, moment, writers)
            running.kill()
    finally:
        writers.sessions.clear()
    last = Running(tmp_path, tables, "--drain")
    output, _ = last.process.communicate(timeout=_PATIENCE)
    assert last.process.returncode == 0, output
    assert joined(tables) == expected(tables)
    slots = tables.execute("SELECT slot_name FROM pg_replication_slots")
    assert len(slots) == 2, slots  # none is left of the snapshots that were broken off


def _write(server: Postgres) -> bool:
    server.execute("INSERT INTO plain VALUES (91000, 'after the crash', 1)", "DELETE FROM whole WHERE id < 200")
    return True


def _until(running: Running, moment: str, writers: Writers) -> None:
    """Write until something has happened."""
    import threading

    waiting = threading.Thread(target=running.wait_for, args=[moment])
    waiting.start()
    while waiting.is_alive():
        writers.act(5)
        for session in writers.sessions:
            session.commit()
        time.sleep(0.05)
    waiting.join()
