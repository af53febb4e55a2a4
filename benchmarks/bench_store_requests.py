"""Counts what a batch asks of an object store that holds the checkpoint.

    python -m benchmarks.bench_store_requests [BUCKETS...]

An inner join of two streams of Parquet files, on ``local[2]``, with its checkpoint on a store that speaks S3 on
loopback. Batches are counted once the first three are over. Both ways in which Spark can write files there are tried:
its own for any file system, which writes a file and moves it, and that of the package spark-hadoop-cloud, which writes
each file at once. The state store is RocksDB with changelogs.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.arguments import count
from benchmarks.engines import SETTINGS, definitions
from benchmarks.streams import streams_folder, write_streams
from benchmarks.suite import output_of
from benchmarks.workloads import WORKLOADS
from tests.support.kafka_broker import resolve_jars
from tests.support.spark_jars import s3_jars

#: The newest release of the package that is known to work with PySpark 4.3; what it depends on is there already.
_CLOUD = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"
_NOT_OF_CLOUD = (
    "org.apache.hadoop:*",
    "org.apache.spark:spark-core_2.13",
    "org.apache.spark:spark-sql_2.13",
    "com.*:*",
)
_WAYS = {
    "moved": SETTINGS["spark.sql.streaming.checkpointFileManagerClass"],
    "at once": "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
}
_BATCHES, _FIRST = 8, 3
_PATIENCE_SECONDS = 60.0
_REQUEST = re.compile(rb'"(?:\x1b\[\S*?m)?([A-Z]+) (/lake\S*) HTTP')
_S3A = {
    "path.style.access": "true",
    "connection.ssl.enabled": "false",
    "optimized.copy.from.local.enabled": "false",
    "performance.flags": "create,mkdir,delete",
}


def requests_a_batch(buckets: int, way: str) -> float:
    """Return how many requests a batch makes."""
    workload = WORKLOADS["inner"].of_rows(20_000)
    folder = write_streams(streams_folder(), workload.data)
    with tempfile.TemporaryDirectory() as scratch, _store(Path(scratch) / "requests.log") as (url, log):
        import watersmeet

        cloud = [jar for jar in resolve_jars([_CLOUD], _NOT_OF_CLOUD) if "spark-hadoop-cloud" in jar]
        jars = ":".join([*s3_jars(), *cloud])
        config = {
            **SETTINGS,
            "spark.sql.shuffle.partitions": str(buckets),
            "spark.driver.extraClassPath": jars,
            "spark.hadoop.fs.s3a.endpoint": url,
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in _S3A.items()},
            "spark.sql.streaming.checkpointFileManagerClass": _WAYS[way],
        }
        session = watersmeet.connect(workspace=f"{scratch}/workspace", master="local[2]", config=config)
        for definition in definitions(workload, folder):
            session.sql(definition)
        seen: list[int] = []

        def write(frame: Any, _batch: int) -> None:
            frame.write.format("noop").mode("overwrite").save()
            seen.append(len(_REQUEST.findall(log.read_bytes())))

        result: Any = session.sql(workload.sql)
        writer = result.frame.writeStream.foreachBatch(write).option("checkpointLocation", "s3a://lake/checkpoint")
        query = writer.start()
        while query.isActive and len(seen) < _BATCHES:
            time.sleep(0.1)
        query.stop()
        if len(seen) < _BATCHES:
            raise SystemExit(f"the query has stopped: {query.exception()}")
        return (seen[_BATCHES - 1] - seen[_FIRST - 1]) / (_BATCHES - _FIRST)


@contextmanager
def _store(log: Path) -> Iterator[tuple[str, Path]]:
    """Start a store with an empty bucket; its URL, and the file in which it notes every request."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    os.environ.update(AWS_ACCESS_KEY_ID="writer", AWS_SECRET_ACCESS_KEY="not-a-secret", AWS_REGION="us-east-1")
    with log.open("wb") as out:
        program = str(Path(sys.executable).with_name("moto_server"))
        server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stderr=out, stdout=out)
        try:
            ends = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < ends:
                with suppress(OSError):
                    urlopen(Request(f"http://127.0.0.1:{port}/lake", method="PUT"), timeout=5).close()
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}", log
        finally:
            server.kill()
            server.wait(_PATIENCE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Count for each number of buckets and each way, every one in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("buckets", nargs="*", type=count, metavar="BUCKETS")
    parser.add_argument("--way", choices=list(_WAYS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.way is not None:
        print(requests_a_batch(options.buckets[0], options.way))
        return
    print("| buckets | requests a batch, files moved | requests a batch, files written at once |\n|---|---|---|")
    for buckets in options.buckets or (2, 8):
        found = [
            float(output_of([sys.executable, "-m", __spec__.name, str(buckets), "--way", way], "watersmeet", "inner"))
            for way in _WAYS
        ]
        print(f"| {buckets} | " + " | ".join(f"{each:,.0f}" for each in found) + " |", flush=True)


if __name__ == "__main__":
    main()
