"""State read without Spark is what Spark reads; queries go on from copies as if they had never been copied."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ALL
from tests.spark.test_rescale import QUERIES, SETTINGS, Job, given, pieces
from tests.support.jobs import PATIENCE_SECONDS
from watersmeet.runtime.inspection.copy import copy_checkpoint
from watersmeet.runtime.inspection.stored_query import open_partitions, partition_of, read_plan, read_query
from watersmeet.runtime.inspection.verify import verify
from watersmeet.runtime.processor import STATE
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def spark_entries(spark: SparkSession, folder: str, operator: int, batch: int) -> dict[tuple[int, str], bytes]:
    """What Spark's own reader finds in the state of an operator after a batch."""
    reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", STATE)
    rows = reader.option("batchId", batch).load(folder).collect()
    return {(row.key.bucket, row.user_map_key.name): bytes(row.user_map_value.value) for row in rows}


def everything(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def read_like_spark(spark: SparkSession, path: Path) -> int:
    """Compare every value of every version of the state with what Spark finds; return how many there are."""
    query, count = read_query(str(path)), 0
    assert query.batch is not None
    known: dict[int, set[tuple[int, str]]] = {}
    for batch in range(query.batch + 1):
        partitions = open_partitions(query.files, read_plan(query.files), batch)
        for operator in {each for each, _ in partitions}:
            entries = spark_entries(spark, str(path / "spark"), operator, batch)
            assert entries
            names = known.setdefault(operator, set())
            names.update(entries)
            for bucket, entry in names:  # what has been deleted is not found
                found = partition_of(bucket, operator, partitions).get(bucket, entry)
                assert found == entries.get((bucket, entry)), (batch, bucket, entry)
            count += len(entries)
    return count


def checkpoint_of(job: Job) -> Path:
    (path,) = (job.session.place / "queries").iterdir()  # type: ignore[union-attr]
    return Path(path)


def resumed(job: Job, folder: Path, fed: Sequence[dict[str, str]]) -> Counter[tuple[Any, ...]]:
    """What the job gives from the copies in a folder, to the end of its input."""
    changes: Counter[tuple[Any, ...]] = Counter()

    def show(names: Sequence[str], rows: Any, batch: int) -> None:
        for weight, row in rows:
            changes[tuple(row)] += weight

    job.session.show = show
    for number, rows in enumerate(fed):
        for stream, values in rows.items():
            job.session.sql(f"INSERT INTO {stream} VALUES {values}")
        mode = QueryMode.BOUNDED if number == len(fed) - 1 else QueryMode.DRAIN
        for result in job.session.run(job.query, mode, checkpoint=str(folder)):
            assert isinstance(result, Started)
            assert result.query.wait(PATIENCE_SECONDS)
    return changes


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_goes_on_from_a_copy(spark: SparkSession, tmp_path: Path, name: str) -> None:
    fed = pieces(11, 5 if ALL else 3)
    job = Job(spark, tmp_path / "workspace", f"{QUERIES[name]} SETTINGS buckets = 4{SETTINGS.get(name, '')}")
    for rows in fed[:-1]:
        job.takes(rows)
    path = checkpoint_of(job)
    read_like_spark(spark, path)
    assert verify(str(path)).faults == []
    before, halfway = everything(path), Counter(job.total)
    copied = copy_checkpoint(str(path), str(tmp_path / "savepoint" / path.name))
    assert copied.planned is False
    assert everything(path) == before
    changes = resumed(job, tmp_path / "savepoint", fed[-1:])
    assert +(halfway + changes) == given(job.query, fed)
    assert everything(path) == before, "the copy has changed the original"
    job.session.show = job._show
    job.takes({}, QueryMode.BOUNDED)
    assert +job.total == given(job.query, fed)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_state_is_read_whatever_way_spark_keeps_it(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    """Without changelogs each version is a snapshot of several tables, with several blocks each."""
    prefix = "spark.sql.streaming.stateStore"
    changelogs, compression = f"{prefix}.rocksdb.changelogCheckpointing.enabled", f"{prefix}.compression.codec"
    before = {name: spark.conf.get(name) for name in (changelogs, compression)}
    spark.conf.set(changelogs, str(codec != "none").lower())
    if codec != "none":
        spark.conf.set(compression, codec)
    try:
        job = Job(spark, tmp_path / "workspace", f"{QUERIES['chain']} SETTINGS buckets = 12")
        for rows in pieces(5, 14):
            job.takes(rows)
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
    path = checkpoint_of(job)
    assert bool(list(path.rglob("[0-9]*.changelog"))) == (codec != "none")
    assert read_like_spark(spark, path) > 500
    assert verify(str(path)).faults == []


def test_a_running_query_is_copied_as_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    fed = pieces(3, 6)
    job = Job(spark, tmp_path / "workspace", f"{QUERIES['left']} SETTINGS buckets = 4")
    by_batch: dict[int, Counter[tuple[Any, ...]]] = {}

    def show(names: Sequence[str], rows: Any, batch: int) -> None:
        for weight, row in rows:
            by_batch.setdefault(batch, Counter())[tuple(row)] += weight

    job.session.show = show
    (started,) = job.session.run(job.query, QueryMode.CONTINUOUS)
    assert isinstance(started, Started)
    copies = []
    try:
        for number, rows in enumerate(fed):
            for stream, values in rows.items():
                job.session.sql(f"INSERT INTO {stream} VALUES {values}")
            wait_until(lambda: any((tmp_path / "workspace/queries").glob("*/spark/commits/0")))
            target = tmp_path / f"copy-{number}"
            path = checkpoint_of(job)
            copies.append((target, copy_checkpoint(str(path), str(target / path.name))))
            assert verify(str(target / path.name)).faults == []
    finally:
        started.query.stop()
    for target, copied in copies[:: 1 if ALL else 3]:
        until = sum((by_batch[batch] for batch in by_batch if batch <= copied.batch), Counter[tuple[Any, ...]]())
        changes = resumed(job, target, [{}])
        assert +(until + changes) == given(job.query, fed), copied


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)
