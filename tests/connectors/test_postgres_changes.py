"""A table's snapshot and changes, read from a real server as batches: they add up to what the table holds."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.support.planned_batches import PlannedBatches
from tests.support.postgres import Postgres, postgres_server
from tests.support.postgres_changes import Writers, added_up, newest, planned, stored, subject
from watersmeet.errors import WatersmeetError


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server(settings=("wal_level=logical", "max_replication_slots=100", "max_wal_senders=20")) as running:
        yield running


@pytest.fixture
def tables(server: Postgres) -> Iterator[tuple[str, str]]:
    """Two tables; one logs whole rows."""
    for name in ("plain", "whole"):
        server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v TEXT, n BIGINT)",
            f"INSERT INTO {name} SELECT i, 'first', i FROM generate_series(1, 20) i",
        )
    server.execute("ALTER TABLE whole REPLICA IDENTITY FULL", "ALTER TABLE whole ALTER v SET STORAGE EXTERNAL")
    yield "plain", "whole"
    clear(server)


def clear(server: Postgres) -> None:
    server.execute(
        "DO $$ DECLARE s text; BEGIN FOR s IN SELECT slot_name FROM pg_replication_slots LOOP "
        "PERFORM pg_drop_replication_slot(s); END LOOP; END $$"
    )
    for (name,) in server.execute("SELECT pubname FROM pg_publication"):
        server.execute(f'DROP PUBLICATION "{name}"')
    for (name,) in server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        server.execute(f'DROP TABLE IF EXISTS "{name}" CASCADE')


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))])
def test_random_transactions(server: Postgres, tables: tuple[str, str], tmp_path: Path, seed: int) -> None:
    """Transactions that are open while snapshots are taken, batches that end anywhere, runs that die."""
    drawn = random.Random(seed)
    limits = [str(drawn.choice((1, 3, 20, 1_000))) for _ in range(3)]
    readers = {
        "plain": planned(subject(server, tmp_path / "a", "plain", max_rows_per_trigger=limits[0])),
        "whole": planned(subject(server, tmp_path / "b", "whole", whole=True, max_rows_per_trigger=limits[1])),
        "versions of whole": planned(subject(server, tmp_path / "c", "whole", max_rows_per_trigger=limits[2])),
    }
    writers = Writers(server, tables, drawn, large=["whole"])
    writers.open(3)
    begun: set[str] = set()
    try:
        writers.act(20)
        for _ in range(drawn.randint(15, 40)):
            writers.act(drawn.randint(1, 12))
            name = drawn.choice([*readers])
            if name not in begun:
                _begin(readers[name], writers)
                begun.add(name)
            _step(readers[name], drawn)
    finally:
        writers.close()
    for reader in readers.values():
        reader.drain()
        reader.close()
    assert newest(readers["plain"].rows) == stored(server, "plain")
    assert added_up(readers["whole"].rows) == stored(server, "whole")
    assert newest(readers["versions of whole"].rows) == stored(server, "whole")


def _begin(reader: PlannedBatches, writers: Writers) -> None:
    """Take the first batch while the sessions write: the server waits for those that have written before."""
    first = threading.Thread(target=reader.batch)
    first.start()
    while first.is_alive():
        writers.act(3)
        for session in writers.sessions:
            if writers.drawn.random() < 0.1:
                session.commit()
    first.join()


def _step(reader: PlannedBatches, drawn: random.Random) -> None:
    what = drawn.random()
    if what < 0.6:
        reader.batch()
    elif what < 0.75:
        before = reader.batch(dies=True)
        if before:
            assert reader.batch() == before
    elif what < 0.85:
        reader.restart()
    elif what < 0.9:
        for each in reader.abandoned:  # it may be about to read, and another one has begun
            with suppress(WatersmeetError):
                each.latestOffset(reader.offsets[-1], ReadAllAvailable())
    else:
        reader.drain()
