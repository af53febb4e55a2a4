"""Runs Flink's own join of two Kafka topics, from their beginnings to their ends.

    PYTHON benchmarks/flink_kafka.py KIND FORMAT BROKER LEFT_TOPIC RIGHT_TOPIC ROWS JAR...

PYTHON has apache-flink.  KIND is ``interval`` or ``changelog``, FORMAT ``json`` or ``avro``; ROWS is the number of
records in both topics, which ``topics.py`` fills.  Results go to Flink's ``blackhole`` sink.  The job runs twice in one
JVM, and the line printed has the rate of the second run.  Flink's event times are in milliseconds, and so are the
bounds of the interval join.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

_PARALLELISM = 2
_SINK = "CREATE TABLE o (a BIGINT, b BIGINT, k BIGINT, v DOUBLE, w DOUBLE) WITH ('connector' = 'blackhole')"
_COLUMNS = "INSERT INTO o SELECT l_id, r_id, l_key, l_val, r_val FROM"
QUERIES = {
    "interval": f"{_COLUMNS} l JOIN r ON l_key = r_key "
    "AND r_ts BETWEEN l_ts - INTERVAL '5' SECOND AND l_ts + INTERVAL '5' SECOND",
    "changelog": f"{_COLUMNS} l_newest JOIN r_newest ON l_key = r_key",
}


def settings(checkpoints: Path) -> dict[str, str]:
    """Return the settings of the job, which takes a checkpoint each second."""
    return {
        "parallelism.default": str(_PARALLELISM),
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "table.local-time-zone": "UTC",
    }


def table(side: str, topic: str, records: str, broker: str) -> str:
    """Return the CREATE TABLE statement for a side's topic.

    Flink would read the microseconds of Avro records as milliseconds if they were declared as a timestamp.
    """
    columns = f"{side}_key BIGINT NOT NULL, {side}_id BIGINT NOT NULL, {side}_val DOUBLE NOT NULL"
    if records == "avro":
        time_columns = f"{side}_micros BIGINT NOT NULL, {side}_ts AS TO_TIMESTAMP_LTZ({side}_micros / 1000, 3)"
    else:
        time_columns = f"{side}_ts TIMESTAMP_LTZ(3) NOT NULL"
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": broker,
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": records,
        **({"json.timestamp-format.standard": "ISO-8601"} if records == "json" else {}),
    }
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    watermark = f"WATERMARK FOR {side}_ts AS {side}_ts - INTERVAL '1' SECOND"
    return f"CREATE TABLE {side} ({columns}, {time_columns}, {watermark}) WITH ({listed})"


def newest(side: str, event_time: str) -> str:
    """Return the CREATE VIEW statement for the newest row of each key by the column ``event_time``.

    The connector ``upsert-kafka`` would keep the last row that arrives: another answer where rows are out of order.
    """
    return (
        f"CREATE VIEW {side}_newest AS SELECT * FROM (SELECT *, "
        f"ROW_NUMBER() OVER (PARTITION BY {side}_key ORDER BY {event_time} DESC) AS place FROM {side}) WHERE place = 1"
    )


def main() -> None:
    """Run the job that the arguments name, and print its rate."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    kind, records, broker, left, right, rows, *jars = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoints:
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        config = environment.get_config()
        jar_uris = ";".join(Path(jar).as_uri() for jar in jars)
        for name, value in {**settings(Path(checkpoints)), "pipeline.jars": jar_uris}.items():
            config.set(name, value)
        for side, topic in (("l", left), ("r", right)):
            environment.execute_sql(table(side, topic, records, broker))
            environment.execute_sql(newest(side, f"{side}_ts"))
        environment.execute_sql(_SINK)
        seconds = 0.0
        for _ in range(2):
            started = time.monotonic()
            environment.execute_sql(QUERIES[kind]).wait()
            seconds = time.monotonic() - started
    print(f"flink {kind} {records}: {rows} rows in {seconds:.2f} s = {int(rows) / seconds:.0f} rows/s")


if __name__ == "__main__":
    main()
