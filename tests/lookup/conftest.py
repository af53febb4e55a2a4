"""The database servers of the lookup tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.debian import ServerNotFoundError
from tests.support.mariadb import MariaDb, mariadb_server
from tests.support.postgres import Postgres, postgres_server
from watersmeet.lookup.connections import close_all


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    try:
        with postgres_server() as running:
            yield running
    except ServerNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def postgres(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    """The running server; its password is in the environment, where options refer to it."""
    monkeypatch.setenv("LOOKUP_TEST_PASSWORD", server.password)
    yield server
    close_all()
    if server.process is None:
        server.start()


@pytest.fixture(scope="session")
def mariadb_process() -> Iterator[MariaDb]:
    try:
        with mariadb_server() as running:
            yield running
    except ServerNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def mariadb(mariadb_process: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[MariaDb]:
    """The running server; its password is in the environment, where options refer to it."""
    monkeypatch.setenv("MARIADB_TEST_PASSWORD", mariadb_process.password)
    yield mariadb_process
    close_all()
    if mariadb_process.process is None:
        mariadb_process.start()
