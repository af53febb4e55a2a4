"""What a table, a server and a user must be like for changes to be read, and what is said where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.test_postgres_changes import clear
from tests.support.planned_batches import PlannedBatches
from tests.support.postgres import Postgres, postgres_server
from tests.support.postgres_changes import connect, newest, planned, stored, subject
from watersmeet.connectors.postgres.reader import inspect
from watersmeet.errors import ConnectorError, OutageError

_SETTINGS = ("wal_level=logical", "max_replication_slots=20", "max_slot_wal_keep_size=48MB", "min_wal_size=32MB")


@pytest.fixture(scope="module")
def logical() -> Iterator[Postgres]:
    with postgres_server(settings=(*_SETTINGS, "max_wal_size=32MB")) as running:
        yield running


@pytest.fixture
def server(logical: Postgres) -> Iterator[Postgres]:
    logical.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v TEXT, n BIGINT)",
        "INSERT INTO t SELECT i, 'v' || i, i FROM generate_series(1, 5) i",
    )
    yield logical
    clear(logical)
    for (role,) in logical.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'role%'"):
        logical.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.sample(13)
@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (["ALTER TABLE t RENAME TO other"], "the database has no table t"),
        (["ALTER TABLE t RENAME n TO m"], "table t has no column n"),
        (["ALTER TABLE t DROP CONSTRAINT t_pkey"], r"no primary key or unique index over \(id\)"),
        (
            ["ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id) DEFERRABLE"],
            r"no primary key or unique index over \(id\)",
        ),
        (["ALTER TABLE t REPLICA IDENTITY NOTHING"], r"does not log the key \(id\)"),
        (
            [
                "ALTER TABLE t DROP CONSTRAINT t_pkey",
                "ALTER TABLE t ADD PRIMARY KEY (n)",
                "CREATE UNIQUE INDEX ON t (id)",
            ],
            r"does not log the key \(id\)",
        ),
        (["ALTER TABLE t ALTER n TYPE TEXT"], "column n of table t is text: it cannot be declared as BIGINT"),
        (["ALTER TABLE t SET UNLOGGED"], "t is no table whose changes the server logs"),
        (
            ["ALTER TABLE t DROP n", "ALTER TABLE t ADD n BIGINT GENERATED ALWAYS AS (id * 2) STORED"],
            "column n of table t is generated",
        ),
        (["CREATE PUBLICATION watersmeet_public_t FOR TABLE t WHERE (id > 3)"], "publishes only some rows"),
        (["CREATE PUBLICATION watersmeet_public_t FOR TABLE t (id, v)"], "does not publish the columns n"),
        (["CREATE PUBLICATION watersmeet_public_t"], "does not publish table public.t"),
        (
            ["CREATE PUBLICATION watersmeet_public_t FOR TABLE t WITH (publish = 'insert, delete')"],
            "does not publish update, truncate",
        ),
    ],
)
def test_what_a_table_must_be_like(server: Postgres, tmp_path: Path, statements: list[str], says: str) -> None:
    server.execute(*statements)
    with pytest.raises(ConnectorError, match=says) as raised:
        inspect(subject(server, tmp_path, "t"))
    assert raised.value.hint


@pytest.mark.slow
def test_a_changelog_needs_whole_rows(server: Postgres, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="does not log the rows before a change"):
        inspect(subject(server, tmp_path, "t", whole=True))
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    inspect(subject(server, tmp_path, "t", whole=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no such", "public.no such", '"t"', "t;"])
def test_a_table_that_does_not_exist(server: Postgres, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConnectorError, match="the database has no table") as raised:
        inspect(subject(server, tmp_path, name))
    assert "correct the option table" in (raised.value.hint or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Ö t", "public.T", "T"])
def test_a_table_by_its_name(server: Postgres, tmp_path: Path, name: str) -> None:
    server.execute('CREATE TABLE "Ö t" (id INT PRIMARY KEY, v TEXT, n BIGINT)')
    inspect(subject(server, tmp_path, name))
    server.execute('DROP TABLE "Ö t"')


@pytest.mark.slow
def test_a_table_that_was_made_anew_is_read_by_a_new_query(server: Postgres, tmp_path: Path) -> None:
    server.execute("CREATE PUBLICATION watersmeet_public_t FOR TABLE t")
    server.execute("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v TEXT, n BIGINT)")
    with pytest.raises(ConnectorError, match="does not publish table") as raised:
        inspect(subject(server, tmp_path, "t"))
    assert (raised.value.hint or "").endswith("DROP PUBLICATION watersmeet_public_t: it is then created for this table")


@pytest.mark.slow
def test_a_publication_that_is_named_must_be_there(server: Postgres, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="no publication mine"):
        inspect(subject(server, tmp_path, "t", publication="mine"))


@pytest.mark.slow
def test_a_server_must_log_changes(tmp_path: Path) -> None:
    with postgres_server() as plain:
        with pytest.raises(ConnectorError, match="wal_level = replica") as raised:
            inspect(subject(plain, tmp_path, "t"))
        assert "ALTER SYSTEM SET wal_level = 'logical'" in (raised.value.hint or "")
        plain.stop()
        with pytest.raises(OutageError, match="Connection refused"):
            inspect(subject(plain, tmp_path, "t"))


@pytest.mark.slow
def test_the_least_that_a_user_needs(server: Postgres, tmp_path: Path) -> None:
    password = server.password
    server.execute(f"CREATE ROLE role_reader LOGIN PASSWORD '{password}'")

    def reader() -> PlannedBatches:
        return planned(subject(server, tmp_path, "t", user="role_reader", publication="mine"))

    with pytest.raises(ConnectorError, match="replication") as raised:
        reader().batch()
    assert "REPLICATION" in (raised.value.hint or "")
    server.execute("ALTER ROLE role_reader REPLICATION")
    with pytest.raises(ConnectorError, match="no publication mine"):
        reader().batch()
    own = planned(subject(server, tmp_path / "own", "t", user="role_reader"))
    with pytest.raises(ConnectorError, match=r"publication watersmeet_public_t of table public\.t cannot be created"):
        own.batch()
    server.execute("CREATE PUBLICATION mine FOR TABLE t")
    refused = reader()
    with pytest.raises(ConnectorError, match="permission denied for table t"):
        refused.batch()
    assert not server.execute("SELECT 1 FROM pg_replication_slots")
    server.execute("GRANT SELECT ON t TO role_reader")
    allowed = reader()
    allowed.drain()
    server.execute("UPDATE t SET n = 0")
    allowed.drain()
    assert newest(allowed.rows) == stored(server, "t")
    server.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON t USING (id > 3)")
    hidden = planned(subject(server, tmp_path / "hidden", "t", user="role_reader", publication="mine"))
    with pytest.raises(ConnectorError, match="row-level security"):
        hidden.batch()


@pytest.mark.slow
def test_transactions_that_stay_open_are_named(server: Postgres, tmp_path: Path) -> None:
    with connect(server) as session:
        session.execute("INSERT INTO t VALUES (9)")
        reader = planned(subject(server, tmp_path, "t", timeout="1 second"))
        with pytest.raises(OutageError, match=r"have not ended: session \d+ of postgres"):
            reader.batch()
        reader.close()
        assert not server.execute("SELECT 1 FROM pg_replication_slots")
    reader = planned(subject(server, tmp_path, "t"))
    reader.drain()
    assert newest(reader.rows) == stored(server, "t")
