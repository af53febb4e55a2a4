"""The job that is killed: a left join, the counts of an inner one, and how many keys have each count, in real time.

The last of them are in a topic; or in a table of PostgreSQL, if FOLDER has ``database.url`` and ``database.password``.
The job runs until standard input ends.

python -m tests.real_time.kill_campaign.job FOLDER BROKER TOPICS EPOCH
"""

from __future__ import annotations

import sys
from pathlib import Path

import watersmeet
from benchmarks.latency.parent import when_input_ends
from tests.support import spark_jars
from tests.support.jobs import QUICK_JVM
from watersmeet.session.results import Started

WINDOW_SECONDS = 5
_SLOTS = 32
_SCRIPT = f"""
CREATE STREAM o (id BIGINT, k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '2' SECONDS)
  WITH (connector = 'kafka', brokers = '{{broker}}', topic = '{{topics}}-o', event_time_unit = 'ms');
CREATE STREAM p (id BIGINT, k BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '2' SECONDS)
  WITH (connector = 'kafka', brokers = '{{broker}}', topic = '{{topics}}-p', event_time_unit = 'ms');
CREATE STREAM padded (id BIGINT, pid BIGINT)
  WITH (connector = 'kafka', brokers = '{{broker}}', topic = '{{topics}}-padded');
CREATE MUTABLE STREAM counts (k BIGINT, n BIGINT) PRIMARY KEY (k)
  WITH (connector = 'kafka', brokers = '{{broker}}', topic = '{{topics}}-counts');
CREATE MUTABLE STREAM sizes (n BIGINT, keys BIGINT) PRIMARY KEY (n)
  WITH ({{sizes}});
INSERT INTO padded
  SELECT o.id, p.id AS pid FROM o LEFT JOIN p ON o.k = p.k WITHIN INTERVAL '{WINDOW_SECONDS}' SECONDS
  SETTINGS epoch = '{{epoch:g}} seconds';
INSERT INTO counts
  SELECT o.k, count(*) AS n FROM o JOIN p ON o.k = p.k WITHIN INTERVAL '{WINDOW_SECONDS}' SECONDS GROUP BY o.k
  SETTINGS epoch = '{{epoch:g}} seconds';
INSERT INTO sizes
  SELECT n, count(*) AS keys FROM (
    SELECT o.k, count(*) AS n FROM o JOIN p ON o.k = p.k WITHIN INTERVAL '{WINDOW_SECONDS}' SECONDS
    WHERE o.k >= 0 GROUP BY o.k
  ) GROUP BY n
  SETTINGS epoch = '{{epoch:g}} seconds';
"""
_TOPIC = "connector = 'kafka', brokers = '{broker}', topic = '{topics}-sizes'"
_TABLE = (
    "connector = 'jdbc', url = '{url}', table = 'sizes', user = 'postgres',"
    " password = '${{file:{folder}/database.password}}'"
)


def main(folder: str, broker: str, topics: str, epoch: str) -> None:
    """Start the queries and wait; raises the error of one that fails."""
    session = watersmeet.connect(
        workspace=Path(folder, "workspace"),
        master=f"local[{_SLOTS}]",
        config={
            "spark.jars": ",".join(spark_jars.package_jars("kafka")),
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.sql.shuffle.partitions": "2",
        },
    )
    url = Path(folder, "database.url")
    sizes = (
        _TABLE.format(folder=folder, url=url.read_text())
        if url.exists()
        else _TOPIC.format(broker=broker, topics=topics)
    )
    script = _SCRIPT.format(broker=broker, topics=topics, epoch=float(epoch), sizes=sizes)
    queries = [each.query for each in session.run(script, real_time=True) if isinstance(each, Started)]

    def stop() -> None:
        for query in queries:
            query.stop()

    when_input_ends(stop)
    for query in queries:
        query.wait()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
