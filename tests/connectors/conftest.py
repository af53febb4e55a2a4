"""The Kafka broker of the connector tests, and the PostgreSQL server that lookups are tested with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from tests.lookup.conftest import postgres, server
from tests.support.kafka_broker import Broker, kafka_broker

__all__ = ["broker", "postgres", "server", "struct_of"]


def struct_of(ddl: str) -> StructType:
    """Declared columns, written as in CREATE STREAM; needs a running session."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with kafka_broker() as running:
        yield running
