"""A Delta table in an object store that is away for a while."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.relay import Relay, relay
from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.connectors.delta import check_table, write_batch
from watersmeet.errors import ConnectorError, OutageError, SinkOutageError
from watersmeet.runtime.outages import Outages
from watersmeet.settings.query_settings import QuerySettings

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def store() -> Iterator[Relay]:
    """The way to a store with an empty bucket."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    program = str(Path(sys.executable).with_name("moto_server"))
    server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        _make_bucket(port)
        with relay(port) as line, pytest.MonkeyPatch.context() as monkeypatch:
            for name, value in {
                "AWS_ACCESS_KEY_ID": "writer",
                "AWS_SECRET_ACCESS_KEY": "not-a-secret",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{line.port()}",
                "AWS_ALLOW_HTTP": "true",
            }.items():
                monkeypatch.setenv(name, value)
            yield line
    finally:
        server.kill()
        server.wait(PATIENCE_SECONDS)


def _make_bucket(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/lake", method="PUT")
            urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def stream(path: str) -> StreamDef:
    columns = (StreamColumn(name="id", type="BIGINT"),)
    return StreamDef(name="s", columns=columns, connector="delta", options={"path": path})


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def write(table: str, number: int, *ids: int) -> None:
    write_batch(rows(*ids), number, f"q-{number:012d}", stream(table))


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
