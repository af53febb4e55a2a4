"""Files and a checkpoint in an object store that is away while a query runs.

    python -m tests.connectors.store_outage FOLDER

starts a Spark of its own, which has the jars for S3, and ends with 1 if the answer is wrong.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyarrow.fs import FileSelector, S3FileSystem

import watersmeet
from tests.support.object_store import BUCKET, object_store
from tests.support.spark_jars import s3_jars
from watersmeet.runtime.query import RunningQuery
from watersmeet.session.results import Started

SECONDS = 150.0


def main(folder: Path) -> int:
    """Run the query, and return the exit code."""
    with object_store() as (line, variables):
        os.environ.update(variables)
        session = watersmeet.connect(
            workspace=folder / "workspace",
            master="local[2]",
            config={
                "spark.jars": ",".join(s3_jars()),
                "spark.hadoop.fs.s3a.endpoint": variables["AWS_ENDPOINT_URL"],
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.access.key": "writer",
                "spark.hadoop.fs.s3a.secret.key": "not-a-secret",
                # it needs the SDK's own copy of Netty, which is in a jar of 600 MB only
                "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
                "spark.hadoop.fs.s3a.performance.flags": "create,mkdir,delete",
                "spark.hadoop.fs.s3a.attempts.maximum": "1",
                "spark.hadoop.fs.s3a.retry.limit": "1",
            },
        )
        (folder / "o").mkdir()
        session.sql(f"CREATE STREAM o (id INT) WITH (connector = 'files', path = '{folder}/o')")
        session.sql(f"CREATE STREAM sink WITH (connector = 'files', path = 's3a://{BUCKET}/out')")
        _add(folder, 1)
        settings = "sink_retry = '5 minutes', source_retry = '5 minutes', buckets = 2"
        sql = f"INSERT INTO sink SELECT id FROM o SETTINGS {settings}"
        (started,) = session.run(sql, checkpoint=f"s3a://{BUCKET}/checkpoints")
        assert isinstance(started, Started)
        query = started.query
        _wait(query, lambda: query.report().rows_out == 1)
        line.close()
        _add(folder, 2)
        _wait(query, lambda: "(attempt 2, " in query.report().waiting)
        print(query.report().waiting, flush=True)
        line.open()
        store = S3FileSystem(endpoint_override=variables["AWS_ENDPOINT_URL"])
        _wait(query, lambda: _rows(store) == [1, 2])
        _wait(query, lambda: not query.report().waiting)
        query.stop()
        found = _rows(store)
        print(found, flush=True)
        return int(found != [1, 2])


def _add(folder: Path, id: int) -> None:
    (folder / "o" / f"{id}.json").write_text(json.dumps({"id": id}) + "\n")


def _rows(store: S3FileSystem) -> list[int]:
    files = [file for file in store.get_file_info(FileSelector(f"{BUCKET}/out")) if file.extension == "json"]
    lines = [line for file in files for line in store.open_input_stream(file.path).read().decode().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def _wait(query: RunningQuery, holds: object) -> None:
    until = time.monotonic() + SECONDS
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until, query.report()
        query.wait(0.1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
