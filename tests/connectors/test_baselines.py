"""Baselines of embedded streams: the files, which rows they hold, and which numbers come after theirs."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.connectors.embedded import baselines
from watersmeet.connectors.embedded.baselines import Baselines, numbers_after
from watersmeet.connectors.embedded.connector import EmbeddedLog
from watersmeet.connectors.stream_schema import stored_schema
from watersmeet.errors import CheckpointError
from watersmeet.expressions.event_time import TimeUnit

NUMBERS = st.one_of(
    st.integers(0, 300), st.integers(0, 10**12 - 1), st.builds(lambda exponent: 10**exponent - 1, st.integers(1, 12))
)
STREAM = StreamDef(
    name="k",
    columns=tuple(StreamColumn(name=name, type=kind) for name, kind in [("k", "INT"), ("v", "STRING"), ("sec", "INT")]),
    time_column="sec",
    time_unit=TimeUnit.SECONDS,
    mode=StreamMode.VERSIONED,
    primary_key=("k",),
)
Row = tuple[int | None, str, int | None, int]


# -- numbers -----------------------------------------------------------------------------------------------------------


@given(NUMBERS, NUMBERS)
def test_the_glob_matches_greater_numbers_and_no_others(number: int, other: int) -> None:
    pattern = numbers_after(number).replace("{", "(?:").replace("}", ")").replace(",", "|")
    for each in (other, number - 1, number, number + 1, number + 2, 10 * number):
        if 0 <= each < 10**12:
            assert (re.fullmatch(pattern, f"{each:012d}") is not None) == (each > number), each


def test_hadoop_reads_the_glob_so(spark: SparkSession) -> None:
    assert spark._jvm is not None
    pattern = spark._jvm.org.apache.hadoop.fs.GlobPattern(f"{numbers_after(109)}-*.parquet")
    found = [each for each in range(1200) if pattern.matches(f"{each:012d}-insert-0a.parquet")]
    assert found == list(range(110, 1200))


# -- files -------------------------------------------------------------------------------------------------------------


def staged(folder: Path) -> Path:
    path = folder / "staged.parquet"
    path.touch()
    return path


def test_a_baseline_has_the_time_of_its_last_segment_and_never_changes(tmp_path: Path) -> None:
    found = Baselines(tmp_path)
    assert found.newest() is None
    segment = tmp_path / "segment"
    segment.touch()
    os.utime(segment, ns=(1_700_000_000_123_000_000,) * 2)
    found.publish(staged(tmp_path), 7, segment)
    assert found.path(7).name == "000000000007.parquet"
    assert found.path(7).stat().st_mtime_ns == 1_700_000_000_123_000_000
    first = found.path(7).stat().st_ino
    found.publish(staged(tmp_path), 7, segment)
    assert found.path(7).stat().st_ino == first
    found.publish(staged(tmp_path), 12, segment)
    assert found.newest() == 12
    assert [found.hold(until) for until in (6, 7, 11, 99)] == [None, 7, 7, 12]
    assert found.path(7).stat().st_mtime_ns == 1_700_000_000_123_000_000


def test_superseded_baselines_are_deleted_after_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Baselines(tmp_path)
    now, day = time.time(), 24 * 3600

    def published(number: int, *, days: float) -> list[int]:
        monkeypatch.setattr(time, "time", lambda: now + days * day)
        found.publish(staged(tmp_path), number, tmp_path)
        return sorted(int(path.stem) for path in found.folder.iterdir())

    assert published(1, days=0) == [1]
    assert published(2, days=6.9) == [1, 2]
    # all have been moved here just now, as the clock of the files goes on; the newest always stays
    assert published(3, days=7.1) == [3]


def test_a_baseline_that_is_held_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Baselines(tmp_path)
    found.publish(staged(tmp_path), 1, tmp_path)
    found.publish(staged(tmp_path), 2, tmp_path)
    time.sleep(1.2)
    monkeypatch.setattr(baselines, "_SUPERSEDED_SECONDS", 1)
    found.hold(1)
    found.publish(staged(tmp_path), 3, tmp_path)
    assert [found.hold(number) for number in (1, 2, 3)] == [1, 2, 3]  # the next after 2 is new


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedLog:
    monkeypatch.setattr(baselines, "WORTH_SEGMENTS", 2)
    return EmbeddedLog(tmp_path / "log")


def append(spark: SparkSession, log: EmbeddedLog, *segments: list[Row]) -> None:
    for rows in segments:
        number = len(list(Path(str(log.folder)).glob("*.parquet")))
        log.append_frame(spark.createDataFrame(rows, stored_schema(STREAM)), f"w-{number}")


def read(spark: SparkSession, log: EmbeddedLog, baseline: int | None) -> list[tuple[object, ...]]:
    frame = log.read_stored(spark, stored_schema(STREAM), baseline)
    return sorted(map(tuple, frame.select("k", "v", "sec", "_tp_delta").collect()), key=repr)


@pytest.mark.slow
def test_the_newest_row_of_each_key_and_all_bad_ones(spark: SparkSession, log: EmbeddedLog) -> None:
    first: list[Row] = [(1, "old", 10, 1), (2, "tie", 10, 1), (3, "gone", 10, 1), (None, "no key", 10, 1)]
    append(spark, log, [*first, (4, "no time", None, 1), (5, "0", 10, 0)])
    assert log.newest_start(spark, STREAM) == {}  # one segment is not worth it
    append(spark, log, [(1, "older", 9, 1), (2, "later", 10, 1), (3, "gone", 11, -1), (None, "no key", 10, 1)])
    start = log.newest_start(spark, STREAM)
    assert list(start) == [1]
    bad = [(4, "no time", None, 1), (5, "0", 10, 0), (None, "no key", 10, 1), (None, "no key", 10, 1)]
    assert read(spark, log, 1) == sorted([(1, "old", 10, 1), (2, "later", 10, 1), (3, "gone", 11, -1), *bad], key=repr)
    times = log.read_stored(spark, stored_schema(STREAM), 1).where("v = 'old'").select("_tp_time").collect()
    assert times == log.read_stored(spark, stored_schema(STREAM)).where("v = 'old'").select("_tp_time").collect()
    # the next begins with it; what came since then may be older, and counts in a tie
    append(spark, log, [(2, "last", 10, 1), (1, "older", 9, 1)])
    assert log.newest_start(spark, STREAM) == start
    append(spark, log, [(3, "back", 12, 1)])
    newer = log.newest_start(spark, STREAM)
    assert list(newer) == [3]
    assert read(spark, log, 3) == sorted([(1, "old", 10, 1), (2, "last", 10, 1), (3, "back", 12, 1), *bad], key=repr)
    # places: those of the baseline are after its segments and before all others
    append(spark, log, [(6, "new", 13, 1)])
    number = F.substring(F.col("_seq").cast("string"), 1, 12).cast("int").alias("number")
    placed = log.read_stored(spark, stored_schema(STREAM), 3).select("v", number).collect()
    assert {row.v: row.number for row in placed} == dict.fromkeys(
        ("old", "last", "back", "no time", "0", "no key"), 3
    ) | {"new": 4}


@pytest.mark.slow
def test_segments_without_rows(spark: SparkSession, log: EmbeddedLog) -> None:
    append(spark, log, [], [])
    assert list(log.newest_start(spark, STREAM)) == [1]
    append(spark, log, [(1, "a", 1, 1)])
    assert read(spark, log, 1) == [(1, "a", 1, 1)]


@pytest.mark.slow
def test_a_baseline_that_is_gone_is_made_again_unless_it_has_been_read(spark: SparkSession, log: EmbeddedLog) -> None:
    append(spark, log, [(1, "a", 1, 1)], [(1, "b", 2, 1)])
    start = log.newest_start(spark, STREAM)
    append(spark, log, [(1, "c", 3, 1)], [(1, "d", 4, 1)])
    log.newest_start(spark, STREAM)
    Path(log.baselines.path(1)).unlink()
    assert log.baseline_of(start, spark, STREAM, has_read=True) == 1
    assert not Path(log.baselines.path(1)).exists()
    assert log.baseline_of(start, spark, STREAM, has_read=False) == 1
    made: DataFrame = spark.read.parquet(str(log.baselines.path(1)))
    assert [row.v for row in made.collect()] == ["b"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", [1, 9])
def test_a_log_that_is_another_one_now(spark: SparkSession, log: EmbeddedLog, number: int) -> None:
    append(spark, log, [(1, "a", 1, 1)], [(1, "b", 2, 1)])
    found = "is another one" if number == 1 else "does not exist"
    with pytest.raises(CheckpointError) as raised:
        log.baseline_of({number: 5}, spark, STREAM, has_read=True)
    assert str(raised.value) == (
        f"k: the query began with the newest rows up to segment {number}, but that segment {found}\n"
        f"the stream has been dropped and created again, or files are missing in {log.folder}\n"
        "hint: start on a new checkpoint, or restore the folder from a copy"
    )
