"""One schema registry for all tests of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.schema_registry import RegistryServer, schema_registry


@pytest.fixture(scope="session")
def registry() -> Iterator[RegistryServer]:
    with schema_registry() as running:
        yield running
