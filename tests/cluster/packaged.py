"""A job as docs/cluster.md says, on executors that get all packages as an archive; its answer against DuckDB's.

python -m tests.cluster.packaged ARCHIVE

The folder in which the command runs has the same environment as ``environment``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb

from tests.cluster.hosts import repository
from tests.cluster.lake import ROOT, open_store, results, rows_of, table_of, write_streams
from tests.cluster.session import spark_settings

_COLUMNS = "(id BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS)"
_JOB = f"""
CREATE STREAM o {_COLUMNS} WITH (connector = 'files', path = '{ROOT}/o', format = 'parquet', event_time_unit = 's');
CREATE STREAM p {_COLUMNS} WITH (connector = 'files', path = '{ROOT}/p', format = 'json', event_time_unit = 's');
CREATE STREAM paired WITH (connector = 'files', path = '{ROOT}/out/paired', format = 'json');
INSERT INTO paired
SELECT o.id, o.v, p.v AS w FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '30' SECONDS EMIT FINAL;
"""
_ANSWER = "SELECT o.id, o.v, p.v FROM o LEFT JOIN p ON o.id = p.id AND abs(p.ts - o.ts) <= 30"


def packed_environment(folder: Path) -> Path:
    """Install this project into an environment of its own, and return an archive of it."""
    uv = [str(Path(sys.executable).with_name("uv"))]
    python, archive = folder / "bin" / "python", folder.with_suffix(".tar.gz")
    pins = str(repository() / "requirements.lock")
    for command in (
        [*uv, "venv", "--python", sys.executable, str(folder)],
        [*uv, "pip", "install", "--python", str(python), "--constraint", pins, str(repository()), "venv-pack"],
        [str(folder / "bin" / "venv-pack"), "-p", str(folder), "-o", str(archive), "--exclude", "*/pyspark/*"],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    return archive


def main(archive: str) -> int:
    """Run the job; return 1 if its answer is wrong."""
    store = open_store()
    tables = {"o": table_of(rows_of(1, 900)), "p": table_of(rows_of(2, 900))}
    write_streams(store, tables, 3)
    Path("environment").symlink_to(sys.prefix)
    Path("conf").mkdir()
    settings = {**spark_settings(), "spark.archives": f"{archive}#environment"}
    Path("conf/spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    Path("job.sql").write_text(_JOB)
    command = [str(Path(sys.executable).with_name("watersmeet")), "run", "job.sql", "--bounded"]
    subprocess.run(
        [*command, "--master", os.environ["CLUSTER_MASTER"], "--checkpoint", f"{ROOT}/checkpoints"],
        env={**os.environ, "SPARK_CONF_DIR": "conf", "PYSPARK_PYTHON": "./environment/bin/python"},
        timeout=400,
        check=True,
    )
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = Counter(connection.execute(_ANSWER).fetchall())
    found = results(store, "paired")
    print("equal to the batch answer" if found == expected else f"{found - expected}, missing {expected - found}")
    return int(found != expected)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
