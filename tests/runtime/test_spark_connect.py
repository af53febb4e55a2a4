"""Spark Connect, which Watersmeet cannot use, is refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import watersmeet
from watersmeet.errors import ConfigError

REFUSAL = "Watersmeet needs a classic Spark session, not one of Spark Connect"


class ConnectSession:
    """Stands in for PySpark's: a session without the driver's JVM."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"[JVM_ATTRIBUTE_NOT_SUPPORTED] {name}")


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_a_connect_session(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=REFUSAL) as raised:
        watersmeet.connect(cast(Any, ConnectSession()), tmp_path)
    assert "SparkSession.builder.master" in str(raised.value.hint)


def test_settings_that_would_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=REFUSAL):
        watersmeet.connect(workspace=tmp_path, config={"spark.remote": "sc://host"})
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(ConfigError, match=REFUSAL):
        watersmeet.connect(workspace=tmp_path)
