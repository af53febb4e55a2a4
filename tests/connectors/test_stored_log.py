"""The log of an embedded stream on a store: numbers without locks, and every batch once whenever its writer dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.dying_storage import deaths
from watersmeet.connectors.embedded import baselines
from watersmeet.connectors.embedded.stored_log import StoredLog
from watersmeet.errors import CheckpointError
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.store_folder import StoreFolder


def log_in(folder: Path, storage: Storage) -> StoredLog:
    """A log as on a store, on the disk of this machine."""
    return StoredLog(StoreFolder(f"file:{folder}", storage))


def append(log: StoredLog, key: str, text: str = "") -> None:
    """What ``EmbeddedLog.append_frame`` does, with a file that stands for Spark's."""
    if any(name.endswith(f"-{key}.parquet") for name in log.segments().values()):
        return
    staging = log.staging(key)
    folder = Path(staging.removeprefix("file:"))
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_text(text or key)
    log.commit(staging, key)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.parquet"))}


def test_segments_have_numbers_in_the_order_of_their_commits(spark: SparkSession, tmp_path: Path) -> None:
    log = log_in(tmp_path, Storage(spark))
    for key in ("q-1", "q-2", "q-1"):
        append(log, key)
    assert contents(tmp_path) == {"000000000000-q-1.parquet": "q-1", "000000000001-q-2.parquet": "q-2"}
    assert not list(tmp_path.glob("_staging*"))


def test_writers_at_the_same_time_get_a_number_each(spark: SparkSession, tmp_path: Path) -> None:
    keys = [f"w{number}" for number in range(6)]
    with ThreadPoolExecutor(6) as pool:  # and each key has two writers
        list(pool.map(lambda key: append(log_in(tmp_path, Storage(spark)), key), keys * 2))
    found = contents(tmp_path)
    assert sorted(found.values()) == keys
    assert [int(name[:12]) for name in found] == list(range(6))


def test_a_writer_may_die_before_any_write(spark: SparkSession, tmp_path: Path) -> None:
    moments = []
    for writes in deaths(spark, lambda storage: append(log_in(tmp_path / str(storage.left), storage), "b", "dead")):  # type: ignore[attr-defined]
        folder = tmp_path / str(writes)
        log = log_in(folder, Storage(spark))
        if writes % 2:  # another writer comes first
            append(log, "c")
        append(log, "b", "alive")
        found = contents(folder)
        assert [name[13:] for name in found].count("b.parquet") == 1, writes
        assert [int(name[:12]) for name in found] == list(range(len(found)))
        moments.append(writes)
    assert len(moments) >= 3  # the folder, the claim, the move


def test_a_claim_that_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    log = log_in(tmp_path, Storage(spark))
    append(log, "a")
    (tmp_path / "_claims" / "000000000001.json").write_text('{"staged": "x", "target": "y"}')
    with pytest.raises(CheckpointError, match=r"_claims/000000000001.json is damaged"):
        log.segments()


def test_a_segment_that_is_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    log = log_in(tmp_path, Storage(spark))
    append(log, "a")
    (tmp_path / "000000000000-a.parquet").unlink()
    with pytest.raises(CheckpointError, match=r"000000000000-a\.parquet is missing, and so is"):
        log.segments()


def test_baselines_are_made_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "WORTH_SEGMENTS", 2)
    log = log_in(tmp_path, Storage(spark))
    assert log.baselines.newest() is None
    append(log, "a")
    assert not log.baselines.is_due(log.segments())
    append(log, "b")
    assert log.baselines.is_due(log.segments())
    for attempt in ("first", "second"):
        staging = log.staging(f"baseline-{attempt}")
        folder = Path(staging.removeprefix("file:"))
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_text(attempt)
        log.publish_baseline(staging, 1, log.segments()[1])
        assert not folder.exists()
    assert (tmp_path / "_baselines" / "000000000001.parquet").read_text() == "first"
    assert [log.hold_baseline(number) for number in (0, 1, 5)] == [None, 1, 1]
    assert not log.baselines.is_due(log.segments())
