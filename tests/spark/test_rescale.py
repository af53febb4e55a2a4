"""Queries that get other buckets between two runs give what they would have given, and their batches go on."""

from __future__ import annotations

import ast
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.conftest import ALL
from tests.support.jobs import PATIENCE_SECONDS
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.errors import CatalogError, CheckpointError, ConfigError, ConnectorError, WatersmeetError
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.rescale import switch
from watersmeet.runtime.storage import Storage
from watersmeet.session.results import Started
from watersmeet.session.session import Session
from watersmeet.testing.harness import Harness, StepInput, load_script

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
    "temporal": "SELECT a.id, a.v, b.w FROM a LEFT ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.id = b.id"
    " EMIT CHANGELOG",
    "upsert": "SELECT id, x FROM m",
    "changing": "SELECT a.v, m.x FROM a LEFT JOIN m ON a.id = m.id",
    "global": "SELECT count(), sum(a.v), min(b.w) FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS",
    "distinct": "SELECT count(DISTINCT a.v) FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS",
    "hot": "SELECT a.id, a.v, b.w FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS",
    "limited": "SELECT a.id, a.v, b.w FROM a JOIN b ON a.id = b.id",
    "task": "SELECT a.id, count() AS n, max(b.w) AS w FROM a LEFT JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS"
    " GROUP BY a.id",
    "nested": "WITH n AS (SELECT id, v, sum(v) AS s FROM a GROUP BY id, v), m AS (SELECT id, max(s) AS top FROM n"
    " GROUP BY id) SELECT n.id, n.v, m.top FROM n JOIN m ON n.id = m.id AND n.s >= m.top",
    "ordered": "SELECT a.id, a.ts, b.w FROM a JOIN b ON a.id = b.id WITHIN INTERVAL '6' SECONDS ORDER BY a.ts",
}
SETTINGS = {"hot": ", skew_rows = 1", "limited": ", join_max_buffered_bytes = 20000"}


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


def given(query: str, fed: Sequence[dict[str, str]]) -> Counter[tuple[Any, ...]]:
    """What the query gives in the harness, which needs no Spark."""
    harness, total = Harness(*load_script(STREAMS + query)), Counter[tuple[Any, ...]]()
    for number, rows in enumerate(fed):
        inputs = {name: StepInput(tuple(ast.literal_eval(f"[{values}]"))) for name, values in rows.items()}
        read = {name: each for name, each in inputs.items() if harness.inputs_of(name)}
        for weight, row in harness.step(read, [Event(EventKind.END)] if number == len(fed) - 1 else []).changes:
            total[row] += weight
    return +total


@pytest.mark.slow  # in every run tests/real_time/test_statement_sets.py goes on with other buckets
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_goes_on_with_other_buckets(spark: SparkSession, tmp_path: Path, name: str) -> None:
    fed = pieces(7, 6 if ALL else 3)
    job = Job(spark, tmp_path, f"{QUERIES[name]} SETTINGS buckets = 4{SETTINGS.get(name, '')}")
    numbers = (4, 4, 7, 3, 1, 5)
    hot: list[int] = []
    for number, rows in enumerate(fed):
        if number > 1:
            (done,) = job.session.rescale(job.query, numbers[number])
            assert (done.before, done.after) == (numbers[number - 1], numbers[number])
        job.takes(rows, QueryMode.BOUNDED if number == len(fed) - 1 else QueryMode.DRAIN)
        assert folders(job) == [f"spark-{number - 1}" if number > 1 else "spark"]
        # what is beside Spark's checkpoint goes on with the query's numbers
        if numbers[number] > 1:  # one bucket need not tell others its size
            assert logged(job, "sizes") in ([], [job.batches[-1]])
        hot = logged(job, "hot_keys")
    assert bool(hot) == (name == "hot")
    assert +job.total == given(QUERIES[name], fed)
    assert job.batches == list(range(len(job.batches)))


def logged(job: Job, log: str) -> list[int]:
    """The newest batch of which a log beside the checkpoint holds something, if any does."""
    found = list((job.session.workspace / "queries").glob(f"*/{log}/*/*/*"))
    return [max(int(path.name.removesuffix(".json")) for path in found)] if found else []


def folders(job: Job) -> list[str]:
    """Where the query's state is."""
    (checkpoint,) = (job.session.workspace / "queries").iterdir()
    return sorted(path.name for path in checkpoint.iterdir() if path.name.startswith(("spark", "rescaled")))


@pytest.mark.slow
def test_a_batch_that_began_before_gets_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    fed = pieces(8, 3)
    job = Job(spark, tmp_path, QUERIES["left"])
    job.takes(fed[0])
    seen: list[tuple[int, list[Any]]] = []

    def fails(names: Sequence[str], changes: Any, batch: int) -> None:
        seen.append((batch, sorted(changes, key=repr)))
        raise ConnectorError("the sink has taken the rows, and ends before it says so")

    job.session.show = fails
    with pytest.raises(WatersmeetError):
        job.takes(fed[1])
    job.session.rescale(job.query, 7)

    def shows(names: Sequence[str], changes: Any, batch: int) -> None:
        seen.append((batch, sorted(changes, key=repr)))
        job._show(names, changes, batch)

    job.session.show = shows
    job.takes(fed[2], QueryMode.BOUNDED)
    first, again, *_ = seen
    assert first == again
    assert first[1]
    assert +job.total == given(QUERIES["left"], fed)


WRITES = ("write_text", "copy", "make_folder", "delete")


@pytest.mark.slow
def test_a_change_that_is_broken_off_begins_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each write of the driver in turn; after every second one the query goes on as it was."""
    fed = pieces(9, 8)
    job = Job(spark, tmp_path, f"{QUERIES['chain']} SETTINGS buckets = 4")
    job.takes(fed[0])
    taken = 1
    done = None
    for broken in itertools.count():
        with monkeypatch.context() as patched:
            called = after(broken)
            for name in WRITES:
                patched.setattr(Storage, name, before(getattr(Storage, name), called))
            try:
                (done,) = job.session.rescale(job.query, 7)
                break
            except Broken:
                pass
        (checkpoint,) = (job.session.workspace / "queries").iterdir()
        assert json.loads((checkpoint / "plan.json").read_text())["version"] == 2
        if broken % 2 and taken < len(fed) - 2:
            job.takes(fed[taken])
            taken += 1
    assert done is not None
    assert done.after == 7
    assert broken > 5
    for rows in fed[taken:-1]:
        job.takes(rows)
    job.takes(fed[-1], QueryMode.BOUNDED)
    assert +job.total == given(QUERIES["chain"], fed)
    assert folders(job) == ["spark-1"]


class Broken(BaseException):
    """Nothing catches it, as nothing runs after a kill."""


def after(calls: int) -> Callable[[], None]:
    left = iter(range(calls))

    def call() -> None:
        if next(left, None) is None:
            raise Broken

    return call


def before(write: Any, called: Callable[[], None]) -> Any:
    def wrapped(*args: Any, **options: Any) -> Any:
        called()
        return write(*args, **options)

    return wrapped


@pytest.mark.slow
def test_what_cannot_be_done_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path, f"{QUERIES['left']} SETTINGS buckets = 4")
    rescale = job.session.rescale
    for number in (0, -1, 4097):
        with pytest.raises(ConfigError, match=f"^a query cannot have {number} buckets"):
            rescale(job.query, number)
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        rescale(job.query, 7)
    with pytest.raises(CatalogError, match="the job has no query nothing"):
        rescale(job.query, 7, query="nothing")
    with pytest.raises(CatalogError, match="the job starts no query"):
        rescale("SHOW STREAMS", 7)
    fed = pieces(3, 2)
    job.takes(fed[0])
    (tried,) = rescale(job.query, 7, dry_run=True)
    assert [(each.name, each.before, each.after, each.why) for each in tried.operators] == [("join_1", 4, 7, "")]
    assert tried.operators[0].rows > 0
    assert folders(job) == ["spark"]
    (started,) = job.session.run(job.query)
    assert isinstance(started, Started)
    with pytest.raises(CatalogError, match="is running already"):
        rescale(job.query, 7)
    started.query.stop()
    # SETTINGS that were never true are refused; those that were may stay
    (checkpoint,) = (job.session.workspace / "queries").iterdir()
    plan = checkpoint / "plan.json"
    rescale(job.query, 7)
    Path(checkpoint, ".plan.json.crc").unlink()
    text = plan.read_text()
    plan.write_text(text.replace('"said_buckets": 4', '"said_buckets": null'))
    with pytest.raises(CheckpointError, match="SETTINGS buckets = 4, but the query's checkpoint has 7") as raised:
        job.takes({})
    assert "watersmeet rescale" in str(raised.value.hint)
    plan.write_text(text.replace('"version": 3', '"version": 9'))
    with pytest.raises(CheckpointError, match="plan format 9, this version reads 2 and 3"):
        rescale(job.query, 5)
    plan.write_text(text)
    job.takes(fed[1], QueryMode.BOUNDED)
    with pytest.raises(CheckpointError, match="is sealed"):
        rescale(job.query, 5)
    assert +job.total == given(QUERIES["left"], fed)


@pytest.mark.slow
def test_a_query_that_runs_elsewhere_is_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in another process, where it is not seen: its next batch ends it, and the new buckets take its rows."""
    fed = pieces(4, 3)
    job = Job(spark, tmp_path, QUERIES["left"])
    job.takes(fed[0])
    (elsewhere,) = job.session.run(job.query)
    assert isinstance(elsewhere, Started)
    other = watersmeet.connect(spark, tmp_path)
    with pytest.raises(CheckpointError, match="is running in another session of this Spark"):
        other.rescale(job.query, 5)
    monkeypatch.setattr(switch, "refuse_running", lambda *_: None)
    other.rescale(job.query, 5)
    job.session.sql(f"INSERT INTO a VALUES {fed[1]['a']}")
    with pytest.raises(CheckpointError, match="was changed while this query ran on it"):
        elsewhere.query.wait(PATIENCE_SECONDS)
    job.takes({"b": fed[1]["b"]})
    job.takes(fed[2], QueryMode.BOUNDED)
    assert +job.total == given(QUERIES["left"], fed)
