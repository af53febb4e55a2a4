"""The place that a workspace names, and statements on one that is taken for a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.store_folder import StoreFolder, place_of
from watersmeet.session.results import Batch
from watersmeet.session.session import Session


def test_the_place_that_is_named(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of(spark, "w") == place_of(spark, Path("w")) == tmp_path / "w"
    assert place_of(spark, f"file://{tmp_path}/w") == place_of(spark, f"file:{tmp_path}/w") == tmp_path / "w"


def test_a_place_that_spark_does_not_reach(spark: SparkSession) -> None:
    with pytest.raises(ConfigError) as raised:
        place_of(spark, "nowhere://bucket/team")
    assert raised.value.message == (
        "nowhere://bucket/team cannot be the workspace: "
        'nowhere://bucket/team cannot be used: No FileSystem for scheme "nowhere"'
    )
    assert "s3a://BUCKET/FOLDER" in str(raised.value.hint)


def test_statements_on_a_store(spark: SparkSession, tmp_path: Path) -> None:
    sessions = [Session(spark, StoreFolder(f"file:{tmp_path}", Storage(spark))) for _ in range(2)]
    sessions[0].sql("CREATE STREAM kept (id INT, name STRING)")
    for number, session in enumerate(sessions):
        session.sql(f"INSERT INTO kept VALUES ({number}, 'a')")
    found = sessions[1].sql("SELECT id FROM table(kept) ORDER BY id")
    assert isinstance(found, Batch)
    assert [row.id for row in found.frame.collect()] == [0, 1]
    assert sorted(path.name[:12] for path in (tmp_path / "streams" / "kept").glob("*.parquet")) == [
        "000000000000",
        "000000000001",
    ]
    with pytest.raises(ConfigError, match="is no folder of this machine"):
        _ = sessions[0].workspace
    sessions[0].sql("DROP STREAM kept")
    assert not (tmp_path / "streams" / "kept").exists()
    assert not sessions[1].streams.by_name()
