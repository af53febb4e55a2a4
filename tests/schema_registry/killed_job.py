"""A job that tests kill: Avro records to files, and as Avro, Protobuf or JSON to another topic, in transactions.

    python -m tests.schema_registry.killed_job FOLDER BROKER REGISTRY SOURCE TARGET FORMAT

runs until it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import watersmeet
from tests.support import spark_jars
from tests.support.jobs import QUICK_JVM
from watersmeet.session.results import Started

_SCRIPT = """
CREATE STREAM k (id BIGINT, unit STRING, tags ARRAY<STRING>)
  WITH (connector = 'kafka', brokers = '{broker}', topic = '{source}', format = 'avro', 'registry.url' = '{registry}',
        max_offsets_per_trigger = '40');
CREATE STREAM lines WITH (connector = 'files', path = '{folder}/lines', format = 'json');
CREATE STREAM copied (id BIGINT, unit STRING, tags ARRAY<STRING>)
  WITH (connector = 'kafka', brokers = '{broker}', topic = '{target}', format = '{format}',
        'registry.url' = '{registry}', delivery = 'exactly_once');
INSERT INTO lines SELECT id, unit, tags FROM k SETTINGS source_retry = '10 minutes', sink_retry = '10 minutes';
INSERT INTO copied SELECT id, unit, tags FROM k SETTINGS source_retry = '10 minutes', sink_retry = '10 minutes';
"""


def main(folder: str, broker: str, registry: str, source: str, target: str, format: str) -> None:
    """Start the queries and wait; raises the error of one that fails."""
    session = watersmeet.connect(
        workspace=Path(folder, "workspace"),
        master="local[2]",
        config={
            "spark.jars": ",".join(spark_jars.package_jars("kafka")),
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.sql.shuffle.partitions": "2",
        },
    )
    script = _SCRIPT.format(
        folder=folder, broker=broker, registry=registry, source=source, target=target, format=format
    )
    queries = [each.query for each in session.run(script) if isinstance(each, Started)]
    while True:
        for query in queries:
            query.wait(0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
