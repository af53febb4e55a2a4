"""Queries that begin with the newest rows of embedded changing streams: the same results, across restarts and kills."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import watersmeet
from tests.support.jobs import environment, run_job
from watersmeet.bind.planning import plan_query
from watersmeet.connectors.embedded import baselines
from watersmeet.connectors.embedded.connector import EmbeddedLog, embedded_log
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Batch
from watersmeet.session.session import Session
from watersmeet.session.table_queries import rows_of
from watersmeet.settings.seek import Seek, Starts
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import Select

pytestmark = pytest.mark.spark

Row = tuple[int, str | None, int, int]
SINK = "CREATE STREAM {0} WITH (connector = 'files', path = '{1}', format = 'json', changelog = 'true');"
STREAM = (
    "CREATE STREAM {0} (id INT, v STRING, sec BIGINT, _tp_delta TINYINT, "
    "WATERMARK FOR sec AS sec - INTERVAL '6' SECONDS) PRIMARY KEY (id) "
    "WITH (event_time_unit = 's') SETTINGS mode = '{1}';"
)
JOIN = "SELECT a.id, a.v, b.id AS bid, b.v AS w FROM a FULL JOIN b ON a.id = b.id"
ALL_ROWS = " SETTINGS seek_to = '1970-01-01 00:00:00Z'"


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(baselines, "WORTH_SEGMENTS", 3)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    for name in ("out", "out_all"):
        (tmp_path / name).mkdir()
        session.sql(SINK.format(name, tmp_path / name))
    return session


def insert(session: Session, stream: str, *rows: Row) -> None:
    values = (f"({', '.join('NULL' if each is None else repr(each) for each in row)})" for row in rows)
    session.sql(f"INSERT INTO {stream} VALUES {', '.join(values)}")


def accumulated(folder: Path) -> Counter[tuple[object, ...]]:
    """What the changes in a folder add up to; each is written once, so one that came twice would count twice."""
    found: Counter[tuple[object, ...]] = Counter()
    for path in folder.glob("*.json"):
        for change in map(json.loads, path.read_text().splitlines()):
            delta = change.pop("_tp_delta")
            found[tuple(sorted(change.items()))] += delta
    return Counter({row: count for row, count in found.items() if count})


def log_of(session: Session, stream: str) -> EmbeddedLog:
    return embedded_log(session.streams.catalog.require(stream), session.workspace)


def starts_of(query: RunningQuery) -> dict[str, list[str]]:
    """The baselines that a query's checkpoint keeps, by stream."""
    kept = json.loads((Path(query.checkpoint) / "plan.json").read_text())["starts"]
    return {stream: list(start) for stream, start in kept.items()}


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_new_query_begins_with_the_newest_rows_and_goes_on_with_what_comes(session: Session, tmp_path: Path) -> None:
    session.sql(STREAM.format("a", "versioned_kv"))
    for row in [(1, "old", 10, 1), (1, "new", 12, 1), (2, "gone", 10, 1), (2, None, 13, -1), (3, "tie", 11, 1)]:
        insert(session, "a", row)
    job = "INSERT INTO out SELECT id, v FROM a"
    (query,) = run_job(session, job, QueryMode.DRAIN)
    assert starts_of(query) == {"a": ["4"]}
    assert query.report().rows_in == {"a": 3}
    # a row older than that of the baseline, one older than the delete, one of the same time, and a new key
    insert(session, "a", (1, "older", 11, 1), (2, "older", 12, 1), (3, "later", 11, 1), (4, "first", 14, 1))
    held = [(1, "new"), (3, "later"), (4, "first")]
    table = session.sql("SELECT id, v FROM table(a) ORDER BY id")
    assert isinstance(table, Batch)
    assert rows_of(table.frame) == held
    baseline = Path(log_of(session, "a").baselines.path(4))
    baseline.unlink()  # the query has read it
    for _ in range(2):
        (query,) = run_job(session, job, QueryMode.DRAIN)
        assert accumulated(tmp_path / "out") == Counter((("id", id), ("v", v)) for id, v in held)
    assert starts_of(query) == {"a": ["4"]}
    assert query.report().rows_in == {"a": 7}
    assert not baseline.exists()


def changes(chance: random.Random, seconds: int) -> list[Row]:
    """Changes of few keys within so many seconds, some of them deletes, in any order; of more than 6 some are late."""
    return [
        (chance.randrange(6), chance.choice("uvwxyz"), 100 + chance.randrange(seconds), chance.choice([1, 1, 1, -1]))
        for _ in range(8)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["versioned_kv", "changelog_kv"])
@pytest.mark.parametrize(
    "text", [JOIN, "SELECT a.v, count(*) AS n, min(b.v) AS w FROM a JOIN b ON a.id = b.id GROUP BY a.v"]
)
def test_results_are_those_of_all_rows(session: Session, tmp_path: Path, mode: str, text: str) -> None:
    chance = random.Random(7)
    for stream in "ab":
        session.sql(STREAM.format(stream, mode))
        for _ in range(4):
            insert(session, stream, *changes(chance, 9))
    results = Counter[tuple[object, ...]]()
    for number in range(3):
        (of_baselines,) = run_job(session, f"INSERT INTO out {text}", QueryMode.DRAIN)
        (of_all,) = run_job(session, f"INSERT INTO out_all {text}{ALL_ROWS}", QueryMode.DRAIN)
        assert starts_of(of_baselines) == {"a": ["3"], "b": ["3"]}
        assert starts_of(of_all) == {}
        assert sum(of_all.report().rows_in.values()) == 2 * 32 + number * 2 * 16
        assert sum(of_baselines.report().rows_in.values()) == 2 * 6 + number * 2 * 16
        assert of_all.report().late == of_baselines.report().late
        assert accumulated(tmp_path / "out") == accumulated(tmp_path / "out_all") != results
        results = accumulated(tmp_path / "out")
        for stream in "ab":
            insert(session, stream, *changes(chance, 9))
            insert(session, stream, *changes(chance, 9))


# -- which queries -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_which_queries_begin_with_a_baseline(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.sql(
        STREAM.format("a", "versioned_kv")
        + "CREATE STREAM o (id INT, sec BIGINT, WATERMARK FOR sec AS sec) WITH (event_time_unit = 's');"
    )
    chosen: list[int | None] = []
    read_stream = EmbeddedLog.read_stream

    def observed(log: EmbeddedLog, spark: SparkSession, columns: StructType, *others: Any) -> DataFrame:
        if Path(str(log.folder)).name == "a":
            chosen.append(others[1])
        return read_stream(log, spark, columns, *others)

    monkeypatch.setattr(EmbeddedLog, "read_stream", observed)

    def baseline_of(text: str, starts: Starts | None, seek: Seek | None = None) -> int | None:
        (statement,) = parse(text)
        assert isinstance(statement, Select)
        plan = plan_query(statement.query, session.streams.by_name())
        session.streams.sources(plan, limited=False, seek=seek, starts=starts)
        return chosen.pop()

    for number in range(3):
        insert(session, "a", (number, "v", 10, 1))
    by_newest = "SELECT id, v FROM a"
    as_of = "SELECT o.id, a.v FROM o JOIN a FOR SYSTEM_TIME AS OF o.sec ON o.id = a.id"
    new, of_versions, since = Starts(None), Starts(None), Starts(None)
    assert baseline_of(as_of, of_versions) is None
    assert baseline_of(by_newest, None) is None  # a SELECT taken as a DataFrame: only Spark keeps its checkpoint
    assert baseline_of(by_newest, since, Seek(to="time", since=0)) is None
    assert since.found == {}
    assert log_of(session, "a").baselines.newest() is None
    assert baseline_of(by_newest, new) == 2
    assert baseline_of(by_newest, Starts(None), Seek(to="earliest")) == 2
    # a checkpoint goes on with what it began with, whatever its query asks for now
    for number in range(3):
        insert(session, "a", (number, "v", 10, 1))
    assert baseline_of(f"{by_newest} SETTINGS max_future = '1 hour'", Starts(new.found)) == 2
    assert baseline_of(by_newest, Starts(of_versions.found)) is None
    assert baseline_of(by_newest, Starts({})) is None  # made before there were baselines
    assert baseline_of(by_newest, Starts(None)) == 5


# -- kills -------------------------------------------------------------------------------------------------------------

#: A job in a process of its own, which kills itself: before a baseline is published, before the plan file is written,
#: before the first batch is written; or it goes on until it is killed.
SCRIPT = """
import os, signal, sys
import watersmeet
from watersmeet.connectors.embedded import baselines
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.micro_batches import MicroBatches
from watersmeet.runtime.query_mode import QueryMode

def die(*args, **kwargs):
    os.killpg(0, signal.SIGKILL)  # with the JVM

moment, workspace, job = sys.argv[1:]
dies_before = {
    "staged": (baselines.Baselines, "publish"),
    "published": (Checkpoint, "write_plan"),
    "planned": (MicroBatches, "_write"),
}
if moment in dies_before:
    setattr(*dies_before[moment], die)
baselines.WORTH_SEGMENTS = 3
session = watersmeet.connect(master="local[2]", workspace=workspace, config={"spark.sql.shuffle.partitions": "2"})
(started,) = session.run(job, QueryMode.CONTINUOUS)
started.query.wait()
"""


@contextmanager
def process(folder: Path, moment: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The job, which is killed in the end."""
    command = [sys.executable, "-c", SCRIPT, moment, str(folder / "workspace"), f"INSERT INTO out {JOIN}"]
    with (folder / "log.txt").open("ab") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(60)


def commits(session: Session) -> int:
    return sum(path.name.isdigit() for path in session.workspace.glob("queries/*/spark/commits/*"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_query_that_is_killed_at_any_moment(session: Session, tmp_path: Path) -> None:
    chance = random.Random(11)

    def more(count: int) -> None:
        for _ in range(count):
            for stream in "ab":
                insert(session, stream, *changes(chance, 6))

    for stream in "ab":
        session.sql(STREAM.format(stream, "versioned_kv"))
    more(3)
    logs = [log_of(session, stream) for stream in "ab"]
    for moment, published in [("staged", None), ("published", 3), ("planned", 3)]:
        with process(tmp_path, moment) as dying:
            assert dying.wait(300) == -signal.SIGKILL, (tmp_path / "log.txt").read_text()
        assert {log.baselines.newest() for log in logs} == {published}
        more(1)
    assert commits(session) == 0

    Path(logs[0].baselines.path(3)).unlink()  # it is made again
    more(3)  # by now a new query would make another baseline; this one goes on with its own
    for kill_at in (1, 3):
        with process(tmp_path) as running:
            deadline = time.monotonic() + 300
            while commits(session) < kill_at:
                assert running.poll() is None, (tmp_path / "log.txt").read_text()
                assert time.monotonic() < deadline
                more(1)
                time.sleep(0.5)
    (query,) = run_job(session, f"INSERT INTO out {JOIN}", QueryMode.DRAIN)
    assert starts_of(query) == {"a": ["3"], "b": ["3"]}
    run_job(session, f"INSERT INTO out_all {JOIN}{ALL_ROWS}", QueryMode.DRAIN)
    assert accumulated(tmp_path / "out") == accumulated(tmp_path / "out_all")
    # each row of the baselines and of later segments has been read once
    held = sum(session.spark.read.parquet(str(log.baselines.path(3))).count() for log in logs)
    later = sum(len(list(Path(str(log.folder)).glob("*.parquet"))) - 4 for log in logs)
    assert sum(query.report().rows_in.values()) == held + 8 * later
