"""A session and new topics for queries in real time on Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.kafka_broker import Broker
from watersmeet import Session


@pytest.fixture
def new_topic(spark: SparkSession, broker: Broker) -> Callable[[int], str]:
    def new(partitions: int = 2) -> str:
        name = f"t{uuid.uuid4().hex}"
        broker.create_topic(spark, name, partitions)
        return name

    return new


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    yield session
    session.stop()
