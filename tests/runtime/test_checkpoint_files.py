"""How Spark writes the files of a checkpoint: by plain renames on a local disk, by its default anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from watersmeet.runtime.checkpoint_files import BY_RENAMES, plain_renames

PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"
SETTING = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN = f"{PACKAGE}.FileSystemBasedCheckpointFileManager"
OTHER = f"{PACKAGE}.FileContextBasedCheckpointFileManager"


@pytest.fixture
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark as users have it: the tests' own chooses a class for all of them."""
    chosen = {name: spark.conf.get(name, None) for name in BY_RENAMES}
    for name in chosen:
        spark.conf.unset(name)
    yield spark
    for name, value in chosen.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def setting_of_a_query(spark: SparkSession, folder: str, checkpoint: Path) -> object:
    """What a query has that is started on a checkpoint, once Spark's session is as before."""
    before = spark.conf.get(SETTING, None)
    with started(spark, folder, checkpoint) as session:
        assert spark.conf.get(SETTING, None) == before
        found = session.conf().getOption(SETTING)
        return found.get() if found.isDefined() else None


@contextmanager
def started(spark: SparkSession, folder: str, checkpoint: Path) -> Iterator[Any]:
    """The JVM's session of a query that runs on a checkpoint."""
    rows = spark.readStream.format("rate").load().writeStream.format("noop")
    with plain_renames(spark, folder):
        query: Any = rows.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query._jsq.streamingQuery().sparkSessionForStream()
    finally:
        query.stop()


def written_twice(spark: SparkSession, session: Any, path: Path) -> str:
    """What a file holds that is written "first", and then "second", with the settings of a session."""
    jvm: Any = spark._jvm
    folder, file = (jvm.org.apache.hadoop.fs.Path(f"file:{each}") for each in (path.parent, path))
    manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
        folder, session.sessionState().newHadoopConf()
    )
    for text in ("first", "second"):
        stream = manager.createAtomic(file, True)
        stream.write(text.encode())
        stream.close()
    return path.read_text()


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_file_that_is_written_again_is_replaced(plain: SparkSession, tmp_path: Path, is_chosen: bool) -> None:
    """Also where the user has chosen the class, without a file system that it can work with."""
    if is_chosen:
        plain.conf.set(SETTING, PLAIN)
    with started(plain, str(tmp_path), tmp_path / "q") as session:
        assert written_twice(plain, session, tmp_path / "file") == "second"


def test_so_it_is_in_the_tests_own_session(spark: SparkSession, tmp_path: Path) -> None:
    assert written_twice(spark, spark._jsparkSession, tmp_path / "file") == "second"


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_query_on_a_local_disk_renames_plainly(plain: SparkSession, tmp_path: Path, scheme: str) -> None:
    assert setting_of_a_query(plain, f"{scheme}{tmp_path}/q", tmp_path / "q") == PLAIN


def test_elsewhere_sparks_default_stays(plain: SparkSession, tmp_path: Path) -> None:
    assert setting_of_a_query(plain, "webhdfs://localhost:1/q", tmp_path / "q") is None


def test_what_the_user_has_chosen_stays(plain: SparkSession, tmp_path: Path) -> None:
    plain.conf.set(SETTING, OTHER)
    assert setting_of_a_query(plain, str(tmp_path), tmp_path / "q") == OTHER


def test_the_setting_goes_if_the_query_does_not_start(plain: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), plain_renames(plain, str(tmp_path)):
        raise ZeroDivisionError
    assert plain.conf.get(SETTING, None) is None
