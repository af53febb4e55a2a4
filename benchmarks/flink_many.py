"""Runs Flink's own joins of several streams with one key, on rows that Flink generates.

    PYTHON benchmarks/flink_many.py KIND SIDES ROWS KEYS…

PYTHON has apache-flink.  KIND is ``intervals`` (interval joins one after the other, each stream within 5 s of all
before it), ``regular`` (joins without windows, one after the other) or ``multi_join`` (the same in Flink's operator for
many inputs).  SIDES are the streams, a letter each, with ROWS rows, an event a millisecond; KEYS are how many keys each
of them has.  Results go to Flink's ``blackhole`` sink.  The job runs twice in one JVM, and the printed line has the
rate of the second run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KINDS = ("intervals", "regular", "multi_join")
_PARALLELISM = 2
MULTI_JOIN = "table.optimizer.multi-join.enabled"


def settings(kind: str, checkpoints: Path) -> dict[str, str]:
    """Return the settings of the job, which takes a checkpoint each second."""
    return {
        "parallelism.default": str(_PARALLELISM),
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "taskmanager.memory.process.size": "6g",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "table.local-time-zone": "UTC",
        MULTI_JOIN: str(kind == "multi_join").lower(),
    }


def table(side: str, rows: int, keys: int) -> str:
    """Return the CREATE TABLE statement of a side."""
    options = {
        "connector": "datagen",
        "number-of-rows": rows,
        "rows-per-second": 100_000_000,
        f"fields.{side}_id.kind": "sequence",
        f"fields.{side}_id.start": 0,
        f"fields.{side}_id.end": rows - 1,
        f"fields.{side}_key.min": 0,
        f"fields.{side}_key.max": keys - 1,
    }
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    columns = f"{side}_id BIGINT, {side}_key BIGINT, {side}_val DOUBLE"
    time_column = f"{side}_ts AS TO_TIMESTAMP_LTZ(1640995200000 + {side}_id, 3)"
    watermark = f"WATERMARK FOR {side}_ts AS {side}_ts - INTERVAL '1' SECOND"
    return f"CREATE TABLE {side} ({columns}, {time_column}, {watermark}) WITH ({listed})"


def query(kind: str, sides: str) -> str:
    """Return the INSERT statement: the first stream's number, and the sum of the others'."""
    first, others = sides[0], sides[1:]
    joins = "".join(f" JOIN {side} ON {' AND '.join(_conditions(kind, sides, side))}" for side in others)
    return f"INSERT INTO results SELECT {first}_id, {' + '.join(f'{side}_id' for side in others)} FROM {first}{joins}"


def _conditions(kind: str, sides: str, side: str) -> Iterator[str]:
    yield f"{sides[0]}_key = {side}_key"
    if kind == "intervals":
        for other in sides[: sides.index(side)]:
            yield f"{side}_ts BETWEEN {other}_ts - INTERVAL '5' SECOND AND {other}_ts + INTERVAL '5' SECOND"


def main() -> None:
    """Run the job that the arguments name, and print its rate."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    kind, sides, rows, *keys = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoints:
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        config = environment.get_config()
        for name, value in settings(kind, Path(checkpoints)).items():
            config.set(name, value)
        for side, count in zip(sides, keys, strict=True):
            environment.execute_sql(table(side, int(rows), int(count)))
        environment.execute_sql("CREATE TABLE results (a BIGINT, b BIGINT) WITH ('connector' = 'blackhole')")
        if kind == "multi_join" and "MultiJoin" not in environment.explain_sql(query(kind, sides)):
            raise SystemExit(f"this Flink has no operator for many inputs ({MULTI_JOIN})")
        seconds = 0.0
        for _ in range(2):
            started = time.monotonic()
            environment.execute_sql(query(kind, sides)).wait()
            seconds = time.monotonic() - started
    total = len(sides) * int(rows)
    print(f"flink {kind}: {total} rows in {seconds:.2f} s = {total / seconds:.0f} rows/s")


if __name__ == "__main__":
    main()
