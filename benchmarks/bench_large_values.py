"""Measures whether workers keep to ``worker_memory`` where single values are large.

    python -m benchmarks.bench_large_values [--memory SIZE] [--rows N] [--value-mb N] [--keys N] [--join KIND]
        [--within] [--source SOURCE]

A join of two streams on Spark, two cores: N rows a side, each with a text of --value-mb megabytes that does not
compress, and --keys different keys.  Results hold both texts, and are counted and dropped.  ``--within`` gives the join
a window that holds all rows.  SOURCE is ``files`` (Parquet), ``embedded`` or ``kafka`` (JSON).  Figures are resident
sizes: the peak of the largest Python process as the kernel counts it, pages of shared libraries and of mapped files
included.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.arguments import count
from benchmarks.engines import SETTINGS
from benchmarks.memory import Peak
from tests.support.kafka_broker import kafka_broker
from tests.support.spark_jars import package_jars

if TYPE_CHECKING:
    from watersmeet import QueryMode, Session

_PATIENCE_SECONDS = 3600
_MEGABYTE = 1_000_000
_MOST_BYTES = 100_000_000  # of a record


def main() -> None:
    """Run the join and print a line of figures and a line of JSON."""
    import watersmeet
    from watersmeet.runtime.query_mode import QueryMode
    from watersmeet.settings.query_settings import parse_settings

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--memory", default="600MB")
    arguments.add_argument("--rows", type=count, default=20)
    arguments.add_argument("--value-mb", type=count, default=10)
    arguments.add_argument("--keys", type=count, default=20)
    arguments.add_argument("--join", choices=("inner", "left", "full", "left semi", "left anti"), default="inner")
    arguments.add_argument("--within", action="store_true")
    arguments.add_argument("--source", choices=("files", "embedded", "kafka"), default="files")
    options = arguments.parse_args()
    setting = parse_settings({"worker_memory": options.memory}).worker_memory
    assert setting is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder, config, broker = Path(name), SETTINGS, ""
        _write(folder, options.rows, options.value_mb * _MEGABYTE, options.keys)
        if options.source == "kafka":
            broker = stack.enter_context(kafka_broker()).address
            _produce(folder, broker)
            config = {**SETTINGS, "spark.jars": ",".join(package_jars("kafka"))}
        session = watersmeet.connect(workspace=folder / "workspace", master="local[2]", config=config)
        session.sql("CREATE STREAM nothing WITH (connector = 'blackhole')")
        for side in "lr":
            columns = f"k BIGINT, {side} STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts"
            files = f"WITH (connector = 'files', format = 'parquet', path = '{folder / side}')"
            if options.source == "embedded":
                session.sql(f"CREATE STREAM {side} ({columns}); CREATE STREAM {side}_files ({columns}) {files}")
                _run(session, f"INSERT INTO {side} SELECT * FROM {side}_files", QueryMode.DRAIN)
            elif options.source == "kafka":
                topic = f"WITH (connector = 'kafka', brokers = '{broker}', topic = '{side}', format = 'json')"
                session.sql(f"CREATE STREAM {side} ({columns}) {topic}")
            else:
                session.sql(f"CREATE STREAM {side} ({columns}) {files}")
        selected = "l.k, l.l" if options.join.startswith("left ") else "l.k, l.l, r.r"
        within = " WITHIN INTERVAL '1' HOUR" if options.within else ""
        text = (
            f"INSERT INTO nothing SELECT {selected} FROM l {options.join} JOIN r ON l.k = r.k{within} "
            f"SETTINGS worker_memory = '{options.memory}', join_max_buffered_bytes = 100000000000"
        )
        began = time.monotonic()
        with Peak() as peak:
            report = _run(session, text, QueryMode.DRAIN)
        seconds = time.monotonic() - began
        session.spark.stop()
    print(
        f"{report.rows_out:,} results in {seconds:.0f} s; largest worker {peak.largest_worker / 1e6:,.0f} MB, "
        f"{100 * peak.largest_worker / setting:.0f}% of the setting; all workers {peak.workers / 1e6:,.0f} MB, "
        f"JVM {peak.jvm / 1e6:,.0f} MB"
    )
    print(
        json.dumps(
            {
                "rows_out": report.rows_out,
                "seconds": seconds,
                "setting_bytes": setting,
                "largest_worker_bytes": peak.largest_worker,
                "worker_bytes": peak.workers,
                "jvm_bytes": peak.jvm,
            }
        )
    )


def _run(session: Session, text: str, mode: QueryMode) -> Any:
    (started,) = session.run(text, mode)
    query = started.query  # type: ignore[union-attr]
    query.wait(_PATIENCE_SECONDS)
    return query.report()


def _write(folder: Path, rows: int, nbytes: int, keys: int) -> None:
    """Write a file for each side."""
    chance = np.random.default_rng(1)
    for number, side in enumerate("lr"):
        (folder / side).mkdir()
        texts = [chance.integers(97, 123, nbytes, np.uint8).tobytes().decode() for _ in range(rows)]
        times = pa.array(1_700_000_000_000_000 + np.arange(rows) * 1_000 + number, pa.timestamp("us", tz="UTC"))
        table = pa.table({"k": np.arange(rows) % keys, side: texts, "ts": times})
        pq.write_table(table, folder / side / "1.parquet")


def _produce(folder: Path, broker: str) -> None:
    """Send the rows of each side to a topic of its name, as JSON."""
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": broker, "message.max.bytes": _MOST_BYTES}
    admin, producer = AdminClient(client), Producer(client)
    for side in "lr":
        topic = NewTopic(side, num_partitions=2, replication_factor=1, config={"max.message.bytes": str(_MOST_BYTES)})
        admin.create_topics([topic])[side].result(_PATIENCE_SECONDS)
        for row in pq.read_table(folder / side / "1.parquet").to_pylist():
            producer.produce(side, json.dumps({**row, "ts": row["ts"].isoformat()}))
            producer.flush(_PATIENCE_SECONDS)


if __name__ == "__main__":
    main()
