"""A job of the command on a cluster, from the common store or folder and back to it; its answer against DuckDB's.

    python -m tests.cluster.job [ARCHIVE [WORKSPACE]]

``CLUSTER_MASTER`` names the cluster.  With an archive, executors get all packages from it, and the folder in which the
command runs has the same environment as ``environment``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
from pyarrow.fs import FileSystem

from tests.cluster.lake import ROOT, open_store, results, rows_of, table_of, write_streams
from tests.cluster.session import spark_settings

ROWS, FILES = 900, 3
_SECONDS = 900
_COLUMNS = "(id BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS)"
_OPTIONS = "event_time_unit = 's', max_files_per_trigger = '1'"
JOB = f"""
CREATE STREAM o {_COLUMNS} WITH (connector = 'files', path = '{ROOT}/o', format = 'parquet', {_OPTIONS});
CREATE STREAM p {_COLUMNS} WITH (connector = 'files', path = '{ROOT}/p', format = 'json', {_OPTIONS});
CREATE STREAM paired WITH (connector = 'files', path = '{ROOT}/out/paired', format = 'json');
INSERT INTO paired
SELECT o.id, o.v, p.v AS w FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS EMIT FINAL;
"""
_ANSWER = "SELECT o.id, o.v, p.v FROM o LEFT JOIN p ON o.id = p.id AND abs(p.ts - o.ts) <= 30"


def tables() -> dict[str, pa.Table]:
    """The rows of both streams."""
    return {"o": table_of(rows_of(1, ROWS)), "p": table_of(rows_of(2, ROWS))}


def expected() -> Counter[tuple[object, ...]]:
    """DuckDB's answer over all rows."""
    with duckdb.connect() as connection:
        for name, table in tables().items():
            connection.register(name, table)
        return Counter(connection.execute(_ANSWER).fetchall())


def write_defaults(settings: dict[str, str]) -> None:
    """Write the settings of Spark where ``SPARK_CONF_DIR`` will say."""
    Path("conf").mkdir(exist_ok=True)
    Path("conf/spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))


def command(workspace: str = ".watersmeet") -> list[str]:
    """The command that runs the job, which is written into this folder."""
    Path("job.sql").write_text(JOB)
    program = [str(Path(sys.executable).with_name("watersmeet")), "run", "job.sql", "--bounded"]
    places = ["--checkpoint", f"{ROOT}/checkpoints", "--workspace", workspace]
    return [*program, "--master", os.environ["CLUSTER_MASTER"], *places]


def run(words: list[str], variables: Mapping[str, str], after_a_batch: Callable[[], object] = lambda: None) -> None:
    """Run a command to its end, which must be a good one; once it tells of a first batch, something may be done."""
    process = subprocess.Popen(words, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    timer = threading.Timer(_SECONDS, process.kill)
    timer.start()
    for line in process.stderr:
        print(line, end="", file=sys.stderr, flush=True)
        if "1 batch," in line:
            after_a_batch()
    timer.cancel()
    assert process.wait() == 0, f"{words[0]} ended with {process.returncode}"


def compare(store: FileSystem, name: str = "paired") -> int:
    """Print whether the results are DuckDB's; 1 if they are not."""
    found, due = results(store, name), expected()
    print("equal to the batch answer" if found == due else f"{found - due}, missing {due - found}", flush=True)
    return int(found != due)


def main(archive: str = "", workspace: str = ".watersmeet") -> int:
    """Run the job; return 1 if its answer is wrong."""
    store = open_store()
    write_streams(store, tables(), FILES)
    settings, variables = spark_settings(), {"SPARK_CONF_DIR": "conf"}
    if archive:
        Path("environment").symlink_to(sys.prefix)
        settings["spark.archives"] = f"{archive}#environment"
        variables["PYSPARK_PYTHON"] = "./environment/bin/python"
    write_defaults({**settings, **json.loads(os.environ.get("CLUSTER_SETTINGS", "{}"))})
    run(command(workspace), variables)
    return compare(store)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
