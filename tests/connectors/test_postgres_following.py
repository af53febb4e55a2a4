"""What a query that reads a table's changes does when the table, the server or its slot becomes another one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.connectors.test_postgres_refusals import logical, server
from tests.support.planned_batches import PlannedBatches
from tests.support.postgres import Postgres
from tests.support.postgres_changes import added_up, newest, planned, stored, subject
from watersmeet.errors import CheckpointError, ConnectorError

__all__ = ["logical", "server"]


@pytest.fixture
def reading(server: Postgres, tmp_path: Path) -> Iterator[PlannedBatches]:
    """A query that has read the five rows."""
    reader = planned(subject(server, tmp_path, "t"))
    reader.drain()
    assert len(reader.rows) == 5
    yield reader
    reader.close()


def _slot(server: Postgres) -> tuple[str, int, int]:
    """Its name, how far it is advanced, and how much of the log it holds."""
    query = (
        "SELECT slot_name, confirmed_flush_lsn - '0/0', pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots"
    )
    ((name, confirmed, held),) = server.execute(query)
    return name, int(confirmed), int(held)


def test_a_truncated_table_is_refused_after_what_came_before(server: Postgres, reading: PlannedBatches) -> None:
    server.execute("DELETE FROM t WHERE id < 3")
    server.execute("INSERT INTO t VALUES (50)", "TRUNCATE t", "INSERT INTO t VALUES (51)")
    with pytest.raises(ConnectorError, match="was truncated"):
        reading.drain()
    assert [row[0] for row in newest(reading.rows)] == [3, 4, 5]
    with pytest.raises(ConnectorError, match="was truncated"):
        reading.drain()


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_a_refused_transaction_leaves_nothing(server: Postgres, reading: PlannedBatches, large: bool) -> None:
    rows = 50_000 if large else 10
    server.execute("INSERT INTO t VALUES (7)")
    server.execute(f"INSERT INTO t SELECT i FROM generate_series(100, {100 + rows}) i", "TRUNCATE t")
    with pytest.raises(ConnectorError, match="was truncated"):
        reading.drain()
    assert [row[0] for row in newest(reading.rows)] == [1, 2, 3, 4, 5, 7]


@pytest.mark.slow
def test_columns_that_come_go_and_change(server: Postgres, reading: PlannedBatches) -> None:
    server.execute("ALTER TABLE t ADD more TEXT DEFAULT 'x'", "INSERT INTO t VALUES (6, 'six', 6, 'y')")
    server.execute("ALTER TABLE t ALTER n TYPE INT, ALTER v TYPE VARCHAR(50)", "INSERT INTO t VALUES (7, 'seven', 7)")
    reading.drain()
    assert newest(reading.rows) == stored(server, "t")
    server.execute("DELETE FROM t WHERE id = 1")
    reading.batch()
    server.execute("DELETE FROM t WHERE id = 2")
    server.execute("ALTER TABLE t RENAME n TO m", "INSERT INTO t VALUES (8)")
    with pytest.raises(ConnectorError, match=r"column n of table public\.t was dropped or renamed; t declares it"):
        _all(reading)
    assert [row[0] for row in newest(reading.rows)] == [3, 4, 5, 6, 7]
    server.execute("ALTER TABLE t RENAME m TO n", "ALTER TABLE t ALTER n TYPE TEXT")
    with pytest.raises(ConnectorError, match="it cannot be declared as BIGINT"):
        reading.drain()


@pytest.mark.slow
def test_a_column_that_is_dropped_and_made_anew(server: Postgres, reading: PlannedBatches) -> None:
    reading.batch()
    server.execute("INSERT INTO t VALUES (8, 'h', 8)")
    server.execute("ALTER TABLE t DROP v", "ALTER TABLE t ADD v TEXT DEFAULT 'new'")
    with pytest.raises(ConnectorError, match="a column that t declares was dropped"):
        _all(reading)
    assert (8, "h", 8) in newest(reading.rows)
    reading.restart()
    with pytest.raises(CheckpointError, match="column v was dropped and made anew") as raised:
        reading.drain()
    assert "new checkpoint" in (raised.value.hint or "")


def _all(reader: PlannedBatches) -> None:
    """Read on until it is refused."""
    for _ in range(200):
        reader.batch()
        time.sleep(0.02)
    raise AssertionError("nothing was refused")


def test_a_value_that_was_not_sent_is_never_null(server: Postgres, reading: PlannedBatches) -> None:
    large = "".join(random.Random(1).choices("abcdefghij0123456789", k=20_000))
    server.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL", f"INSERT INTO t VALUES (6, '{large}', 1)")
    server.execute("UPDATE t SET n = 2 WHERE id = 6")
    reading.drain()
    (bad,) = [row for row in reading.rows if row["_bad"]]
    assert "left v unchanged" in bad["_bad"]
    assert "REPLICA IDENTITY FULL" in bad["_bad"]
    assert bad["id"] is None
    assert '"n": "2"' in bad["_raw"]
    reading.rows.remove(bad)
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    server.execute("UPDATE t SET n = 3 WHERE id = 6")
    reading.drain()
    assert newest(reading.rows) == stored(server, "t")


@pytest.mark.slow
def test_a_changelog_without_old_rows_has_bad_rows(server: Postgres, tmp_path: Path) -> None:
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    reader = planned(subject(server, tmp_path, "t", whole=True))
    reader.batch()
    server.execute(
        "ALTER TABLE t REPLICA IDENTITY DEFAULT", "UPDATE t SET n = 9 WHERE id = 1", "DELETE FROM t WHERE id = 2"
    )
    server.execute("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET n = 8 WHERE id = 3")
    reader.drain()
    assert len([row for row in reader.rows if row["_bad"] and "without the row before" in row["_bad"]]) == 2
    good = [row for row in reader.rows if not row["_bad"]]
    assert [row for row in added_up(good) if row[0] == 3] == [(3, "v3", 8)]


@pytest.mark.slow
def test_a_slot_or_table_or_publication_that_is_gone(server: Postgres, reading: PlannedBatches) -> None:
    name, *_ = _slot(server)
    server.execute("DROP PUBLICATION watersmeet_public_t", "INSERT INTO t VALUES (6)")
    with pytest.raises(ConnectorError, match="no publication watersmeet_public_t: it was dropped"):
        reading.drain()
    server.execute("CREATE PUBLICATION watersmeet_public_t FOR TABLE t")
    server.execute("ALTER TABLE t RENAME TO old", "CREATE TABLE t (id INT PRIMARY KEY, v TEXT, n BIGINT)")
    with pytest.raises(CheckpointError, match="was dropped and made anew"):
        reading.drain()
    server.execute("DROP TABLE t", "ALTER TABLE old RENAME TO t", f"SELECT pg_drop_replication_slot('{name}')")
    with pytest.raises(ConnectorError, match=f"the server has no slot {name}") as raised:
        reading.drain()
    assert "new checkpoint" in (raised.value.hint or "")


@pytest.mark.slow
def test_a_log_that_was_removed(server: Postgres, reading: PlannedBatches) -> None:
    name, *_ = _slot(server)
    server.execute("CREATE TABLE other (v TEXT)")
    for _ in range(8):
        server.execute("INSERT INTO other SELECT repeat(md5(i::text), 30) FROM generate_series(1, 12000) i")
        server.execute("CHECKPOINT")
    with pytest.raises(ConnectorError, match=f"removed the log that slot {name} needs") as raised:
        reading.drain()
    assert "max_slot_wal_keep_size" in (raised.value.detail or "")
    assert f"pg_drop_replication_slot('{name}')" in (raised.value.hint or "")


@pytest.mark.slow
def test_other_tables_do_not_hold_the_log(server: Postgres, reading: PlannedBatches) -> None:
    server.execute("CREATE TABLE other (v TEXT)")
    for _ in range(3):
        server.execute("INSERT INTO other SELECT repeat(md5(i::text), 30) FROM generate_series(1, 3000) i")
        server.execute("CHECKPOINT")
        before = len(reading.rows)
        reading.drain()
        assert len(reading.rows) == before
    _, confirmed, _ = _slot(server)
    ((now,),) = server.execute("SELECT pg_current_wal_lsn() - '0/0'")
    assert int(now) - confirmed < 2 << 20
    server.execute("INSERT INTO t VALUES (6)")
    reading.drain()
    assert newest(reading.rows) == stored(server, "t")


@pytest.mark.slow
def test_a_server_that_forgets_how_far_a_slot_was_advanced(server: Postgres, reading: PlannedBatches) -> None:
    for n in range(3):
        server.execute(f"UPDATE t SET n = {n + 10}")
        reading.drain()
    server.stop()  # as a crash does
    server.start()
    server.execute("UPDATE t SET n = 20")
    reading.drain()
    assert newest(reading.rows) == stored(server, "t")
    assert len(reading.rows) == 25


@pytest.mark.slow
def test_a_checkpoint_from_before_is_refused(server: Postgres, reading: PlannedBatches, tmp_path: Path) -> None:
    """Somebody else has read the slot meanwhile: a copy of the checkpoint."""
    name, *_ = _slot(server)
    server.execute("INSERT INTO t VALUES (6)")
    server.execute(f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())")
    with pytest.raises(CheckpointError, match="was advanced to"):
        reading.drain()


@pytest.mark.slow
def test_large_transactions_are_one_batch(server: Postgres, tmp_path: Path) -> None:
    reader = planned(subject(server, tmp_path, "t", max_rows_per_trigger="1000"))
    reader.drain()
    before = len(reader.offsets)
    server.execute(
        "INSERT INTO t SELECT i, 'x', i FROM generate_series(100, 45000) i", "DELETE FROM t WHERE id < 44000"
    )
    server.execute("INSERT INTO t VALUES (1)")
    reader.drain()
    assert newest(reader.rows) == stored(server, "t")
    assert len(reader.offsets) == before + 2
    reader.close()


@pytest.mark.slow
def test_a_run_that_processes_the_end_takes_all_as_one_batch(server: Postgres, tmp_path: Path) -> None:
    of = subject(server, tmp_path, "t", max_rows_per_trigger="2")
    reader = planned(of)
    reader.drain()
    last = planned(of, limited=False)
    last.offsets, last.committed = reader.offsets, reader.committed
    for n in range(10, 20):
        server.execute(f"INSERT INTO t VALUES ({n})")
    before = len(last.offsets)
    last.drain()
    assert len(last.offsets) == before + 1
    assert newest([*reader.rows, *last.rows]) == stored(server, "t")


@pytest.mark.slow
def test_a_publication_of_several_tables(server: Postgres, tmp_path: Path) -> None:
    """What is read of the others moves no slot that the checkpoint does not know of."""
    server.execute("CREATE TABLE other (id INT PRIMARY KEY, v TEXT)", "CREATE PUBLICATION shop FOR TABLE t, other")
    reader = planned(subject(server, tmp_path, "t", publication="shop"))
    reader.drain()
    for n in range(3):
        server.execute(f"INSERT INTO other VALUES ({n})")
        reader.batch()
        server.execute(f"UPDATE other SET v = 'x' WHERE id = {n}")
        reader.drain()
    server.execute("INSERT INTO t VALUES (6)", "TRUNCATE other")
    reader.drain()
    assert newest(reader.rows) == stored(server, "t")
    assert len(reader.rows) == 6


@pytest.mark.slow
def test_partitions_are_one_table(server: Postgres, tmp_path: Path) -> None:
    server.execute(
        "CREATE TABLE parts (id INT, v TEXT, n BIGINT, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (100) TO (200)",
        "INSERT INTO parts SELECT i, 'v', i FROM generate_series(90, 110) i",
    )
    reader = planned(subject(server, tmp_path, "parts"))
    reader.drain()
    server.execute("UPDATE parts SET id = id + 15 WHERE id = 97", "DELETE FROM parts WHERE id = 105")
    server.execute("UPDATE parts SET v = 'w' WHERE id > 100")
    reader.drain()
    assert newest(reader.rows) == stored(server, "parts")
    server.execute("ALTER TABLE parts_low REPLICA IDENTITY NOTHING")
    with pytest.raises(ConnectorError, match="table parts_low does not log the key"):
        reader.drain()


@pytest.mark.slow
def test_every_type(server: Postgres, tmp_path: Path) -> None:
    server.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'fine')",
        "CREATE DOMAIN amount AS NUMERIC(12, 2)",
        'CREATE TABLE "Kinds" (id INT PRIMARY KEY, b BOOL, i2 SMALLINT, i8 BIGINT, f4 REAL, f8 FLOAT8, d AMOUNT,'
        ' "Day" DATE,'
        " at TIMESTAMPTZ, here TIMESTAMP, raw BYTEA, u UUID, j JSONB, m MOOD, a INT[], s TEXT[])",
    )
    row = (
        "(1, true, -5, 9007199254740993, 'NaN', '-Infinity', 12.50, '2024-02-29', '2024-02-29 12:00:00.123456+02',"
        " '1999-12-31 23:59:59', '\\x00ff', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{\"k\": [1]}', 'fine', '{1,NULL}',"
        " '{\"a,b\",NULL}')"
    )
    server.execute(f'INSERT INTO "Kinds" VALUES {row}', 'INSERT INTO "Kinds" (id) VALUES (2)')
    columns = pa.schema(
        [
            *(("id", pa.int32()), ("b", pa.bool_()), ("i2", pa.int16()), ("i8", pa.int64()), ("f4", pa.float32())),
            *(("f8", pa.float64()), ("d", pa.decimal128(12, 2)), ("day", pa.date32()), ("raw", pa.binary())),
            *(("at", pa.timestamp("us", "UTC")), ("here", pa.timestamp("us")), ("u", pa.string()), ("j", pa.string())),
            *(("m", pa.string()), ("a", pa.list_(pa.int32())), ("s", pa.list_(pa.string()))),
        ]
    )
    reader = planned(subject(server, tmp_path, "Kinds", columns))
    reader.drain()
    server.execute('DELETE FROM "Kinds"', f'INSERT INTO "Kinds" VALUES {row}', 'INSERT INTO "Kinds" (id) VALUES (2)')
    server.execute(
        """INSERT INTO "Kinds" (id, at) VALUES (3, 'infinity')""", """INSERT INTO "Kinds" (id, d) VALUES (4, 'NaN')"""
    )
    server.execute("""INSERT INTO "Kinds" (id, "Day") VALUES (5, '0044-03-15 BC')""")
    reader.drain()
    good = [row for row in reader.rows if row["_bad"] is None and row["_tp_delta"] == 1]
    assert len(good) == 4
    for first, second in zip(good[:2], good[2:], strict=True):  # as the snapshot has them, and as the log has them
        assert repr(_own(first)) == repr(_own(second))
    assert repr(_own(good[0])).startswith(
        "(1, True, -5, 9007199254740993, nan, -inf, Decimal('12.50'), datetime.date(2024, 2, 29), b'\\x00\\xff', "
        "datetime.datetime(2024, 2, 29, 10, 0, 0, 123456"
    )
    assert _own(good[0])[-4:] == ('{"k": [1]}', "fine", [1, None], ["a,b", None])
    assert [row["_bad"] for row in reader.rows if row["_bad"]] == [
        "column at: 'infinity' is no TIMESTAMP: a time is from the year 1 to the year 9999",
        "column d: 'NaN' is no DECIMAL(12, 2)",
        "column day: '0044-03-15 BC' is no DATE: a time is from the year 1 to the year 9999",
    ]


def _own(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(value for name, value in row.items() if not name.startswith("_"))


def test_nothing_that_is_written_has_a_secret(server: Postgres, reading: PlannedBatches, tmp_path: Path) -> None:
    server.execute("INSERT INTO t VALUES (6)")
    reading.batch()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3
    for path in files:
        assert server.password.encode() not in path.read_bytes() + path.name.encode()
        assert path.stat().st_mode & 0o077 == 0
    assert server.password not in repr(subject(server, tmp_path, "t"))


@pytest.mark.slow
def test_a_slot_that_nobody_reads_is_told(server: Postgres, tmp_path: Path) -> None:
    forgotten = planned(subject(server, tmp_path / "forgotten", "t"))
    forgotten.drain()
    name, *_ = _slot(server)
    server.execute("CREATE TABLE other (v TEXT)")
    server.execute("INSERT INTO other SELECT repeat(md5(random()::text), 30) FROM generate_series(1, 40000) i")
    reader = planned(subject(server, tmp_path, "t"))
    reader.batch()
    assert f"slot {name} holds" in reader.reader.reportLatestOffset()["warnings"]
    reader.close()
