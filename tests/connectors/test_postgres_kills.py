"""A process that reads a table is killed again and again, amid snapshots and changes, and the server crashes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.connectors.test_postgres_changes import clear, server
from tests.support.planned_process import kept_rows
from tests.support.postgres import Postgres
from tests.support.postgres_changes import SECRET, Writers, added_up, newest, stored

__all__ = ["server"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_PATIENCE = 120.0


def reader(server: Postgres, folder: Path, table: str, *, drain: bool = False) -> subprocess.Popen[bytes]:
    arguments = [str(folder), str(server.port), table, table, "drain" if drain else "on"]
    command = [sys.executable, "-m", "tests.support.planned_process", *arguments]
    return subprocess.Popen(command, env={**os.environ, SECRET: server.password}, stderr=subprocess.PIPE)


def until(holds: Callable[[], bool], process: subprocess.Popen[bytes], meanwhile: Callable[[], None]) -> None:
    give_up = time.monotonic() + _PATIENCE
    while not holds():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < give_up, "it did not come"
        meanwhile()
        time.sleep(0.005)


@pytest.mark.parametrize("seed", range(4))
def test_kills(server: Postgres, tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    table = ("plain", "whole")[seed % 2]
    server.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT, n BIGINT)",
        f"INSERT INTO {table} SELECT i, 'first', i FROM generate_series(1, 60000) i",
        f"ALTER TABLE {table} REPLICA IDENTITY {'FULL' if table == 'whole' else 'DEFAULT'}",
    )
    folder = tmp_path / "pieces" / table

    def count(pattern: str) -> Callable[[], bool]:
        before = set(folder.glob(pattern)) | set(tmp_path.glob(pattern))
        return lambda: bool((set(folder.glob(pattern)) | set(tmp_path.glob(pattern))) - before)

    moments = ["slot.json", *["*-s-*.piece"] * 3, *drawn.choices(["*-t-*.piece", "offsets", "batch-*", "begin-*"], k=6)]
    writers = Writers(server, [table], drawn, large=["whole"])
    writers.open(2)

    def write() -> None:
        writers.act(2)
        for session in writers.sessions:
            session.commit()

    for number, moment in enumerate(moments):
        process = reader(server, tmp_path, table)
        wanted = count(moment) if moment != "offsets" else partial(_changed, tmp_path / "offsets", time.time())
        until(wanted, process, write if number > 3 else lambda: None)
        time.sleep(drawn.choice([0, 0.01, 0.1]))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if number == 6:
            writers.close()
            writers.sessions.clear()
            server.stop()
            server.start()
            writers.open(2)
    writers.close()
    last = reader(server, tmp_path, table, drain=True)
    _, errors = last.communicate(timeout=_PATIENCE)
    assert last.returncode == 0, errors.decode()
    held = newest if table == "plain" else added_up
    assert held(kept_rows(tmp_path)) == stored(server, table)
    assert len(server.execute("SELECT 1 FROM pg_replication_slots")) == 1
    clear(server)


def _changed(path: Path, since: float) -> bool:
    return path.exists() and path.stat().st_mtime > since
