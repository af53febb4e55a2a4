"""A Delta table in an object store that is away for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.delta_tables import Stream
from tests.support.object_store import object_store
from tests.support.relay import Relay
from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.connectors.delta.connector import DeltaBatch, check_table
from watersmeet.connectors.task_writes import Handed
from watersmeet.errors import ConnectorError, OutageError, SinkOutageError
from watersmeet.runtime.outages import Outages
from watersmeet.settings.query_settings import QuerySettings

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def store() -> Iterator[Relay]:
    """The way to a store with an empty bucket."""
    with object_store() as (line, variables), pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        yield line


def stream(path: str) -> StreamDef:
    columns = (StreamColumn(name="id", type="BIGINT"),)
    return StreamDef(name="s", columns=columns, connector="delta", options={"path": path})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def write(table: str, number: int, *ids: int) -> None:
    batch, given = DeltaBatch(stream(table), number, f"q-{number:012d}"), rows(*ids)
    if batch.open(given.schema) is not None:
        batch.commit(Handed(given))


def stored(table: str) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


def test_a_batch_is_committed_once_the_store_is_back(store: Relay) -> None:
    table = "s3://lake/away"
    check_table(stream(table))
    write(table, 0, 1, 2)
    store.close()
    with pytest.raises(SinkOutageError) as raised:
        write(table, 1, 3)
    assert "batch 1 could not be written to the Delta table s3://lake/away: " in raised.value.message
    assert "Connection refused" in raised.value.message
    outages = Outages("q", QuerySettings(sink_retry=600))
    writing = threading.Thread(target=outages.tried, args=(lambda: write(table, 1, 3),), daemon=True)
    writing.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "(attempt 1, " not in outages.waiting:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    store.open()
    writing.join(PATIENCE_SECONDS)
    assert not writing.is_alive()
    write(table, 1, 3)
    assert stored(table) == [1, 2, 3]


def test_a_task_that_cannot_write_its_files_meets_an_outage(store: Relay) -> None:
    table = "s3://lake/files"
    batch, given = DeltaBatch(stream(table), 0, f"q-{0:012d}"), rows(1, 2)
    files = batch.open(given.schema)
    assert files is not None
    store.close()
    with pytest.raises(SinkOutageError, match=r"batch 0 could not be written to .*: Generic S3 error") as raised:
        files.write(given.to_reader())
    assert "\n" not in raised.value.message
    store.open()
    batch.commit(Handed(given.slice(0, 1), [files.write(given.slice(1).to_reader())]))
    assert stored(table) == [1, 2]


def test_a_commit_whose_answer_was_lost_is_found(store: Relay) -> None:
    table = "s3://lake/lost"
    write(table, 0, 1)
    store.lose_answer_to(b"PUT /lake/lost/_delta_log/00000000000000000002.json")
    outages = Outages("q", QuerySettings(sink_retry=600), pause=lambda _: False)
    outages.tried(lambda: write(table, 1, 2))
    assert store.has_lost()
    assert stored(table) == [1, 2]


def test_a_bucket_that_is_not_there_is_no_outage(store: Relay) -> None:
    with pytest.raises(ConnectorError) as raised:
        write("s3://nowhere/table", 0, 1)
    assert not isinstance(raised.value, OutageError)


def test_a_table_in_a_store_is_read_once_the_store_is_back(store: Relay) -> None:
    table = "s3://lake/read"
    write(table, 0, 1, 2)
    stream = Stream(table, rows().schema)
    assert sorted(row["id"] for row in stream.batch()) == [1, 2]
    assert stream.batch() == []
    write(table, 1, 3)
    end = stream.changes().latest(stream.place, None)
    store.close()
    with pytest.raises(OutageError, match="version 2 of the Delta table T cannot be read: ") as raised:
        stream.batch()
    assert "\n" not in raised.value.message
    store.open()
    assert [row["id"] for row in stream.between(stream.place, end)] == [3]
    (file,) = (file for file, _ in stream.changes().files(stream.place, end))
    store.close()
    with pytest.raises(OutageError, match="cannot be read as Parquet"):
        list(stream.table.columns(file, file.stored, rows().schema))
    store.open()
    assert [row["id"] for row in stream.batch()] == [3]
