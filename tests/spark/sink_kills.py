"""A job whose driver kills itself and its JVM at a point on the way of a batch into a Delta table or a database.

    python -m tests.spark.sink_kills FOLDER SINK POINT

runs the script ``SINK.sql`` of the folder to its end. With a POINT of ``POINTS`` it dies when a batch gets there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import sqlalchemy as sa

import watersmeet
from tests.support.jobs import run_job
from watersmeet.connectors.delta.connector import DeltaBatch
from watersmeet.connectors.duckdb_table import DuckDbTable
from watersmeet.connectors.jdbc import sink as jdbc_sink
from watersmeet.connectors.jdbc.sink import JdbcSink


def die(*_: Any, **__: Any) -> NoReturn:
    """Kill this process group."""
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("still alive")


def _replace(owner: type, name: str, by: Callable[..., Any]) -> None:
    setattr(owner, name, by)


def _die_after(owner: type, name: str) -> None:
    whole: Callable[..., Any] = getattr(owner, name)

    def method(*given: Any) -> None:
        whole(*given)
        die()

    setattr(owner, name, method)


def _die_between_statements() -> None:
    whole = DuckDbTable.write

    def write(table: DuckDbTable, *given: Any) -> None:
        _replace(DuckDbTable, "_upsert", die)  # the deletes have been made
        whole(table, *given)

    _replace(DuckDbTable, "write", write)


#: What is replaced so that the driver dies there.
POINTS: dict[str, Callable[[], None]] = {
    "files written": lambda: setattr(DeltaBatch, "commit", die),
    "committed": lambda: _die_after(DeltaBatch, "commit"),
    "staged": lambda: setattr(JdbcSink, "write", die),
    "merged, not committed": lambda: setattr(jdbc_sink, "drop_staged", die),
    "merge committed": lambda: _die_after(JdbcSink, "write"),
    "written, not committed": lambda: setattr(sa.Transaction, "commit", die),
    "between statements": _die_between_statements,
    "file committed": lambda: _die_after(DuckDbTable, "write"),
}


def main() -> None:
    """Run the job."""
    folder, sink, point = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    if point:
        POINTS[point]()
    settings = {"spark.sql.shuffle.partitions": "2"}
    session = watersmeet.connect(workspace=folder / "workspace", master="local[2]", config=settings)
    run_job(session, (folder / f"{sink}.sql").read_text())
    session.stop()


if __name__ == "__main__":
    main()
