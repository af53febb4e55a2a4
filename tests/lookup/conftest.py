"""The PostgreSQL server of the lookup tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import Postgres, PostgresNotFoundError, postgres_server
from watersmeet.lookup.connections import close_all


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    try:
        with postgres_server() as running:
            yield running
    except PostgresNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def postgres(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    """The running server; its password is in the environment, where options refer to it."""
    monkeypatch.setenv("LOOKUP_TEST_PASSWORD", server.password)
    yield server
    close_all()
    if server.process is None:
        server.start()
