"""How Spark writes the files of a checkpoint: by plain renames on a local disk, by its default anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from watersmeet.runtime.checkpoint_files import plain_renames

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
OTHER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


@pytest.fixture
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark as users have it: the tests' own chooses a class for all of them."""
    chosen = spark.conf.get(SETTING, None)
    spark.conf.unset(SETTING)
    yield spark
    spark.conf.unset(SETTING) if chosen is None else spark.conf.set(SETTING, chosen)


def setting_of_a_query(spark: SparkSession, folder: str, checkpoint: Path) -> object:
    """What a query has that is started on a checkpoint, once Spark's session is as before."""
    before = spark.conf.get(SETTING, None)
    rows = spark.readStream.format("rate").load().writeStream.format("noop")
    with plain_renames(spark, folder):
        query: Any = rows.option("checkpointLocation", str(checkpoint)).start()
    try:
        assert spark.conf.get(SETTING, None) == before
        stream = query._jsq.streamingQuery()
        found = stream.sparkSessionForStream().conf().getOption(SETTING)
        return found.get() if found.isDefined() else None
    finally:
        query.stop()


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
