"""Streams in the object store: their rows, their definitions, and what queries have written there."""

from __future__ import annotations

import json
import os
import random
import urllib.request
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, S3FileSystem

from tests.cluster.hosts import SHARED_FOLDER
from tests.support.json_results import json_results
from watersmeet.session.session import Session

#: Where everything is, for Spark and for Arrow: a bucket of the cluster's store, or a folder that all hosts share.
STORE = os.environ.get("CLUSTER_STORE", "")
BUCKET = "lake" if STORE else f"{os.environ.get('CLUSTER_FOLDER', SHARED_FOLDER)}/lake"
ROOT = f"s3a://{BUCKET}" if STORE else f"file:{BUCKET}"
#: A record of p that is malformed.
BAD = '{"id": "a word"}'
Rows = list[tuple[int, int, int]]


def open_store() -> FileSystem:
    """Make the bucket or folder, and return what it is on."""
    if not STORE:
        return LocalFileSystem()
    request = urllib.request.Request(f"{STORE}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=20).close()
    return S3FileSystem(endpoint_override=STORE)


def rows_of(seed: int, count: int) -> Rows:
    """So many rows (id, v, ts), each with a time of its own, out of order by at most nine seconds."""
    chance = random.Random(seed)
    times = [2 * number + chance.randrange(2) for number in range(count)]
    for start in range(0, count, 4):
        part = times[start : start + 4]
        chance.shuffle(part)
        times[start : start + 4] = part
    return [(3 if chance.random() < 0.1 else chance.randrange(60), number, time) for number, time in enumerate(times)]


def write_streams(store: FileSystem, tables: Mapping[str, pa.Table], files: int) -> None:
    """Write each table as so many files: p… as lines of JSON, with one that is malformed, the others as Parquet."""
    for name, table in tables.items():
        store.create_dir(f"{BUCKET}/{name}", recursive=True)
        size = -(-table.num_rows // files)
        for number in range(files):
            part = table.slice(number * size, size)
            with store.open_output_stream(f"{BUCKET}/{name}/{number:02}.{_format(name)}") as out:
                if _format(name) == "json":
                    lines = [json.dumps(row) for row in part.to_pylist()] + ([BAD] if number == 0 else [])
                    out.write("\n".join(lines).encode())
                else:
                    pq.write_table(part, out)
            if not STORE:  # files of one moment have no order
                os.utime(f"{BUCKET}/{name}/{number:02}.{_format(name)}", (1_700_000_000 + number,) * 2)


def table_of(rows: Rows) -> pa.Table:
    """The rows as a table."""
    return pa.table(dict(zip(("id", "v", "ts"), map(list, zip(*rows, strict=True)), strict=True)))


def _format(name: str) -> str:
    return "json" if name.startswith("p") else "parquet"


def define_streams(session: Session, names: str) -> None:
    """Define streams; r and s are changing ones. A batch has one file of each."""
    columns = "(id BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS)"
    for name in names:
        key = " PRIMARY KEY (id)" if name in "rs" else ""
        session.sql(
            f"CREATE {'MUTABLE ' if key else ''}STREAM {name} {columns}{key} WITH (connector = 'files', "
            f"path = '{ROOT}/{name}', format = '{_format(name)}', event_time_unit = 's', max_files_per_trigger = '1')"
        )


def side_rows(store: FileSystem, name: str) -> list[str]:
    """What a query has set aside, as it was read."""
    rows: list[str] = []
    for file in store.get_file_info(FileSelector(f"{BUCKET}/checkpoints/{name}", recursive=True)):
        if file.extension == "jsonl":
            with store.open_input_stream(file.path) as stream:
                rows += [json.loads(line)["raw"] for line in stream.read().decode().splitlines()]
    return rows


def results(store: FileSystem, name: str) -> Counter[tuple[object, ...]]:
    """All rows of a sink, or the sum of its changes."""
    return json_results(store, f"{BUCKET}/out/{name}")
