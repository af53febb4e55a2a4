"""The Kafka broker of the connector tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from tests.support.kafka_broker import Broker, kafka_broker


def struct_of(ddl: str) -> StructType:
    """Declared columns, written as in CREATE STREAM; needs a running session."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with kafka_broker() as running:
        yield running
