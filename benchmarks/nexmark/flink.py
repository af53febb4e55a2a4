"""Runs a query of Nexmark in Flink.

    PYTHON benchmarks/nexmark/flink.py measure FOLDER QUERIES EVENTS JAR...
    PYTHON benchmarks/nexmark/flink.py write FOLDER QUERIES OUT JAR...

PYTHON has apache-flink.  FOLDER has the streams, each in as many files as Flink has readers: it reads files in no
certain order, so each must be in the order of time by itself.  QUERIES is a JSON object: the SELECT of each, by name.
``measure`` runs each twice in one JVM, into Flink's ``blackhole`` sink, and prints the rate of the second run.
``write`` writes the results of each below OUT, as Parquet with the columns ``_tp_delta`` and ``_batch``, the place of a
change among all.  Both print JSON by name, and what failed as text.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_PARALLELISM = 2
_COLUMNS = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,"
    " date_time TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,"
    " date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(3),"
    " extra STRING",
}
_WATERMARK = "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"


def settings(checkpoints: Path, jars: list[str]) -> dict[str, str]:
    """Return the settings of the job, which takes a checkpoint each second."""
    return {
        "parallelism.default": str(_PARALLELISM),
        "pipeline.object-reuse": "true",
        "pipeline.jars": ";".join(Path(each).as_uri() for each in jars),
        "state.backend.type": "hashmap",
        "taskmanager.memory.process.size": "6g",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "table.local-time-zone": "UTC",
    }


def tables(folder: Path) -> list[str]:
    """Return the CREATE TABLE statements."""
    found = [f"CREATE TABLE {name} ({each}, {_WATERMARK}) {_files(folder / name)}" for name, each in _COLUMNS.items()]
    found.append(f"CREATE TABLE bid_arrival ({_COLUMNS['bid']}, arrival AS PROCTIME()) {_files(folder / 'bid')}")
    found.append(f"CREATE TABLE side_input (`key` BIGINT, `value` STRING) {_files(folder / 'side_input')}")
    return found


def _files(folder: Path) -> str:
    return f"WITH ('connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'parquet')"


def main() -> None:
    """Do what the arguments say."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    what, folder, queries, argument, *jars = sys.argv[1:]
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoints:
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for name, value in settings(Path(checkpoints), jars).items():
            environment.get_config().set(name, value)
        for each in tables(Path(folder)):
            environment.execute_sql(each)
        for name, select in json.loads(Path(queries).read_text(encoding="utf-8")).items():
            try:
                if what == "measure":
                    found[name] = _rate(environment, select, int(argument))
                else:
                    _write(environment, select, Path(argument) / f"{name}.parquet")
            except Exception as error:  # noqa: BLE001 - the others run all the same
                found[name] = str(error)
    print(json.dumps(found))


def _rate(environment: Any, select: str, events: int) -> float:
    """The events a second of the second run."""
    environment.execute_sql("DROP TABLE IF EXISTS o")
    environment.execute_sql(_sink(environment, select))
    seconds = 0.0
    for _ in range(2):
        started = time.monotonic()
        environment.execute_sql(f"INSERT INTO o {select}").wait()
        seconds = time.monotonic() - started
    return events / seconds


def _sink(environment: Any, select: str) -> str:
    """The CREATE TABLE of a sink that drops the query's rows."""
    schema = environment.sql_query(select).get_schema()
    names, kinds = schema.get_field_names(), schema.get_field_data_types()
    columns = ", ".join(f"`{name}` {_sql_type(kind)}" for name, kind in zip(names, kinds, strict=True))
    return f"CREATE TABLE o ({columns}) WITH ('connector' = 'blackhole')"


def _sql_type(kind: Any) -> str:
    from pyflink.table.types import _to_java_data_type

    return str(_to_java_data_type(kind).getLogicalType().copy(True).asSerializableString())


def _write(environment: Any, select: str, out: Path) -> None:
    """Write what the query emits, with +1 for each row that comes and -1 for each that goes."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyflink.common import RowKind

    result = environment.execute_sql(select)
    names = result.get_table_schema().get_field_names()
    gone = (RowKind.DELETE, RowKind.UPDATE_BEFORE)
    with result.collect() as rows:
        found = [(*row, -1 if row.get_row_kind() in gone else 1, place) for place, row in enumerate(rows)]
    columns = zip(*found, strict=True) if found else [()] * (len(names) + 2)
    pq.write_table(pa.table(dict(zip([*names, "_tp_delta", "_batch"], map(list, columns), strict=True))), out)


if __name__ == "__main__":
    main()
