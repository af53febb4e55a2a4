"""Executors that die in the middle of a query, and one that is cut off from all others.

    python -m tests.cluster.faults

runs a left join over many small batches. It ends with 1 if the answer is not DuckDB's, or if a fault did not happen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import duckdb

from tests.cluster.kinds import QUERIES
from tests.cluster.lake import ROOT, define_streams, open_store, results, rows_of, table_of, write_streams
from tests.cluster.session import connect
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Started

ROWS, FILES, SECONDS = 900, 9, 400.0
_OFF_SECONDS = 20.0
EXECUTOR = "CoarseGrainedExecutorBackend"


def main() -> int:
    """Run the query, and return the exit code."""
    store = open_store()
    tables = {name: table_of(rows_of(seed, ROWS)) for seed, name in enumerate("op")}
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        expected = Counter(database.sql(QUERIES["left"].answer).fetchall())
    write_streams(store, tables, FILES)
    # a host that is cut off says nothing, and Spark waits so long before it takes it for lost
    session = connect(
        "/tmp/workspace",
        spark__network__timeout="15s",
        spark__network__timeoutInterval="5s",
        spark__executor__heartbeatInterval="3s",
    )
    define_streams(session, "op")
    session.sql(f"CREATE STREAM sink WITH (connector = 'files', path = '{ROOT}/out/left', format = 'json')")
    text = f"INSERT INTO sink {QUERIES['left'].sql} SETTINGS buckets = 4"
    (started,) = session.run(text, QueryMode.BOUNDED, checkpoint=f"{ROOT}/checkpoints/left")
    assert isinstance(started, Started)
    query = started.query
    for batch, executor in ((2, 1), (4, 2)):
        _wait_for_batch(query, batch)
        killed = kill_executor(f"executor{executor}")
        assert killed, f"there was no process of executor {executor}"
        print(f"batch {batch}: {killed} processes of executor {executor} killed", flush=True)
    _wait_for_batch(query, 6)
    cut_off("executor3", "down")
    print("batch 6: executor 3 is cut off", flush=True)
    time.sleep(_OFF_SECONDS)
    cut_off("executor3", "up")
    assert query.wait(SECONDS), f"the query has not come to its end in {SECONDS:.0f} s"
    found = results(store, "left")
    print(f"{query.report().batches} batches, {found.total()} rows, {expected.total()} due", flush=True)
    return int(found != expected)


def _wait_for_batch(query: RunningQuery, number: int) -> None:
    ends = time.monotonic() + SECONDS
    while query.report().batches < number:
        assert time.monotonic() < ends, f"there is no batch {number} after {SECONDS:.0f} s"
        query.wait(0.1)


def kill_executor(host: str) -> int:
    """Kill the executor of a host, and its Python processes; the number of processes comes back."""
    killed = processes_of(host)
    for pid in killed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(killed)


def processes_of(host: str) -> list[int]:
    """The executor of a host, and all that it has started."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    there = f"--hostname {_address(host)} "
    parents = {int(line.split()[0]): int(line.split()[1]) for line in listed.splitlines()}
    roots = [int(line.split()[0]) for line in listed.splitlines() if EXECUTOR in line and there in line]
    return [pid for pid in parents if any(root in _line_of(pid, parents) for root in roots)]


def _line_of(pid: int, parents: dict[int, int]) -> list[int]:
    """A process, its parent, that one's parent and so on."""
    line = [pid]
    while (parent := parents.get(line[-1], 0)) != 0:
        line.append(parent)
    return line


def _address(host: str) -> str:
    return subprocess.run(["getent", "hosts", host], capture_output=True, text=True, check=True).stdout.split()[0]


def cut_off(host: str, state: str) -> None:
    """Take a host's cable out (down), or put it in again (up)."""
    subprocess.run(["ip", "-n", host, "link", "set", "eth0", state], check=True, timeout=20)


if __name__ == "__main__":
    sys.exit(main())
